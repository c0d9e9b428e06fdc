"""What is to be done so that every reservation has its request, and nobody else has one. Pure.

It follows from what is stored, and not from what was heard: a message that is lost, doubled or late
changes nothing, and whoever takes over goes on. LIFECYCLE 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heappop
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.meta import ObjectMeta, OwnerReference
from admittance.api.stored_form import spec_of
from admittance.api.workload import CheckState
from admittance.events.provisioning import (
    ProvisioningCancelled,
    ProvisioningStatus,
)
from admittance.events.shapes import PodSetToProvision
from admittance.provisioning import answers
from admittance.provisioning.answers import Answer, answer
from admittance.provisioning.asking import Unanswerable, asked, parameters_of, too_much, uses
from admittance.provisioning.names import request_id, request_name
from admittance.provisioning.records import Record, RecordSpec, State, noted, take
from admittance.provisioning_check.acts import About, Slot, Step, Tell, Write
from admittance.provisioning_check.asks import cancelled, requested
from admittance.provisioning_check.picture import Kept, Picture, is_open
from admittance.provisioning_check.standing import differs, is_late, is_of, runs, unwanted
from admittance.workload.conditions import Type, is_true
from admittance.workload.holding import is_reserved_anew
from admittance.workload.rows import row_of
from admittance.workload.stored import StoredWorkload

API: Final = "autoscaling.x-k8s.io/v1"
VALID_UNTIL: Final = "ValidUntilSeconds"
"""Parameter: how long the provider may try."""


class Said(NamedTuple):
    """What a check was told, and the row that showed something else then: a row that is made anew
    is told anew."""

    tell: Tell
    state: str
    since: datetime | None


class Capacity:
    """All requests, and what leads from what is stored to what should be.

    ``patience``: how long a provider may take where the parameters do not tell; None: for ever.
    """

    def __init__(self, patience: timedelta | None) -> None:
        self.picture = Picture()
        self._patience = patience
        self._flying: dict[Slot, Step] = {}
        self._asked: set[str] = set()
        """Ids that were said to providers since we lead: what is open is said once more then."""
        self._freed: set[str] = set()
        """Ids that were taken back since we lead."""
        self._told: dict[Slot, Said] = {}
        self._past: dict[Slot, tuple[str, int, int]] = {}
        """Uid, cycle and generation of the last request that was there and is gone."""

    # What is to be done. --------------------------------------------------------------------

    def steps(self, now: datetime) -> Iterator[Step]:
        """What is to be done now, one step of a slot at a time; each to be answered by `done` or
        `failed`."""
        picture = self.picture
        for slot in list(picture.dirty):
            if slot in self._flying:
                continue
            del picture.dirty[slot]
            step = self._step(slot, now)
            if step is not None:
                self._flying[slot] = step
                yield step

    def done(self, step: Step, revision: int = 0) -> None:
        """All of it is on the bus; ``revision``: of what was written."""
        slot = step.slot
        self._flying.pop(slot, None)
        if step.write is not None:
            name = slot.namespace, step.write.name
            kept = self.picture.records.get(slot)
            if step.write.record is None and kept is not None:
                self._ended(slot, kept.record)
            self.picture.wrote(slot, name, step.write.record, revision)
        if isinstance(step.fact, ProvisioningCancelled):
            self._freed.add(step.fact.id)
        elif step.fact is not None:
            self._asked.add(step.fact.id)
        if step.tell is not None:
            row = self._row(slot)
            if row is not None:
                self._told[slot] = Said(step.tell, row.state, row.last_transition_time)
        self.picture.dirty[slot] = None

    def failed(self, step: Step) -> None:
        """Somebody else wrote, or nobody knows what became of it: the slot is looked at again, once
        the bucket has told."""
        self._flying.pop(step.slot, None)
        self.picture.dirty[step.slot] = None

    def due(self, now: datetime) -> None:
        """Requests whose time has come are looked at."""
        deadlines = self.picture.deadlines
        while deadlines and deadlines[0][0] <= now:
            self.picture.dirty[heappop(deadlines)[1]] = None

    def wake(self) -> datetime | None:
        """When the next request may be late; None: none has a deadline."""
        deadlines = self.picture.deadlines
        return deadlines[0][0] if deadlines else None

    @property
    def is_busy(self) -> bool:
        """Something is under way, or is to be looked at."""
        return bool(self._flying or self.picture.dirty)

    def is_foreign(self, fact: ProvisioningStatus) -> bool:
        """It is about no request that we can have made: not merely late."""
        work = self.picture.works.get((fact.namespace, fact.name))
        uid = fact.id.partition("/")[0]
        if work is None:
            return fact.id.count("/") < 3
        return uid != work.metadata.uid and (not fact.uid or fact.uid == work.metadata.uid)

    def records_of_class(self, provisioning_class: str) -> list[Record]:
        """The requests of that class that were not taken back."""
        return [
            kept.record
            for kept in self.picture.records.values()
            if kept.record.spec.provisioning_class_name == provisioning_class
            and not kept.record.status.cancelled
        ]

    def unheard(self, record_id: str) -> None:
        """The provider does not know that request: it is asked once more."""
        self._asked.discard(record_id)
        for slot, kept in self.picture.records.items():
            if kept.record.spec.id == record_id:
                self.picture.dirty[slot] = None

    # What providers say. --------------------------------------------------------------------

    def heard(self, fact: ProvisioningStatus, now: datetime) -> tuple[Step | None, str]:
        """What an answer of a provider leads to: a step that keeps it, or why it counts for
        nothing, and then perhaps a step that notes that. Nobody's answers are kept while a step of
        their slot is under way: then the reason is "busy", and it is to be said again."""
        found = next(
            (
                (slot, kept)
                for slot, kept in self._of(fact.namespace, fact.name)
                if kept.record.spec.id == fact.id
            ),
            None,
        )
        if found is None:
            why = f"no request {fact.id} of {fact.namespace}/{fact.name} is open"
            others = next(iter(self._of(fact.namespace, fact.name)), None)
            if others is None or not self.is_foreign(fact):
                return None, why
            return self._note(*others, fact, why, now)
        slot, kept = found
        asked_of = kept.record.spec.provisioning_class_name
        if asked_of != fact.provisioning_class:
            return self._note(slot, kept, fact, f"{fact.id} was asked of {asked_of}", now)
        if slot in self._flying:
            return None, "busy"
        taken = take(kept.record, fact, now)
        if taken.contradicts:
            return self._note(slot, kept, fact, taken.ignored, now)
        if taken.ignored:
            return None, taken.ignored
        record = taken.record
        config = self.picture.config_of(slot.check)
        if config is not None and record.status.state is State.PROVISIONED:
            for name in answers.updates_of(record, config)[1]:
                record = noted(record, f"the provider told no detail {name!r}: left out", now)
        return self._keeps(slot, kept, record), ""

    def _note(
        self, slot: Slot, kept: Kept, fact: ProvisioningStatus, why: str, now: datetime
    ) -> tuple[Step | None, str]:
        """What does not count is noted where people look for it, once."""
        if slot in self._flying:
            return None, "busy"
        said = f"{type(fact).__name__} of class {fact.provisioning_class} does not count: {why}"
        record = noted(kept.record, said, now)
        return (None if record is kept.record else self._keeps(slot, kept, record)), why

    def _keeps(self, slot: Slot, kept: Kept, record: Record) -> Step:
        step = Step(slot, Write(record.metadata.name, record, kept.revision))
        self._flying[slot] = step
        return step

    def _row(self, slot: Slot) -> CheckState | None:
        work = self.picture.works.get((slot.namespace, slot.workload))
        return row_of(work.status.admission_checks, slot.check) if work is not None else None

    def _of(self, namespace: str, workload: str) -> Iterator[tuple[Slot, Kept]]:
        for slot in self.picture.slots_of((namespace, workload)):
            yield slot, self.picture.records[slot]

    # One slot. ------------------------------------------------------------------------------

    def _step(self, slot: Slot, now: datetime) -> Step | None:
        picture = self.picture
        kept = picture.records.get(slot)
        work = picture.works.get((slot.namespace, slot.workload))
        row = self._row(slot)
        ours = slot.check in picture.checks
        if kept is not None:
            why = unwanted(kept.record, work, row if ours else None)
            if kept.record.status.cancelled or why:
                return self._end(slot, kept, why, work, row, now)
        lost = self._lost(slot, work, row if ours else None, kept)
        if lost is not None:
            return lost
        if work is None or row is None or not ours or not is_reserved_anew(work):
            self._told.pop(slot, None)
            if work is None and kept is None:
                self._past.pop(slot, None)
            return None
        if row.state not in ("Pending", "Ready"):
            return None
        return self._serve(slot, work, row, kept, now)

    def _lost(
        self, slot: Slot, work: StoredWorkload | None, row: CheckState | None, kept: Kept | None
    ) -> Step | None:
        """Of requests that somebody else deleted, or wrote another over: the one that is waited for
        is written again as it was; what others have booked is freed."""
        picture = self.picture
        while slot in picture.lost:
            record = picture.lost[slot][-1]
            wanted = not record.status.cancelled and not unwanted(record, work, row)
            if wanted and kept is None and not self._is_ready(slot, work, row):
                expected = picture.expected(slot, record.metadata.name)
                return Step(slot, Write(record.metadata.name, record, expected))
            stands = kept is not None and kept.record.spec.id == record.spec.id
            if not stands and record.spec.id not in self._freed:
                return Step(slot, fact=cancelled(record, answers.DELETED))
            if not stands:
                self._freed.discard(record.spec.id)
                self._asked.discard(record.spec.id)
            picture.found(slot, record)
            self._ended(slot, record)
        return None

    def _ended(self, slot: Slot, record: Record) -> None:
        """Its id is used up."""
        self._past[slot] = record.spec.uid, record.spec.cycle, record.metadata.generation

    def _is_ready(self, slot: Slot, work: StoredWorkload | None, row: CheckState | None) -> bool:
        """The check is Ready, or was told so and does not show it yet."""
        if work is None or row is None or row.state == "Ready":
            return row is not None
        said = self._told.get(slot)
        return (
            said is not None
            and said.tell.answer.state == "Ready"
            and said.tell.about == About(work.metadata.uid, work.status.admission_cycle)
            and (said.state, said.since) == (row.state, row.last_transition_time)
        )

    def _end(
        self,
        slot: Slot,
        kept: Kept,
        why: str,
        work: StoredWorkload | None,
        row: CheckState | None,
        now: datetime,
    ) -> Step | None:
        """Nobody needs the request: it is written that it is taken back, the provider is told, and
        then it is gone, unless another one takes its place."""
        record = kept.record
        if not record.status.cancelled:
            ended = replace(record, status=replace(record.status, cancelled=why))
            return Step(slot, Write(record.metadata.name, ended, kept.revision))
        if record.spec.id not in self._freed:
            return Step(slot, fact=cancelled(record))
        if work is not None and row is not None and not why and is_reserved_anew(work):
            return self._serve(slot, work, row, kept, now)
        judged = row is not None and row.state in ("Retry", "Rejected")
        if work is not None and not judged and is_of(record, work) and is_reserved_anew(work):
            # It stays until the reservation ends: who asks for it again has to use another id.
            return None
        self._freed.discard(record.spec.id)
        self._asked.discard(record.spec.id)
        return Step(slot, Write(record.metadata.name, None, kept.revision))

    def _serve(
        self,
        slot: Slot,
        work: StoredWorkload,
        row: CheckState,
        kept: Kept | None,
        now: datetime,
    ) -> Step | None:
        """A reservation that the check has to judge, or has judged."""
        config = self.picture.config_of(slot.check)
        open_ = kept if kept is not None and not kept.record.status.cancelled else None
        if self._is_ready(slot, work, row):
            # Whatever becomes of the configuration, it keeps what it has; what is deleted by hand
            # is not made anew.
            if open_ is None:
                return None
            given = config or ProvisioningRequestConfigSpec()
            return self._tell(slot, work, row, answer(open_.record, given, admitted=runs(work)))
        if config is None:
            if open_ is not None:
                return self._cancel(slot, open_, answers.NOT_ACTIVE)
            return self._tell(slot, work, row, Answer("Pending", answers.NOT_ACTIVE))
        if open_ is None:
            return self._ask(slot, work, row, kept, config, now)
        record = open_.record
        if is_late(record, now):
            return self._too_late(slot, open_)
        if record.status.state is not State.PROVISIONED and differs(record, config, work):
            return self._cancel(slot, open_, "the configuration changed")
        if not self._is_needed(work, config):
            return self._cancel(slot, open_, answers.NOT_NEEDED)
        if record.spec.id not in self._asked and is_open(record):
            return Step(slot, fact=requested(record))
        if record.status.state is State.BOOKING_EXPIRED and is_true(work, Type.ADMITTED):
            return None  # It runs, and got the check only then.
        return self._tell(slot, work, row, answer(record, config, admitted=False))

    def _ask(
        self,
        slot: Slot,
        work: StoredWorkload,
        row: CheckState,
        before: Kept | None,
        config: ProvisioningRequestConfigSpec,
        now: datetime,
    ) -> Step | None:
        spec = spec_of(work.spec)
        flavors = self.picture.flavors
        try:
            wanted = asked(spec.pod_sets, work.status.admission, config, flavors.get)
        except Unanswerable as error:
            return self._tell(slot, work, row, Answer("Pending", str(error)))
        if not wanted:
            return self._tell(slot, work, row, Answer("Ready", answers.NOT_NEEDED))
        wrong = too_much(parameters_of(config, work.metadata.annotations))
        if wrong:
            # It would be so at every attempt.
            return self._tell(slot, work, row, Answer("Rejected", wrong))
        record = self._record(slot, work, row, before, config, wanted, now)
        expected = self.picture.expected(slot, record.metadata.name)
        if before is not None:
            if before.record.metadata.name != record.metadata.name:
                return Step(slot, Write(before.record.metadata.name, None, before.revision))
            expected = before.revision
        return Step(slot, Write(record.metadata.name, record, expected), requested(record))

    def _is_needed(self, work: StoredWorkload, config: ProvisioningRequestConfigSpec) -> bool:
        """Some of its pods use what is managed, as far as that may change within a reservation."""
        if not config.managed_resources:
            return True
        pod_sets = spec_of(work.spec).pod_sets
        return any(one.count > 0 and uses(one, config.managed_resources) for one in pod_sets)

    def _record(
        self,
        slot: Slot,
        work: StoredWorkload,
        row: CheckState,
        before: Kept | None,
        config: ProvisioningRequestConfigSpec,
        wanted: tuple[PodSetToProvision, ...],
        now: datetime,
    ) -> Record:
        meta, cycle, attempt = work.metadata, work.status.admission_cycle, row.retry_count + 1
        identity = request_id(meta.uid, slot.check, cycle, attempt)
        name = request_name(meta.name, meta.uid, slot.check, attempt)
        # In place of one that was taken back in the same cycle: another request.
        generation = 1
        past = self._past.get(slot)
        if before is not None and before.record.spec.cycle == cycle:
            generation = before.record.metadata.generation + 1
        elif past is not None:
            generation = past[2] + 1 if past[:2] == (meta.uid, cycle) else 1
        else:
            # There was one before our time, and nobody knows which: no id of it is used again.
            generation = self.picture.expected(slot, name) or 1
        if generation > 1 and before is not None:
            name = before.record.metadata.name
        elif self.picture.taken.get((slot.namespace, name), slot) != slot:
            name = request_name(meta.name, meta.uid, slot.check, attempt, force_hash=True)
        parameters = parameters_of(config, meta.annotations)
        return Record(
            api_version=API,
            kind="ProvisioningRequest",
            metadata=ObjectMeta(
                name=name,
                namespace=slot.namespace,
                generation=generation,
                creation_timestamp=now,
                owner_references=(
                    OwnerReference(
                        api_version=work.api_version, kind="Workload", name=meta.name, uid=meta.uid
                    ),
                ),
            ),
            spec=RecordSpec(
                id=identity if generation == 1 else f"{identity}~{generation}",
                workload=meta.name,
                uid=meta.uid,
                check=slot.check,
                cycle=cycle,
                attempt=attempt,
                provisioning_class_name=config.provisioning_class_name,
                parameters=parameters,
                pod_sets=wanted,
                deadline=self._deadline(parameters, now),
            ),
        )

    def _deadline(self, parameters: dict[str, str], now: datetime) -> datetime | None:
        written = parameters.get(VALID_UNTIL, "")
        seconds = int(written) if written.isascii() and written.isdecimal() else 0
        try:
            if seconds:
                return now + timedelta(seconds=seconds)
            return now + self._patience if self._patience is not None else None
        except OverflowError:
            return None

    def _too_late(self, slot: Slot, kept: Kept) -> Step:
        record = kept.record
        message = f"not provisioned by {record.spec.deadline:%Y-%m-%dT%H:%M:%SZ}"
        late = replace(record.status, state=State.FAILED, message=message)
        return Step(slot, Write(record.metadata.name, replace(record, status=late), kept.revision))

    def _cancel(self, slot: Slot, kept: Kept, why: str) -> Step:
        record = kept.record
        ended = replace(record, status=replace(record.status, cancelled=why))
        return Step(slot, Write(record.metadata.name, ended, kept.revision))

    def _tell(
        self, slot: Slot, work: StoredWorkload, row: CheckState, found: Answer | None
    ) -> Step | None:
        if found is None or (found.state == row.state and found.message == row.message):
            return None
        tell = Tell(About(work.metadata.uid, work.status.admission_cycle), found)
        said = Said(tell, row.state, row.last_transition_time)
        return None if self._told.get(slot) == said else Step(slot, tell=tell)
