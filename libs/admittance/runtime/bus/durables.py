"""The durable consumers that one reader has at the server: made, found, deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from admittance.events.names import BadToken, plain, token
from admittance.events.reader import SetAside, number
from admittance.events.subjects import (
    CHECK_DURABLE,
    PROVIDER_DURABLE,
    STREAM,
    check_filters,
    provider_filters,
)
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Refused, SetupError
from admittance.runtime.telemetry.logger import log_set_aside

NO_CONSUMER: Final = 10014
NO_STREAM: Final = 10059
MAX_ACK_PENDING: Final = 20_000


class Consumers:
    """Consumers of one stream under one name, or under that name and two numbers.

    ``filters``: the subjects they read. ``ack_wait``: seconds until an unacknowledged delivery is
    redelivered.
    """

    def __init__(
        self, bus: Bus, stream: str, name: str, filters: Sequence[str], *, ack_wait: float
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._name = name
        self._filters = list(filters)
        self._ack_wait = ack_wait
        self.foreign: set[str] = set()
        """Names of consumers that look like ours, and that another hand made."""

    async def last(self, start_at: int) -> int:
        """Makes the one lasting consumer, or brings its settings up to date; it begins at start_at
        when it is new (0: at the first fact). How many facts are before it. Raises Refused, and
        SetupError when there is no stream."""
        start: dict[str, Any] = {"deliver_policy": "all"}
        if start_at:
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": start_at}
        try:
            info = await self._bus.api(f"CONSUMER.INFO.{self._stream}.{self._name}")
            kept = ("deliver_policy", "opt_start_seq")
            start = {key: info["config"][key] for key in kept if key in info["config"]}
        except Refused as error:
            if error.code != NO_CONSUMER:
                raise
        return await self.create(self._name, {"ack_policy": "explicit", **start})

    async def create(self, name: str, settings: Mapping[str, Any]) -> int:
        """Makes a consumer of that name; how many facts are before it. Raises as `last`."""
        config = {
            "durable_name": name,
            "name": name,
            "filter_subjects": self._filters,
            "ack_wait": int(self._ack_wait * 1e9),
            "max_ack_pending": MAX_ACK_PENDING,
            "max_waiting": 512,
            "max_deliver": -1,
            **settings,
        }
        try:
            info = await self._bus.api(
                f"CONSUMER.CREATE.{self._stream}.{name}",
                {"stream_name": self._stream, "config": config},
            )
        except Refused as error:
            if error.code == NO_STREAM:
                raise SetupError(f"stream {self._stream} is missing: start `admit up`") from None
            raise
        return int(info.get("num_pending", 0))

    async def delete(self, name: str) -> None:
        """Deletes the consumer of that name. Raises Refused."""
        await self._bus.api(f"CONSUMER.DELETE.{self._stream}.{name}")

    async def family(self) -> list[tuple[int, int, str, int]]:
        """Generation, round, name and floor of every consumer ``<name>-<generation>-<round>``.

        One that no reader of ours can have made is left alone, whatever its name: of a generation
        or a floor behind the end of the stream, or acknowledged in another way."""
        found: list[tuple[int, int, str, int]] = []
        end = -1
        offset = 0
        while True:
            page = await self._bus.api(f"CONSUMER.LIST.{self._stream}", {"offset": offset})
            consumers = page.get("consumers") or []
            for info in consumers:
                stem, _, tail = info["name"].rpartition("-")
                stem, _, generation = stem.rpartition("-")
                made, turn = number(generation), number(tail)
                if stem != self._name or made is None or turn is None:
                    continue
                floor = info["ack_floor"]["stream_seq"]
                start = info["config"].get("opt_start_seq", 1)
                # Without any acknowledgement so far, it stands where it started.
                floor = max(floor, start - 1)
                if end < 0:
                    end = await self._end()
                if why := foreign(info["config"], made, floor, end):
                    self.foreign.add(info["name"])
                    log_set_aside(SetAside(self._stream, info["name"], 0, why))
                    continue
                found.append((made, turn, info["name"], floor))
            offset += len(consumers)
            if not consumers or offset >= page["total"]:
                return found

    async def _end(self) -> int:
        info = await self._bus.api(f"STREAM.INFO.{self._stream}")
        return int(info["state"]["last_seq"])


def foreign(config: Mapping[str, Any], generation: int, floor: int, end: int) -> str:
    """Why no reader of ours can have made a consumer; "": one can."""
    if config.get("ack_policy") != "all" or config.get("deliver_subject"):
        why = "it acknowledges or delivers in another way"
    elif generation > end or floor > end:
        why = f"it names a place behind the end of the stream, {end}"
    else:
        return ""
    return f"a consumer with the name of ours, made by another hand: {why}; remove it"


ACK_WAIT_SECONDS: Final = 30
"""Until an unacknowledged request is redelivered, perhaps to another replica."""


class PeerDurables:
    """The durables of checks or of providers. ``prefix``: of their names. ``filters``: the subjects
    of a durable. ``ack_wait``: seconds until an unacknowledged request is redelivered."""

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
