"""The durables through which programs beside Admittance hear what they are asked.

``check-<controller>`` and ``provider-<class>``. They belong to the system, not to those programs:
made when the first manifest names one, so that nothing it is asked is missed however late it
starts, and deleted when none does any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from admittance.events.names import BadToken, plain, token
from admittance.events.subjects import (
    CHECK_DURABLE,
    PROVIDER_DURABLE,
    STREAM,
    check_filters,
    provider_filters,
)
from admittance.runtime.bus import Bus
from admittance.runtime.errors import Refused

ACK_WAIT_SECONDS: Final = 30
"""Until a request that nobody acknowledged comes again, perhaps to another replica."""
NO_CONSUMER: Final = 10014


class PeerDurables:
    """The durables of one kind. ``prefix``: of their names; ``filters``: what that of a name
    reads. ``ack_wait``: seconds until a request that nobody acknowledged comes again."""

    MAX_ACK_PENDING: Final = 5000
    """Requests that the replicas of one program hold unacknowledged. Of one that never acknowledges
    this many come again every ``ack_wait``, and no more."""

    def __init__(
        self,
        prefix: str,
        filters: Callable[[str], list[str]],
        *,
        ack_wait: int = ACK_WAIT_SECONDS,
    ) -> None:
        self._prefix = prefix
        self._filters = filters
        self._ack_wait = ack_wait

    def durable(self, name: str) -> str:
        """What the durable of that program is called."""
        return f"{self._prefix}{token(name)}"

    def settings(self, name: str) -> dict[str, Any]:
        """How the durable of that program is set up."""
        durable = self.durable(name)
        return {
            "durable_name": durable,
            "name": durable,
            "filter_subjects": self._filters(name),
            "deliver_policy": "new",
            "ack_policy": "explicit",
            "ack_wait": self._ack_wait * 1_000_000_000,
            "max_ack_pending": self.MAX_ACK_PENDING,
            "max_deliver": -1,
            "max_waiting": 512,
        }

    async def make(self, bus: Bus, name: str) -> None:
        """Makes the durable of that program; one that is there keeps its place in the log, and gets
        our settings. Raises Refused or Unavailable."""
        wanted = self.settings(name)
        durable = wanted["name"]
        try:
            found = (await bus.api(f"CONSUMER.INFO.{STREAM}.{durable}"))["config"]
        except Refused as error:
            if error.code != NO_CONSUMER:
                raise
        else:
            if all(found.get(key) == value for key, value in wanted.items()):
                return
            # Where it began cannot be changed, and need not be.
            begun = ("deliver_policy", "opt_start_seq", "opt_start_time")
            wanted = {
                **{key: value for key, value in wanted.items() if key not in begun},
                **{key: found[key] for key in begun if key in found},
            }
        await bus.api(
            f"CONSUMER.CREATE.{STREAM}.{durable}", {"stream_name": STREAM, "config": wanted}
        )

    async def remove(self, bus: Bus, name: str) -> None:
        """Deletes the durable of that program; harmless where there is none."""
        try:
            await bus.api(f"CONSUMER.DELETE.{STREAM}.{self.durable(name)}")
        except Refused as error:
            if error.code != NO_CONSUMER:
                raise

    async def there(self, bus: Bus) -> dict[str, dict[str, Any]]:
        """Every such durable by its program, as the server tells of it (``num_pending``,
        ``num_ack_pending``, …). A consumer of such a name that reads something else is none."""
        found: dict[str, dict[str, Any]] = {}
        offset = 0
        while True:
            page = await bus.api(f"CONSUMER.LIST.{STREAM}", {"offset": offset})
            consumers = page.get("consumers") or []
            for info in consumers:
                name = self._whose(info)
                if name is not None:
                    found[name] = info
            offset += len(consumers)
            if not consumers or offset >= page["total"]:
                return found

    def _whose(self, info: dict[str, Any]) -> str | None:
        durable = str(info["name"])
        if not durable.startswith(self._prefix):
            return None
        try:
            name = plain(durable.removeprefix(self._prefix))
        except BadToken:
            return None
        read = info["config"].get("filter_subjects") or []
        return name if sorted(read) == sorted(self._filters(name)) else None


check_durables: Final = PeerDurables(CHECK_DURABLE, check_filters)
"""Of check controllers, by their names."""
provider_durables: Final = PeerDurables(PROVIDER_DURABLE, provider_filters, ack_wait=6)
"""Of providers of capacity, by their classes. What is taken back must be freed soon, also where
the one that was told has just been killed."""
