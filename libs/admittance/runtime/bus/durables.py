"""Creates, finds and deletes consumers of a stream, and the durables of checks and providers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

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
from admittance.runtime.errors import BusRefused, BusUnavailable, SetupError
from admittance.runtime.telemetry.logger import log_set_aside

NO_CONSUMER: Final = 10014
NO_STREAM: Final = 10059
MAX_ACK_PENDING: Final = 20_000
LIST_SECONDS: Final = 10.0
"""Longest wait for a list of consumers."""
CREATE_SECONDS: Final = 5.0
"""Longest wait for a new consumer, if the caller does not say."""


class ListedConsumers(NamedTuple):
    """The server's information about the consumers of a stream. ``missing``: names of consumers
    without information, because a cluster elects their leader.
    """

    found: list[dict[str, Any]]
    missing: list[str]


async def list_consumers(bus: Bus, stream: str) -> list[dict[str, Any]]:
    """The server's information about all consumers of a stream that have a leader. Raises
    BusRefused or BusUnavailable if the server does not list the consumers.
    """
    return (await listed_consumers(bus, stream)).found


async def listed_consumers(bus: Bus, stream: str) -> ListedConsumers:
    """The consumers of a stream. Raises BusRefused or BusUnavailable if the server does not list
    the consumers. A cluster waits up to 4 s for the leaders of consumers.
    """
    listed: list[dict[str, Any]] = []
    missing: list[str] = []
    while True:
        offset = len(listed) + len(missing)
        page = await bus.api(f"CONSUMER.LIST.{stream}", {"offset": offset}, timeout=LIST_SECONDS)
        consumers = page.get("consumers") or []
        without = page.get("missing") or []
        listed += consumers
        missing += without
        if not (consumers or without) or len(listed) + len(missing) >= page["total"]:
            return ListedConsumers(listed, missing)


class Consumers:
    """The consumers of one reader: either one durable ``name``, or several consumers
    ``<name>-<generation>-<n>``.

    ``filters``: the subjects that the consumers read. ``ack_wait``: seconds until an unacknowledged
    delivery is redelivered.
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
        """Names of consumers of the form ``<name>-<generation>-<n>`` that a foreign program
        created.
        """

    async def ensure_durable(self) -> int:
        """Creates the durable or updates its settings. Returns how many facts the durable has to
        deliver. A new durable starts at the first fact. Raises BusRefused, and SetupError if the
        stream is missing.
        """
        start: dict[str, Any] = {"deliver_policy": "all"}
        try:
            info = await self._bus.api(f"CONSUMER.INFO.{self._stream}.{self._name}")
            kept = ("deliver_policy", "opt_start_seq")
            start = {key: info["config"][key] for key in kept if key in info["config"]}
        except BusRefused as error:
            if error.code != NO_CONSUMER:
                raise
        return await self.create(self._name, {"ack_policy": "explicit", **start})

    async def create(
        self, name: str, settings: Mapping[str, Any], *, timeout: float = CREATE_SECONDS
    ) -> int:
        """Creates a consumer. Returns how many facts the consumer has to deliver. Raises what
        `ensure_durable` raises.
        """
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
                timeout=timeout,
            )
        except BusRefused as error:
            if error.code == NO_STREAM:
                raise SetupError(f"stream {self._stream} is missing: start `admit up`") from None
            raise
        return int(info.get("num_pending", 0))

    async def delete(self, name: str) -> None:
        """Deletes a consumer. Raises BusRefused if the server does not delete the consumer."""
        await self._bus.api(f"CONSUMER.DELETE.{self._stream}.{name}")

    async def generations(self) -> list[tuple[int, int, str, int]]:
        """Returns generation, number, name and acknowledged sequence of every consumer
        ``<name>-<generation>-<n>``.

        Leaves out, and logs, consumers that no reader of Admittance can have created
        (`foreign_reason`). Raises BusUnavailable while a cluster elects the leader of such a
        consumer: without its position the reader would begin at an older one.
        """
        known: list[tuple[int, int, str, int]] = []
        end = -1
        listed = await listed_consumers(self._bus, self._stream)
        for name in listed.missing:
            if self._generation_of(name) is not None:
                raise BusUnavailable(f"consumer {name} of {self._stream} has no leader")
        for info in listed.found:
            place = self._generation_of(info["name"])
            if place is None:
                continue
            made, turn = place
            # Before a consumer's first acknowledgement, everything before its start position counts
            # as acknowledged.
            floor = max(info["ack_floor"]["stream_seq"], info["config"].get("opt_start_seq", 1) - 1)
            if end < 0:
                end = await self._end()
            if why := foreign_reason(info["config"], made, floor, end):
                self.foreign.add(info["name"])
                log_set_aside(SetAside(self._stream, info["name"], 0, why))
                continue
            known.append((made, turn, info["name"], floor))
        return known

    def _generation_of(self, name: str) -> tuple[int, int] | None:
        """Generation and number in the name of a consumer; None if the name has another form."""
        stem, _, tail = name.rpartition("-")
        stem, _, generation = stem.rpartition("-")
        made, turn = number(generation), number(tail)
        return None if stem != self._name or made is None or turn is None else (made, turn)

    async def _end(self) -> int:
        info = await self._bus.api(f"STREAM.INFO.{self._stream}")
        return int(info["state"]["last_seq"])


