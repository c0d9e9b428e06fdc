"""Folds the facts of a batch, one after the other, into a commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from admittance.control import decision_guard
from admittance.control.commit import Commit, Echo, LogMessage, Message, Put, RejectedMessage
from admittance.control.controller import Controller
from admittance.control.decision_guard import why_void
from admittance.control.manifests.affected_workloads import (
    affected_workloads,
    checks_by_parameters,
    read_change,
)
from admittance.control.user_requests import submissions
from admittance.control.user_requests.intake import enter
from admittance.control.user_requests.people import fact_of, is_of_owner, not_owned, user_behind
from admittance.control.user_requests.submissions import InvalidSubmission
from admittance.control.workloads import BatchFamilies, FamilyRef, VersionedWorkload
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.events.codec import Undecodable
from admittance.events.names import token
from admittance.events.reader import BROKEN, Reader, Unreadable, reason_of
from admittance.events.requests.history import SettledReply
from admittance.events.span_ids import first_traceparent
from admittance.events.subjects import BARRIER, workload_key
from admittance.events.system import Barrier, DeadLetterReason, ObjectApplied
from admittance.lease import Fence
from admittance.object_errors import ObjectError
from admittance.workload import stored
from admittance.workload.arrays.elements import element_of
from admittance.workload.arrays.moves import with_gone_element
from admittance.workload.change import Change, FactOutcome, ignored, refused, with_log
from admittance.workload.conditions import Type, is_true
from admittance.workload.families.reconcile import family_transition, single_transition
from admittance.workload.moves.requests import Arrived
from admittance.workload.quota_release import with_release
from admittance.workload.stored import OutboxEntry, StoredWorkload
from admittance.workload.transition_context import QueueChanged, TransitionContext

VALUE_MAX: Final = 900_000
"""The most bytes of a stored object. nats-server accepts messages of up to 1 MiB, and a message
about the object is about as long as the object."""
GROUPED_MAX: Final = 500
"""The most objects in one group of puts: an atomic batch has room for a group and a family."""
EARLY: Final = timedelta(seconds=1)
"""How much earlier than the timer's set time the bus may publish a timer message."""
SMALL: Final = 8 * 1024
"""A fact of up to this many bytes is always applied: `VALUE_MAX` leaves room for such facts, so a
full object can still be stopped, finished and deleted."""

_FOR_PEOPLE: Final = frozenset({"pending", "requeued"})
"""Kinds of outbox entries that people read: of several in one put only the last one matters. All
other kinds are read by services, and are published before the workload changes again."""

_NO_OUTCOME: Final = SettledReply()
_UNDECODABLE: Final = DeadLetterReason.UNDECODABLE

_barrier = Reader(Barrier)


class NotFolded(Exception):
    """The error that the batch must be folded again without a fact, which raised an exception."""

    def __init__(self, sequence: int, reason: Exception) -> None:
        super().__init__(f"fact {sequence}: {reason!r}")
        self.sequence = sequence
        self.reason = reason


