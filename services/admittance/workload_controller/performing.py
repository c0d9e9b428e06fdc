"""Performs commits, in the order that is told in `commit`."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from functools import partial
from typing import Final

import structlog

from admittance.events.applying import SettledReply
from admittance.runtime import bucket, clock, lease_io
from admittance.runtime.bus import Bus
from admittance.runtime.consume import Bad, bury, persist
from admittance.runtime.errors import StaleRevision, Unavailable
from admittance.runtime.puller import Delivery
from admittance.runtime.tracing import trace_id
from admittance.workload import stored
from admittance.workload.change import with_log
from admittance.workload_controller.commit import Commit, Heard, Message, Put
from admittance.workload_controller.decide import Controller
from admittance.workload_controller.guard import Guard
from admittance.workload_controller.known import Known
from admittance.workload_controller.letters import Letters
from admittance.workload_controller.memory import Memory
from admittance.workload_controller.opening import tell_unreadable
from admittance.workload_controller.puts import Puts
from admittance.workload_controller.stating import echo, state
from admittance.workload_controller.tally import Tally

SERVICE: Final = "workload-controller"
ATTEMPTS: Final = 20
"""Times that a batch is decided anew because somebody else moved its workloads."""
OUTCOMES_MAX: Final = 20_000

log = structlog.get_logger()


class Performing:
    """The commits of one leader. ``outcomes``: what became of the newest facts.
    ``tally`` None: nobody asks for figures."""

    def __init__(
        self,
        bus: Bus,
        controller: Controller,
        guard: Guard,
        puts: Puts,
        memory: Memory,
        tally: Tally | None,
    ) -> None:
        self._bus = bus
        self._controller = controller
        self._guard = guard
        self._puts = puts
        self._memory = memory
        self._tally = tally
        self._letters = Letters()
        self.outcomes: OrderedDict[int, SettledReply] = OrderedDict()

    async def perform(self, batch: list[Heard]) -> None:
        """The order of a commit is told in `commit`."""
        controller = self._controller
        rest = batch
        attempts = 0
        loaded: dict[str, None] = {}
        """Read from the bucket for this batch: of those that have ended nobody holds on to them."""
        while rest:
            now = clock.now()
            for key in controller.missing(rest):
                loaded[key] = None
                await persist(partial(self._reload, key))
            commit = controller.fold(rest, now)
            letters = self._letters.of(commit.dead, clock.monotonic()) if commit.dead else []
            bad = [Bad(_delivery(one.heard), one.reason) for one in letters]
            await bury(self._bus, SERVICE, bad)
            await state(self._bus, commit.notes)
            done, unsure = await self._put(commit, now)
            if unsure:
                attempts += 1
                if attempts > ATTEMPTS:
                    raise RuntimeError(f"{len(unsure)} workloads keep moving under the batch")
                loaded |= dict.fromkeys(unsure)
                await state(self._bus, done)
                continue
            await state(self._bus, done)
            for key in (*loaded, *(put.key for put in commit.puts)):
                controller.said(key)
            await persist(partial(echo, self._bus, commit.echoes))
            self._note(commit)
            if self._tally is not None:
                self._tally.settled(controller, rest, commit.outcomes)
            rest = commit.rest

    async def _put(self, commit: Commit, now: datetime) -> tuple[list[Message], list[str]]:
        """What the puts that went through have to say, and the keys that must be decided anew."""
        controller = self._controller
        messages: list[Message] = []
        unsure: list[str] = []
        written: list[tuple[str, int]] = []
        for put, outcome in await self._puts.write(commit.puts):
            if isinstance(outcome, int):
                written.append((put.key, outcome))
                if self._tally is not None and put.workload is not None:
                    before = controller.workloads.get(put.key).workload
                    self._tally.written(controller, before, put.workload)
                messages += controller.committed(put, outcome, now)
                _tell(put, outcome)
            elif outcome is None or isinstance(outcome, StaleRevision):
                await persist(partial(self._reload, put.key))
                # Our own put, after all, or that of a predecessor who may not have said what
                # follows from it. And what came behind it in the batch was judged by what we knew:
                # a decision made from that very put would be dropped, and assumed for ever.
                messages += controller.outbox(put.key, now)
                unsure.append(put.key)
            else:
                raise outcome
        self._memory.note(commit.through, now, written, unsure)
        return messages, unsure

    async def _reload(self, key: str) -> None:
        controller = self._controller
        before = controller.workloads.get(key)
        entry = await bucket.get(self._bus, key)
        if entry is None:
            controller.workloads.gone(key)
            return
        controller.load(entry.key, entry.value, entry.revision, entry.headers)
        known = controller.workloads.get(key)
        if known.fact > controller.read:
            controller.limit_fact(key, await lease_io.end_of_log(self._bus))
        tell_unreadable(controller)
        if known.unreadable and before.workload is not None:
            await self._mend(key, before, entry.revision)

    async def _mend(self, key: str, before: Known, revision: int) -> None:
        """Writes a workload over what cannot be read at its key. Only the leader knows how it was:
        so with the guard, which a leader that was superseded does not hold. What it had to say is
        said. Raises StaleRevision or Unavailable; Superseded."""
        assert before.workload is not None, "the caller looked"
        workload = with_log(before.workload, before.fact, ())
        put = bucket.put_message(key, stored.encode(workload), expected=revision)
        try:
            written = await self._guard.write([put])
        except (StaleRevision, Unavailable):
            await self._guard.take()
            raise
        self._controller.workloads.keep(key, Known(workload, written, before.fact, before.trace))
        log.warning("workload_mended", key=key, revision=written)

    def _note(self, commit: Commit) -> None:
        self.outcomes.update(commit.outcomes)
        while len(self.outcomes) > OUTCOMES_MAX:
            self.outcomes.popitem(last=False)


def _tell(put: Put, revision: int) -> None:
    """The one log line of a workload's write: what follows from it, or that it was noted."""
    _, namespace, name = put.key.split(".")
    says = put.workload.status.log.says if put.workload is not None else ()
    what = [say.what for say in says if not say.what.startswith("check_")]
    # What follows from nothing but a fact that everybody heard is told to who looks closely.
    tell = log.info if what else log.debug
    tell(
        f"workload_{what[-1]}" if what else "workload_written",
        namespace=namespace,
        workload=name,
        revision=revision,
        fact=put.fact,
        trace=trace_id(put.trace),
    )


def _delivery(heard: Heard) -> Delivery:
    return Delivery(heard.subject, heard.data, heard.headers, heard.sequence)
