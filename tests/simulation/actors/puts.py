"""The puts of a commit, as `admittance.workload_controller.commit_writer` has them written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

from admittance.control.commit import Put
from admittance.control.controller import HEADER_FACT
from admittance.workload_controller.commit_writer import packed, parted
from simulation.actors.service import Service
from simulation.link import Unavailable
from simulation.stream import EXPECTED, OPERATION, Outgoing, Refused

BATCH: Final = 1000

Outcome: TypeAlias = int | Refused | None
"""The revision of a put, why it was refused, or None: that is unknown."""


class Puts:
    """Writes workloads."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._server = service.server
        self._link = service.link

    def write(self, puts: Sequence[Put]) -> Any:
        """What became of each: first of those that go alone, then group by group."""
        if not puts:
            return []
        alone, groups = parted(puts)
        outcomes: list[Outcome] = []
        if alone:
            try:
                outcomes += yield from self._link.publish_all(
                    self._server.bucket.publish, [_put_of(put) for put in alone]
                )
            except Unavailable:
                outcomes += [None] * len(alone)
        for batch in packed(groups, BATCH):
            outcomes += yield from self.together(batch)
        return list(zip([*alone, *chain.from_iterable(groups)], outcomes, strict=True))

    def together(self, groups: list[list[Put]]) -> Any:
        """Each group as a whole or not at all: in one batch, and if that is refused, each alone."""
        puts = list(chain.from_iterable(groups))
        if not self._service.mechanisms.joint:
            # Torn: each put goes for itself, the one who gets before those who give.
            messages = [_put_of(put) for put in reversed(puts)]
            try:
                torn = yield from self._link.publish_all(self._server.bucket.publish, messages)
            except Unavailable:
                return [None] * len(puts)
            return torn[::-1]
        batch = [_put_of(put) for put in puts]
        try:
            (last,) = yield from self._link.publish_all(
                lambda _: self._server.bucket.atomic(batch), batch[-1:]
            )
        except Unavailable:
            return [None] * len(puts)
        if not isinstance(last, Refused):
            self._service.tell(f"wrote {len(puts)} workloads in one batch")
            return list(range(last - len(puts) + 1, last + 1))
        if len(groups) == 1:
            return [last] * len(puts)
        outcomes: list[Outcome] = []
        for group in groups:
            outcomes += yield from self.together([group])
        return outcomes


def _put_of(put: Put) -> Outgoing:
    headers = {EXPECTED: str(put.expected)}
    if put.value is None:
        return Outgoing(put.key, b"", {**headers, HEADER_FACT: str(put.fact), OPERATION: "DEL"})
    return Outgoing(put.key, put.value, headers)
