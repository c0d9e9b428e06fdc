"""Which answers of providers do not count, as the story of a workload shows it."""

from __future__ import annotations

from admittance.events.base import Fact
from admittance.events.provisioning import (
    CapacityRevoked,
    ProvisioningCancelled,
    ProvisioningFact,
    ProvisioningFailed,
    ProvisioningRequested,
    ProvisioningStatus,
)

FAILED = "it had failed"
TAKEN_BACK = "it was taken back"
NOBODYS = "it is about no request of this workload"


class Answers:
    """Follows a story in its order. What came before it was read is not known, and not guessed."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], dict[str, str]] = {}
        self._over: dict[str, str] = {}

    def remark(self, fact: Fact) -> str:
        """Why the next fact of the story does not count; "" where it does, or nobody knows."""
        if not isinstance(fact, ProvisioningFact):
            return ""
        asked = self._asked.setdefault((fact.namespace, fact.name), {})
        match fact:
            case ProvisioningRequested():
                asked.setdefault(fact.id, fact.provisioning_class)
            case ProvisioningCancelled():
                self._over[fact.id] = TAKEN_BACK
            case ProvisioningStatus():
                why = self._uncounted(fact, asked)
                if not why and isinstance(fact, ProvisioningFailed):
                    self._over[fact.id] = FAILED
                return why
        return ""

    def _uncounted(self, fact: ProvisioningStatus, asked: dict[str, str]) -> str:
        of = asked.get(fact.id)
        if of is None:
            uids = {one.partition("/")[0] for one in asked}
            return NOBODYS if uids and fact.id.partition("/")[0] not in uids else ""
        if of != fact.provisioning_class:
            return f"it was asked of {of}"
        over = self._over.get(fact.id, "")
        # A failure of what was there ends nothing that runs: it can be revoked all the same.
        return "" if over == FAILED and isinstance(fact, CapacityRevoked) else over