def foreign_reason(config: Mapping[str, Any], generation: int, floor: int, end: int) -> str:
    """Why Admittance cannot have created a consumer with this configuration; empty if it can.
    ``end``: the last sequence in the stream.
    """
    if config.get("ack_policy") != "all" or config.get("deliver_subject"):
        why = "its acknowledgement or delivery policy differs"
    elif generation > end or floor > end:
        why = f"its generation or position is after the last message of the stream, {end}"
    else:
        return ""
    return f"a foreign consumer has a name of Admittance: {why}; delete it"


ACK_WAIT_SECONDS: Final = 30
"""Time until an unacknowledged request is redelivered, perhaps to another replica."""


class ProgramDurables:
    """The durables of all check controllers, or of all providers. ``prefix``: the first part of the
    durables' names. ``filters``: the subjects of a program's durable. ``ack_wait``: seconds until
    an unacknowledged request is redelivered.
    """

    MAX_ACK_PENDING: Final = 5000
    """The most unacknowledged requests of one program. A program that never acknowledges gets these
    requests again every ``ack_wait``, and no others.
    """

    def __init__(
        self,
        prefix: str,
        filters: Callable[[str], list[str]],
        *,
        ack_wait: int = ACK_WAIT_SECONDS,
    ) -> None:
        self._prefix = prefix
        self._filters = filters
        self.ack_wait = ack_wait

    def durable(self, name: str) -> str:
        """The name of the program's durable."""
        return f"{self._prefix}{token(name)}"

    def settings(self, name: str) -> dict[str, Any]:
        """The settings of the program's durable."""
        durable = self.durable(name)
        return {
            "durable_name": durable,
            "name": durable,
            "filter_subjects": self._filters(name),
            "deliver_policy": "new",
            "ack_policy": "explicit",
            "ack_wait": self.ack_wait * 1_000_000_000,
            "max_ack_pending": self.MAX_ACK_PENDING,
            "max_deliver": -1,
            "max_waiting": 512,
        }

    async def make(self, bus: Bus, name: str) -> None:
        """Creates the program's durable, or corrects its settings; a corrected durable keeps its
        position in the log. Raises BusRefused or BusUnavailable if the durable cannot be created or
        corrected.
        """
        wanted = self.settings(name)
        durable = wanted["name"]
        try:
            config = (await bus.api(f"CONSUMER.INFO.{STREAM}.{durable}"))["config"]
        except BusRefused as error:
            if error.code != NO_CONSUMER:
                raise
        else:
            if all(config.get(key) == value for key, value in wanted.items()):
                return
            # nats-server cannot change the start position of an existing consumer.
            begun = ("deliver_policy", "opt_start_seq", "opt_start_time")
            wanted = {
                **{key: value for key, value in wanted.items() if key not in begun},
                **{key: config[key] for key in begun if key in config},
            }
        await bus.api(
            f"CONSUMER.CREATE.{STREAM}.{durable}", {"stream_name": STREAM, "config": wanted}
        )

    async def remove(self, bus: Bus, name: str) -> None:
        """Deletes the program's durable, if it exists."""
        try:
            await bus.api(f"CONSUMER.DELETE.{STREAM}.{self.durable(name)}")
        except BusRefused as error:
            if error.code != NO_CONSUMER:
                raise

    async def existing(self, bus: Bus) -> dict[str, dict[str, Any]]:
        """Returns for each program the server's information about its durable (``num_pending``,
        ``num_ack_pending``, …). Leaves out consumers whose filters are not those of a program's
        durable.
        """
        consumers = await list_consumers(bus, STREAM)
        programs = [(self._program_of(info), info) for info in consumers]
        return {name: info for name, info in programs if name is not None}

    def _program_of(self, info: dict[str, Any]) -> str | None:
        durable = str(info["name"])
        if not durable.startswith(self._prefix):
            return None
        try:
            name = plain(durable.removeprefix(self._prefix))
        except BadToken:
            return None
        read = info["config"].get("filter_subjects") or []
        return name if sorted(read) == sorted(self._filters(name)) else None


check_durables: Final = ProgramDurables(CHECK_DURABLE, check_filters)
"""The durables of check controllers, by controller name."""
provider_durables: Final = ProgramDurables(PROVIDER_DURABLE, provider_filters, ack_wait=6)
"""The durables of providers, by provisioning class. The ``ack_wait`` is short because capacity of a
cancelled request must be freed soon, also if the replica that got the cancellation was killed.
"""