class BatchFold:
    """Folds one batch of log messages into a commit."""

    def __init__(
        self, state: Controller, now: datetime, measured: frozenset[str] = frozenset()
    ) -> None:
        """``measured``: keys of objects that became too long, and that are measured after each
        fact."""
        self._measured = measured
        self._state = state
        self._now = now
        self._working: dict[str, VersionedWorkload] = {}
        self._outboxes: dict[str, tuple[OutboxEntry, ...]] = {}
        self._groups: dict[str, int] = {}
        self._group_members: dict[int, list[str]] = {}
        self._families = BatchFamilies(state.workloads, self._known)
        self._notes: list[Message] = []
        self._dead: list[RejectedMessage] = []
        self._echoes: list[Echo] = []
        self._outcomes: dict[int, SettledReply] = {}
        self._applied = 0

    def take(self, logged: LogMessage) -> bool:
        """Folds one message of the log into the commit. Returns False if the message must wait for
        the commit of earlier messages."""
        if logged.subject.startswith(BARRIER):
            return self._barrier(logged)
        if logged.subject.startswith("admit.object."):
            return self._object_changed(logged)
        try:
            fact = fact_of(logged)
        except Undecodable as error:
            self._bury(logged, str(error))
            return True
        key = workload_key(fact.namespace, fact.name)
        if self._must_wait(fact, key):
            return False
        known = self._known(key)
        if logged.sequence <= known.fact:
            return True
        valid = self._let_in(fact, key, known, logged)
        return valid is None or self._fold_fact(valid, key, known, logged)

    def _must_wait(self, fact: Fact, key: str) -> bool:
        """Whether an outbox that services read must be published before the fact is folded."""
        keys = (key, *decision_guard.keys_of(fact)) if isinstance(fact, facts.Assigned) else (key,)
        return any(map(self._has_machine_entry, keys))

    def _let_in(
        self, fact: Fact, key: str, known: VersionedWorkload, logged: LogMessage
    ) -> Fact | None:
        """Returns the fact as it is to be folded; None: the fact is settled, because it may not
        change the workload, or has nothing to change."""
        if is_of_owner(logged) and (foreign := not_owned(user_behind(logged), fact, self._known)):
            self._note_outcome(logged, refused(known.workload, reasons.NOT_OWNER, foreign))
            if isinstance(fact, facts.Submitted):
                self._reject(logged, fact, reasons.NOT_OWNER, foreign)
            return None
        if known.unreadable and isinstance(fact, facts.Deleted):
            # An unreadable workload counts as absent; deleting the workload frees its name.
            self._apply(key, known, Change(None), logged)
            return None
        if isinstance(fact, facts.Submitted):
            return self._enter(fact, logged, known)
        if not isinstance(fact, facts.Decision):
            return fact
        void = why_void(self._state, fact, known, logged.fence, changed=key in self._working)
        if void is None:
            return fact
        self._note_outcome(logged, void)
        if void.reason == reasons.OUT_OF_DATE:
            # The scheduler may not have seen the change, or not as a change in the workload's tree.
            self._write_unchanged(key, known, logged)
        return None

    def _fold_fact(
        self, fact: Fact, key: str, known: VersionedWorkload, logged: LogMessage
    ) -> bool:
        """Folds a fact that `_let_in` has let in. Returns False if the fact must wait for the
        commit of earlier messages."""
        is_decision = isinstance(fact, facts.Decision)
        change, relatives = self._transition(key, known, fact, logged)
        relatives |= self._arrays_of_gone({key: change, **relatives})
        if relatives and (
            any(map(self._has_machine_entry, relatives)) or self._is_crowded([key, *relatives])
        ):
            return False
        if is_decision and change.outcome is not FactOutcome.APPLIED:
            # The scheduler assumes the decision until it reads a later revision of the workload.
            self._note_outcome(logged, change)
            change = Change(known.workload, (), FactOutcome.APPLIED, change.reason, change.message)
        givers: list[decision_guard.Giver] = []
        if isinstance(fact, facts.Assigned) and change.outbox:
            invalid = decision_guard.moved_sibling(fact, self._known, self._working.__contains__)
            if fact.preempts and not invalid:
                givers, invalid = self._givers(fact, logged)
            if invalid:
                self._note_outcome(logged, ignored(known.workload, reasons.STALE_GIVER, invalid))
                self._write_unchanged(key, known, logged)
                return True
        length = self._excess(key, change, logged)
        if length:
            self._bury(logged, f"the object would be {length} bytes long, {VALUE_MAX} are allowed")
            if not is_decision:
                return True
            change, givers, relatives = Change(known.workload), [], {}
        self._report(fact, change, logged)
        if change.outcome is FactOutcome.APPLIED:
            for giver in givers:
                self._apply(giver.key, giver.known, giver.change, logged)
            self._apply(key, known, change, logged)
        for other, made in relatives.items():
            self._apply(other, self._known(other), made, logged)
        if givers or relatives:
            self._group([*(giver.key for giver in givers), key, *relatives], logged)
        return True

    def undo(self) -> None:
        """Takes back what the batch has changed of the bookings, so that it can be folded again."""
        for key in self._working:
            self._state.workloads.bookings.note(key, self._state.workloads.get(key).workload)

    def commit(self, rest: list[LogMessage], through: int) -> Commit:
        """The commit of everything folded so far."""
        puts = []
        for key, known in self._working.items():
            before = self._state.workloads.get(key)
            group = self._groups.get(key, 0)
            if known.workload is None:
                # Delete also a workload created and deleted within the batch, because a late write
                # of a previous leader that read half of the batch would create the workload.
                puts.append(Put(key, before.revision, None, known.fact, known.trace, None, group))
                continue
            workload = with_log(known.workload, known.fact, self._outboxes.get(key, ()))
            try:
                value = stored.encode(workload)
            except Exception as error:
                raise NotFolded(known.fact, error) from error
            puts.append(Put(key, before.revision, value, known.fact, known.trace, workload, group))
        return Commit(puts, self._notes, self._dead, self._echoes, self._outcomes, through, rest)

    # Steps. -------------------------------------------------------------------------

    def _enter(
        self, fact: facts.Submitted, logged: LogMessage, known: VersionedWorkload
    ) -> Fact | None:
        """The submission as a fact; None: it is refused, and a note says why, or changes
        nothing."""
        try:
            entered = enter(
                fact, logged, known.workload, self._state, self._families, self._known, self._now
            )
        except InvalidSubmission as error:
            self._bury(logged, str(error), DeadLetterReason.INVALID)
            self._reject(logged, fact, "Invalid", str(error))
            return None
        if isinstance(entered, Fact):
            return entered
        self._note_outcome(logged, entered)
        if entered.outcome is FactOutcome.REFUSED:
            self._reject(logged, fact, entered.reason, entered.message)
        return None

    def _transition(
        self, key: str, known: VersionedWorkload, fact: Fact, logged: LogMessage
    ) -> tuple[Change, dict[str, Change]]:
        """The change of the workload, and the changes of other family members by key; all are
        committed together. If the transition raises, the fact is ignored for this workload: the
        stored object may come from another program, and must not stop all other workloads."""
        try:
            return self._transitions(key, known, fact, logged)
        except AssertionError:
            raise  # Only this service writes states: the whole fact is set aside.
        except Exception as error:
            if not isinstance(error, BROKEN):
                self._state.errors.append(ObjectError("apply a fact", key, error))
            why = f"it cannot be applied to {key}: {type(error).__name__}: {reason_of(error)}"
            word = DeadLetterReason.LEADS_TO_NOTHING
            if self._outcomes.get(logged.sequence, _NO_OUTCOME).reason != word:
                self._bury(logged, why, word)
            return ignored(known.workload, word, why), {}

    def _transitions(
        self, key: str, known: VersionedWorkload, fact: Fact, logged: LogMessage
    ) -> tuple[Change, dict[str, Change]]:
        context = self._context(fact, logged)
        ref = self._families.ref(key)
        if ref is None or known.workload is None:
            return single_transition(known.workload, fact, context), {}
        if key != ref.parent and is_true(known.workload, Type.FINISHED):
            # A finished variant is held until its outbox is published, but is not in its family.
            return single_transition(known.workload, fact, context), {}
        meta = known.workload.metadata
        made = family_transition(self._families.members(ref), meta.name, fact, context)
        return made.own, {
            workload_key(meta.namespace, name): change for name, change in made.others.items()
        }

    def _arrays_of_gone(self, changes: Mapping[str, Change]) -> dict[str, Change]:
        """The changes of arrays, by key, of which elements leave the bucket by these changes."""
        arrays: dict[str, Change] = {}
        for key, change in changes.items():
            gone = self._known(key).workload
            if gone is None or change.workload is not None or change.outcome is FactOutcome.IGNORED:
                continue
            element = element_of(gone)
            if element is None:
                continue
            owner = workload_key(gone.metadata.namespace, element.array)
            array = self._known(owner).workload
            if array is None or array.metadata.uid != element.uid:
                continue
            counted = with_gone_element(array, gone)
            if counted is not None:
                arrays[owner] = counted
        return arrays

    def _is_crowded(self, keys: Iterable[str]) -> bool:
        """Whether a group of puts with these keys would be too large. Without the changes of
        earlier messages the group is never too large, so it is enough to wait for their commit."""
        groups = {group for key in keys if (group := self._groups.get(key))}
        return sum(len(self._group_members[group]) for group in groups) > GROUPED_MAX

    def _group(self, keys: list[str], logged: LogMessage) -> None:
        """Puts the keys into one group of puts, merged with the groups that they are already in."""
        keys = [key for key in dict.fromkeys(keys) if key in self._working]
        if len(keys) < 2:
            return
        old = {group for key in keys if (group := self._groups.get(key))}
        number = min(old, default=logged.sequence)
        members = self._group_members.setdefault(number, [])
        for group in old - {number}:
            members += self._group_members.pop(group)
        members += [key for key in keys if self._groups.get(key) is None]
        self._groups.update(dict.fromkeys(members, number))

    def _known(self, key: str) -> VersionedWorkload:
        return self._working.get(key) or self._state.workloads.get(key)

    def _has_machine_entry(self, key: str) -> bool:
        return any(entry.what not in _FOR_PEOPLE for entry in self._outboxes.get(key, ()))

    def _context(self, fact: Fact, logged: LogMessage) -> TransitionContext:
        now = self._now
        if isinstance(fact, facts.TimerDue) and fact.at is not None:
            # The time of a fact from a timer is at least the time for which the timer was set, even
            # if the local clock is behind. The bus publishes a timer at its set time, so a set time
            # after the message's time is forged.
            set_for = fact.at if fact.at.tzinfo else fact.at.replace(tzinfo=UTC)
            now = max(now, min(set_for, logged.time + EARLY))
        return TransitionContext(
            now,
            logged.sequence,
            logged.time,
            self._state.queues,
            user_behind(logged),
            self._submitter,
            self._state.workloads.bookings.overlap,
        )

    def _submitter(self, workload: str) -> str:
        namespace, _, name = workload.partition("/")
        known = self._known(workload_key(namespace, name)).workload if name else None
        return known.status.submitted_by if known is not None else ""

    def _givers(
        self, fact: facts.Assigned, logged: LogMessage
    ) -> tuple[list[decision_guard.Giver], str]:
        return decision_guard.changes_of_givers(
            fact,
            self._known,
            self._working.__contains__,
            self._state.catalog.domain_of,
            lambda known, said: self._given(known, said, logged),
        )

    def _given(self, known: VersionedWorkload, said: facts.Preempted, logged: LogMessage) -> Change:
        """The change of a workload that holds only a reservation and hands its quota over to
        another workload. The change is refused if other members of the workload's family would
        change too."""
        change, relatives = self._transition(
            workload_key(said.namespace, said.name), known, said, logged
        )
        if relatives:
            return ignored(known.workload, reasons.HAS_FAMILY, "its family goes with it")
        return change

    def _apply(
        self, key: str, known: VersionedWorkload, change: Change, logged: LogMessage
    ) -> None:
        self._applied += 1
        workload = change.workload
        outbox = with_release(change.outbox, known.workload, workload, self._now)
        if workload is None:
            self._outboxes.pop(key, None)
        else:
            self._outboxes[key] = outbox
        # A workload has the trace of its submission; facts of later commands may have other traces.
        trace = logged.trace if known.workload is None else known.trace
        if not trace and workload is not None:
            trace = first_traceparent(workload.metadata.uid)
        if key in self._groups or self._families.ref(key) is not None:
            # Reinsert the key, so that a parent is written after its variants.
            self._working.pop(key, None)
        self._working[key] = VersionedWorkload(
            workload, known.revision, max(known.fact, logged.sequence), trace
        )
        self._families.note(key, known.workload, workload)
        self._state.workloads.bookings.note(key, workload)
        if workload is None and outbox and known.workload is not None:
            # A deleted object has no outbox, so its messages are published as notes.
            last = with_log(known.workload, logged.sequence, outbox)
            self._notes += self._state.message_builder.messages(
                last, known.revision, self._now, known.trace
            )

    def _write_unchanged(self, key: str, known: VersionedWorkload, logged: LogMessage) -> None:
        """Writes the workload as it is: its new revision ends what the scheduler assumes of it."""
        self._apply(key, known, Change(known.workload), logged)

    def _excess(self, key: str, change: Change, logged: LogMessage) -> int:
        """The bytes of the object with this fact applied, if they are too many; otherwise 0."""
        if key not in self._measured or change.workload is None or len(logged.data) <= SMALL:
            return 0
        length = len(stored.encode(with_log(change.workload, logged.sequence, change.outbox)))
        return length if length > VALUE_MAX else 0

    def _barrier(self, logged: LogMessage) -> bool:
        try:
            barrier = _barrier(logged.data)
        except Unreadable as error:
            self._bury(logged, str(error))
            return True
        # The server has compared the decision's fence, so the fence's number is the domain's epoch.
        if (
            not 0 < barrier.epoch < logged.sequence
            or not barrier.domain
            or logged.subject != f"{BARRIER}{token(barrier.domain)}"
            or logged.fence != Fence(barrier.domain, barrier.epoch)
        ):
            self._bury(
                logged, f"epoch {barrier.epoch} of {barrier.domain!r} has no fence that says so"
            )
            return True
        self._echoes.append(Echo(barrier.domain, barrier.epoch))
        return True

    def _object_changed(self, logged: LogMessage) -> bool:
        try:
            applied = read_change(logged.subject, logged.data)
        except Unreadable as error:
            self._bury(logged, str(error))
            return True
        asks = checks_by_parameters(self._state.objects, logged.subject, applied)
        keys = affected_workloads(self._state, applied, asks)
        if any(self._has_machine_entry(key) or key in self._groups for key in keys):
            return False
        for key in keys:
            known = self._known(key)
            ref = self._families.ref(key)
            # The parent's transition has already applied this fact to its variants.
            if known.workload is None or logged.sequence <= self._state.workloads.get(key).fact:
                continue
            fact = self._consequence(applied, asks, known.workload)
            if fact is None or (isinstance(fact, QueueChanged) and self._follows(key, ref)):
                continue
            change, relatives = self._transition(key, known, fact, logged)
            if change.outcome is FactOutcome.APPLIED:
                self._apply(key, known, change, logged)
            for other, made in relatives.items():
                self._apply(other, self._known(other), made, logged)
            self._group([key, *relatives], logged)
        return True

    def _follows(self, key: str, ref: FamilyRef | None) -> bool:
        """Whether the workload at the key is a variant that changes together with its parent."""
        return ref is not None and ref.parent != key and self._families.has_parent(ref)

    def _consequence(
        self, applied: ObjectApplied, asks: frozenset[str], workload: StoredWorkload
    ) -> Fact | None:
        meta = workload.metadata
        about: dict[str, Any] = {"namespace": meta.namespace, "name": meta.name}
        if applied.kind != "WorkloadPriorityClass":
            return QueueChanged(**about, asks=asks)
        priority = self._state.objects.priority_class(applied.name)
        if priority is None or stored.priority_class(workload) != applied.name:
            return None
        return facts.Reprioritized(**about, priority=priority.value)

    # Notes and outcomes. ------------------------------------------------------------

    def _bury(self, logged: LogMessage, reason: str, word: str = _UNDECODABLE) -> None:
        self._dead.append(RejectedMessage(logged, reason))
        self._outcomes[logged.sequence] = SettledReply(
            outcome="dead-lettered", reason=word, message=reason
        )

    def _reject(self, logged: LogMessage, fact: Fact, reason: str, message: str) -> None:
        self._note(logged, "rejected", submissions.rejected_fact(fact, self._now, reason, message))

    def _report(self, fact: Fact, change: Change, logged: LogMessage) -> None:
        """Reports the outcome of a fact to its sender, and to users if the fact is a submission."""
        self._note_outcome(logged, change)
        match change.outcome, fact:
            case FactOutcome.REFUSED, Arrived():
                self._reject(logged, fact, change.reason, change.message)
            case FactOutcome.IGNORED, Arrived() if change.reason != reasons.REPEATED:
                # Not the first submission, sent again, but a second one.
                unchanged = submissions.unchanged_fact(fact, self._now, change.message)
                self._note(logged, "noted", unchanged)
            case FactOutcome.REFUSED, facts.CheckReported():
                # The check controller gets no reply; its operator finds the reason in the dead
                # letter.
                self._dead.append(RejectedMessage(logged, f"{change.reason}: {change.message}"))

    def _note(self, logged: LogMessage, what: str, fact: Fact) -> None:
        builder = self._state.message_builder
        self._notes.append(builder.message(fact, f"{logged.sequence}/{what}", logged.trace))

    def _note_outcome(self, logged: LogMessage, change: Change) -> None:
        if change.outcome is not FactOutcome.APPLIED:
            self._outcomes[logged.sequence] = SettledReply(
                outcome=str(change.outcome), reason=change.reason, message=change.message
            )
