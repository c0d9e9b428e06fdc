"""One batch of facts on its way into a commit."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace

from admittance.control import quota_handover, submissions
from admittance.control.commit import Commit, Echo, LogMessage, Message, Put, RejectedMessage
from admittance.control.controller_state import ControllerState
from admittance.control.known import FamilyRef, VersionedWorkload, ref_to
from admittance.control.objects import checks_of
from admittance.control.submissions import InvalidSubmission, validate_submission
from admittance.control.variants import BatchFamilies, claim_of
from admittance.events import facts
from admittance.events.applying import SettledReply
from admittance.events.base import HEADER_TRACE, Fact
from admittance.events.codec import Undecodable, decode
from admittance.events.names import BadToken, plain, token
from admittance.events.reading import Reader, Unreadable, reason_of
from admittance.events.subjects import BARRIER, EPOCH, object_key, workload_key
from admittance.events.system import Barrier, ObjectApplied
from admittance.workload import stored
from admittance.workload.change import Change, Outcome, ignored, with_log
from admittance.workload.conditions import Type, is_true
from admittance.workload.families.settling import family_transition, single_transition
from admittance.workload.moves.arrival import REPEATED, Arrived
from admittance.workload.stored import OutboxEntry, StoredWorkload
from admittance.workload.transition_context import QueueChanged, TransitionContext

FENCE: Final = "Nats-Expected-Last-Subject-Sequence"
FENCE_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"

VALUE_MAX: Final = 900_000
"""Bytes of an object. The server takes 1 MiB, and what is told of the object is about as long."""
TOGETHER_MAX: Final = 500
"""Objects that facts of one batch may tie together, so that an atomic batch has room for them and
for a whole family more."""
EARLY: Final = timedelta(seconds=1)
"""How much too early the bus may be with what it was told to say at a time."""
SMALL: Final = 8 * 1024
"""A fact of so many bytes is never too much: room for its like is left above `VALUE_MAX`, so that
an object that is full can still be stopped, finished and deleted."""

_QUIET: Final = frozenset({"pending", "requeued"})
"""Said for people: of several in one put only the last matters. Anything else is heard by
machines, and must be said before the workload moves on."""

LEADS_TO_NOTHING: Final = "LeadsToNothing"
"""Reason of what cannot be reckoned with, though each part of it can be read."""
_NO_OUTCOME: Final = SettledReply()

_barrier = Reader(Barrier)
_applied = Reader(ObjectApplied)

_MUST_MOVE: Final = (
    facts.Assigned,
    facts.Refused,
    facts.Planned,
    facts.Confirmed,
    facts.Revoked,
    facts.Preempted,
)
"""Decisions whose workload is held by an assumption of the scheduler until its revision moves."""


class BatchFold:
    """One batch on its way into a commit."""

    def __init__(
        self, state: ControllerState, now: datetime, careful: frozenset[str] = frozenset()
    ) -> None:
        """``careful``: keys whose objects came out too long, so that each fact is measured."""
        self._careful = careful
        self._state = state
        self._now = now
        self._working: dict[str, VersionedWorkload] = {}
        self._says: dict[str, tuple[OutboxEntry, ...]] = {}
        self._groups: dict[str, int] = {}
        self._together: dict[int, list[str]] = {}
        self._relations = BatchFamilies(state.workloads, self._known)
        self._notes: list[Message] = []
        self._dead: list[RejectedMessage] = []
        self._echoes: list[Echo] = []
        self._outcomes: dict[int, SettledReply] = {}

    def take(self, heard: LogMessage) -> bool:
        """Fold one message in. False: it must wait for the commit of what came before."""
        if heard.subject.startswith(BARRIER):
            return self._barrier(heard)
        if heard.subject.startswith("admit.object."):
            return self._object_changed(heard)
        try:
            fact = decode(heard.subject, heard.data)
        except Undecodable as error:
            self._bury(heard, str(error))
            return True
        key = workload_key(fact.namespace, fact.name)
        if self._is_loud(key):
            return False
        if isinstance(fact, facts.Assigned) and any(
            map(self._is_loud, quota_handover.keys_of(fact))
        ):
            return False
        known = self._known(key)
        if heard.sequence <= known.fact:
            return True
        if known.unreadable and isinstance(fact, facts.Deleted):
            # It counts as none, and is to make room for the next of its name.
            self._apply(key, known, Change(None), heard)
            return True
        if isinstance(fact, facts.Submitted):
            entered = self._enter(fact, heard, known)
            if not isinstance(entered, Fact):
                return True
            fact = entered
        holds = isinstance(fact, facts.Decision)
        if isinstance(fact, facts.Decision):
            void = self._void(fact, heard, known)
            if void is not None:
                self._note_outcome(heard, void)
                if void.reason == "OutOfDate":
                    # Written once more: its revision moves, and with it the assumption ends, also
                    # where the scheduler has not seen that change, or not as one of its tree.
                    self._apply(key, known, Change(known.workload), heard)
                return True
        change, kin = self._become(key, known, fact, heard)
        if kin and (any(map(self._is_loud, kin)) or self._is_crowded([key, *kin])):
            return False
        if change.outcome is not Outcome.APPLIED and holds and isinstance(fact, _MUST_MOVE):
            change = Change(known.workload, (), Outcome.APPLIED, change.reason, change.message)
        givers: list[quota_handover.Giver] = []
        if isinstance(fact, facts.Assigned) and change.says:
            fallen = self._moved_sibling(fact)
            if fact.preempts and not fallen:
                givers, fallen = self._givers(fact, heard)
            if fallen:
                # The one that was to get the quota moves, and with it the assumption ends.
                self._note_outcome(heard, ignored(known.workload, "StaleGiver", fallen))
                self._apply(key, known, Change(known.workload), heard)
                return True
        length = self._excess(key, change, heard)
        if length:
            self._bury(heard, f"the object would be {length} bytes long, {VALUE_MAX} are allowed")
            if not holds:
                return True
            change, givers, kin = Change(known.workload), [], {}
        self._note_outcome(heard, change)
        if change.outcome is Outcome.REFUSED and heard.subject.startswith(
            "admit.workload.submitted."
        ):
            self._reject(heard, fact, change.reason, change.message)
        if change.outcome is Outcome.IGNORED and isinstance(fact, Arrived):
            self._tell_taken(heard, fact, change)
        if change.outcome is Outcome.REFUSED and isinstance(fact, facts.CheckReported):
            # Its controller waits for no answer; whoever runs it finds the reason there.
            self._dead.append(RejectedMessage(heard, f"{change.reason}: {change.message}"))
        if change.outcome is Outcome.APPLIED:
            for giver in givers:
                self._apply(giver.key, giver.known, giver.change, heard, giver.known.trace)
            self._apply(key, known, change, heard)
        for other, made in kin.items():
            self._apply(other, self._known(other), made, heard)
        if givers or kin:
            self._group([*(one.key for one in givers), key, *kin], heard)
        return True

    def commit(self, rest: list[LogMessage], through: int) -> Commit:
        """What has been folded so far, as a value."""
        puts = []
        for key, known in self._working.items():
            before = self._state.workloads.get(key)
            group = self._groups.get(key, 0)
            if known.workload is None:
                # Also where it came and went within the batch: a predecessor who got only half of
                # it and is late would else bring it to life.
                puts.append(Put(key, before.revision, None, known.fact, known.trace, None, group))
                continue
            workload = with_log(known.workload, known.fact, self._says.get(key, ()))
            value = stored.encode(workload)
            puts.append(Put(key, before.revision, value, known.fact, known.trace, workload, group))
        return Commit(puts, self._notes, self._dead, self._echoes, self._outcomes, through, rest)

    # Steps. -------------------------------------------------------------------------

    def _enter(
        self, fact: facts.Submitted, heard: LogMessage, known: VersionedWorkload
    ) -> Fact | None:
        """The submission as it is taken in; None: it is not, and that is told."""
        claim = claim_of(fact)
        if claim is not None:
            kin = self._relations.kin(ref_to(fact.namespace, *claim.owner))
            rules = None
            if kin.parent is not None:
                queue = stored.head(kin.parent).queue_name
                rules = self._state.queues.family_rules(fact.namespace, queue)
            entered = self._state.variant_intake.enter(
                fact, claim, known.workload, kin, rules, self._now
            )
            if isinstance(entered, Fact):
                return entered
            self._note_outcome(heard, entered)
            if entered.outcome is Outcome.REFUSED:
                self._reject(heard, fact, entered.reason, entered.message)
            return None
        try:
            arrived = validate_submission(fact, self._state.objects, self._state.queues)
            return replace(arrived, message_id=submissions.digest(heard))
        except InvalidSubmission as error:
            self._bury(heard, str(error), "Invalid")
            self._reject(heard, fact, "Invalid", str(error))
            return None

    def _become(
        self, key: str, known: VersionedWorkload, fact: Fact, heard: LogMessage
    ) -> tuple[Change, dict[str, Change]]:
        """What the fact makes of the workload, and by key of others of its family: all of that is
        one commit, or nothing is. Where that cannot be reckoned, the fact is set aside for this
        workload: what stands there may be from any hand, and would stop all the others for ever."""
        try:
            return self._made(key, known, fact, heard)
        except AssertionError:
            raise  # Of a state that this program has made itself.
        except Exception as error:
            why = f"it leads to nothing at {key}: {type(error).__name__}: {reason_of(error)}"
            if self._outcomes.get(heard.sequence, _NO_OUTCOME).reason != LEADS_TO_NOTHING:
                self._bury(heard, why, LEADS_TO_NOTHING)
            return ignored(known.workload, LEADS_TO_NOTHING, why), {}

    def _made(
        self, key: str, known: VersionedWorkload, fact: Fact, heard: LogMessage
    ) -> tuple[Change, dict[str, Change]]:
        at = self._occasion(fact, heard)
        ref = self._relations.ref(key)
        if ref is None or known.workload is None:
            return single_transition(known.workload, fact, at), {}
        if key != ref.parent and is_true(known.workload, Type.FINISHED):
            # Held until all of its end is said; its family has gone on without it.
            return single_transition(known.workload, fact, at), {}
        meta = known.workload.metadata
        made = family_transition(self._relations.kin(ref), meta.name, fact, at)
        return made.own, {
            workload_key(meta.namespace, name): change for name, change in made.others.items()
        }

    def _is_crowded(self, keys: Iterable[str]) -> bool:
        """What would have to be written together with these is more than may be. Alone they are
        not, so that it is enough to wait for what came before."""
        groups = {group for key in keys if (group := self._groups.get(key))}
        return sum(len(self._together[group]) for group in groups) > TOGETHER_MAX

    def _group(self, keys: list[str], heard: LogMessage) -> None:
        """From now on these are written together: with all that any of them is written with."""
        keys = [key for key in dict.fromkeys(keys) if key in self._working]
        if len(keys) < 2:
            return
        old = {group for key in keys if (group := self._groups.get(key))}
        number = min(old, default=heard.sequence)
        members = self._together.setdefault(number, [])
        for group in old - {number}:
            members += self._together.pop(group)
        members += [key for key in keys if self._groups.get(key) is None]
        self._groups.update(dict.fromkeys(members, number))

    def _moved_sibling(self, fact: facts.Assigned) -> str:
        """Why the sibling that is to stop for a variant is not as it was decided; "": it is."""
        one = fact.migrates_from
        if one is None:
            return ""
        key = workload_key(one.namespace, one.name)
        known = self._state.workloads.get(key)
        gone = known.workload is None or known.workload.metadata.uid != one.uid
        if gone or key in self._working or known.revision != one.revision:
            return f"{one.namespace}/{one.name} moved meanwhile"
        return ""

    def _known(self, key: str) -> VersionedWorkload:
        return self._working.get(key) or self._state.workloads.get(key)

    def _is_loud(self, key: str) -> bool:
        return any(say.what not in _QUIET for say in self._says.get(key, ()))

    def _occasion(self, fact: Fact, heard: LogMessage) -> TransitionContext:
        now = self._now
        if isinstance(fact, facts.TimerDue) and fact.at is not None:
            # For a due timer it is at least the time that it was set for, whatever our clock says.
            # The bus says it then and not before: one that is not due there is from somebody else.
            set_for = fact.at if fact.at.tzinfo else fact.at.replace(tzinfo=UTC)
            now = max(now, min(set_for, heard.time + EARLY))
        return TransitionContext(now, heard.sequence, heard.time, self._state.queues)

    def _givers(
        self, fact: facts.Assigned, heard: LogMessage
    ) -> tuple[list[quota_handover.Giver], str]:
        return quota_handover.givers(
            fact,
            self._known,
            self._working.__contains__,
            self._state.catalog.domain_of,
            lambda known, said: self._given(known, said, heard),
        )

    def _given(self, known: VersionedWorkload, said: facts.Preempted, heard: LogMessage) -> Change:
        """What becomes of one that merely holds a reservation and hands it on; of its family
        nobody else is concerned."""
        change, kin = self._become(workload_key(said.namespace, said.name), known, said, heard)
        if kin:
            return ignored(known.workload, "HasFamily", "its family goes with it")
        return change

    def _apply(
        self,
        key: str,
        known: VersionedWorkload,
        change: Change,
        heard: LogMessage,
        trace: str | None = None,
    ) -> None:
        workload = change.workload
        if workload is None:
            self._says.pop(key, None)
        else:
            self._says[key] = change.says
        if trace is None:
            trace = heard.headers.get(HEADER_TRACE, known.trace)
        if key in self._groups or self._relations.ref(key) is not None:
            # Who follows is told of after whom it follows: parents come last.
            self._working.pop(key, None)
        self._working[key] = VersionedWorkload(
            workload, known.revision, max(known.fact, heard.sequence), trace
        )
        self._relations.note(key, known.workload, workload)
        if workload is None and change.says and known.workload is not None:
            # A deleted object has no outbox; what its end means to others is said at once.
            last = with_log(known.workload, heard.sequence, change.says)
            self._notes += self._state.message_builder.messages(
                last, known.revision, self._now, known.trace
            )

    def _excess(self, key: str, change: Change, heard: LogMessage) -> int:
        """How long the object would be with what the fact brings, if that is too long; else 0."""
        if key not in self._careful or change.workload is None or len(heard.data) <= SMALL:
            return 0
        length = len(stored.encode(with_log(change.workload, heard.sequence, change.says)))
        return length if length > VALUE_MAX else 0

    def _void(
        self, fact: facts.Decision, heard: LogMessage, known: VersionedWorkload
    ) -> Change | None:
        """Why a decision holds no longer; None when it does. The scheduler sees the same change in
        its watch, and drops what it had assumed."""
        workload = known.workload
        if workload is None:
            return ignored(None, "NoSuchWorkload", "it was deleted meanwhile")
        key = workload_key(fact.namespace, fact.name)
        if key in self._working or fact.revision != known.revision:
            return ignored(workload, "StaleRevision", f"decided from revision {fact.revision}")
        queue = self._state.queues.cluster_queue(fact.namespace, stored.head(workload).queue_name)
        domain = self._state.catalog.domain_of(queue) if queue else None
        if domain is None or domain != fact.domain:
            return ignored(workload, "OtherDomain", f"decided for {fact.domain}")
        if heard.headers.get(FENCE_SUBJECT) != f"{EPOCH}{token(domain)}":
            return ignored(workload, "NoFence", f"the message carries no fence of {domain}")
        newest = max(self._state.catalog.newest(domain), self._state.manifests_floor)
        if newest > fact.seen:
            return ignored(
                workload, "OutOfDate", f"a queue changed at revision {newest}, seen {fact.seen}"
            )
        return None

    def _barrier(self, heard: LogMessage) -> bool:
        try:
            barrier = _barrier(heard.data)
        except Unreadable as error:
            self._bury(heard, str(error))
            return True
        # The server has compared the fence, so its number is the domain's epoch, unless it is so
        # long that the server took only its lower bits.
        fence = heard.headers.get(FENCE), heard.headers.get(FENCE_SUBJECT)
        whose = heard.subject.removeprefix(BARRIER)
        if (
            not 0 < barrier.epoch < heard.sequence
            or not barrier.domain
            or token(barrier.domain) != whose
            or fence != (str(barrier.epoch), f"{EPOCH}{whose}")
        ):
            self._bury(
                heard, f"epoch {barrier.epoch} of {barrier.domain!r} has no fence that says so"
            )
            return True
        self._echoes.append(Echo(barrier.domain, barrier.epoch))
        return True

    def _object_changed(self, heard: LogMessage) -> bool:
        try:
            applied = _applied(heard.data)
        except Unreadable as error:
            self._bury(heard, str(error))
            return True
        asks = self._whose_parameters(heard.subject, applied)
        keys = self.concerned(applied, asks)
        if any(self._is_loud(key) or key in self._groups for key in keys):
            return False
        for key in keys:
            known = self._known(key)
            ref = self._relations.ref(key)
            # What the parent's turn has made of its variants is of this very fact.
            if known.workload is None or heard.sequence <= self._state.workloads.get(key).fact:
                continue
            meta = known.workload.metadata
            about = meta.namespace, meta.name
            for fact in self._consequences(applied, asks, *about, known.workload):
                if isinstance(fact, QueueChanged) and self._follows(key, ref):
                    continue
                change, kin = self._become(key, known, fact, heard)
                if change.outcome is Outcome.APPLIED:
                    self._apply(key, known, change, heard)
                    known = self._known(key)
                for other, made in kin.items():
                    self._apply(other, self._known(other), made, heard)
                self._group([key, *kin], heard)
        return True

    def _follows(self, key: str, ref: FamilyRef | None) -> bool:
        """It is a variant, and gets its turn with its parent."""
        return ref is not None and ref.parent != key and self._relations.has_parent(ref)

    def _whose_parameters(self, subject: str, applied: ObjectApplied) -> frozenset[str]:
        """The checks whose parameters have changed, come or gone, or that name others."""
        if applied.kind == "AdmissionCheck":
            return frozenset({applied.name} if applied.parameters_changed else ())
        try:
            key = object_key(plain(subject.split(".")[3]), "", applied.name)
        except (BadToken, IndexError, ValueError):
            return frozenset()  # Said by somebody else.
        return self._state.objects.checks_by_parameters(key)

    def _consequences(
        self,
        applied: ObjectApplied,
        asks: frozenset[str],
        namespace: str,
        name: str,
        workload: StoredWorkload,
    ) -> Iterable[Fact]:
        if applied.kind == "WorkloadPriorityClass":
            found = self._state.objects.priority_class(applied.name)
            if found is not None and stored.priority_class(workload) == applied.name:
                yield facts.Reprioritized(namespace=namespace, name=name, priority=found.value)
        else:
            yield QueueChanged(namespace=namespace, name=name, asks=asks)

    def concerned(self, applied: ObjectApplied, asks: frozenset[str]) -> list[str]:
        """Keys of the workloads that a changed object may mean something to. ``asks``: checks whose
        parameters it is."""
        workloads = self._state.workloads
        objects = self._state.objects
        match applied.kind:
            case "LocalQueue":
                return workloads.of_queue(applied.namespace, applied.name)
            case "ClusterQueue":
                queues = {applied.name}
            case "AdmissionCheck":
                queues = {
                    queue.metadata.name
                    for queue in objects.of_kind("clusterqueue")
                    if applied.name in checks_of(queue)
                }
            case "WorkloadPriorityClass":
                return sorted(key for key, known in workloads.items() if known.workload)
            case _ if asks:
                queues = {
                    queue.metadata.name
                    for queue in objects.of_kind("clusterqueue")
                    if asks & checks_of(queue)
                }
            case _:
                return []
        return [
            key
            for local in objects.of_kind("localqueue")
            if local.spec.cluster_queue in queues
            for key in workloads.of_queue(local.metadata.namespace, local.metadata.name)
        ]

    # What is told. ------------------------------------------------------------------

    def _bury(self, heard: LogMessage, reason: str, word: str = "Undecodable") -> None:
        self._dead.append(RejectedMessage(heard, reason))
        self._outcomes[heard.sequence] = SettledReply(
            outcome="dead-lettered", reason=word, message=reason
        )

    def _reject(self, heard: LogMessage, fact: Fact, reason: str, message: str) -> None:
        about = submissions.ReceivedSubmission(heard, fact, self._now, self._state.message_builder)
        self._notes.append(submissions.rejected(about, reason, message))

    def _tell_taken(self, heard: LogMessage, fact: Fact, change: Change) -> None:
        """A second submission that changes nothing is told so, unless it is the first one again."""
        if change.reason != REPEATED:
            about = submissions.ReceivedSubmission(
                heard, fact, self._now, self._state.message_builder
            )
            self._notes.append(submissions.unchanged(about, change.message))

    def _note_outcome(self, heard: LogMessage, change: Change) -> None:
        if change.outcome is not Outcome.APPLIED:
            self._outcomes[heard.sequence] = SettledReply(
                outcome=str(change.outcome), reason=change.reason, message=change.message
            )
