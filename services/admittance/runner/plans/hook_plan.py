"""What runs on the machine before and after a run, and what it gets to read about the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from admittance.events.facts import Admitted
from admittance.job_rules.hooks import JobHooks
from admittance.job_rules.rules import UnixUser


class HookPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The prolog and the epilog of a run; "": none. ``seconds``: the longest time of each. ``env``:
    their variables about the job."""

    prolog: str = ""
    epilog: str = ""
    seconds: float = 0.0
    env: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def seconds_at_most(self) -> float:
        """The longest time of all hooks together."""
        return self.seconds * sum(map(bool, (self.prolog, self.epilog)))


def hook_plan(
    hooks: JobHooks,
    admitted: Admitted,
    *,
    user: UnixUser,
    units: Sequence[str],
    folder: str,
    checkpoint: str,
) -> HookPlan | None:
    """The hooks of a run; None: the runner has none. ``user``: the Unix user of its processes.
    ``units``: its units of devices, as ``<resource>=<id>``. ``folder``: where its processes start;
    "": in scratch folders. ``checkpoint``: its checkpoint folder."""
    if not hooks.any:
        return None
    env = {
        "ADMITTANCE_WORKLOAD": admitted.name,
        "ADMITTANCE_NAMESPACE": admitted.namespace,
        "ADMITTANCE_UID": admitted.uid,
        "ADMITTANCE_USER": admitted.submitted_by,
        "ADMITTANCE_UNIX_UID": str(user.uid),
        "ADMITTANCE_UNIX_USER": user.name,
        "ADMITTANCE_DEVICES": " ".join(units),
        "ADMITTANCE_FOLDER": folder,
        "ADMITTANCE_CHECKPOINT_DIR": checkpoint,
        "ADMITTANCE_RESTART_COUNT": str(admitted.restarts),
    }
    return HookPlan(
        prolog=hooks.prolog,
        epilog=hooks.epilog,
        seconds=hooks.seconds,
        env=env,
    )
