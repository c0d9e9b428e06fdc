"""What a fact does to one variant of a family: by direct calls, the whole result as one line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.meta import ObjectMeta, OwnerReference
from admittance.api.workload import FAMILY_GATE, GateHolder, GatePosition, RequeueState
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.shapes import HandedOn, PendingPreemption
from admittance.family import FamilyRules, Tag
from admittance.workload.change import Change, FactOutcome
from admittance.workload.conditions import Type, find
from admittance.workload.families.family_change import FamilyMembers, FamilyTransition
from admittance.workload.families.member_transitions import variant_transition
from admittance.workload.families.migration import admitted_after_stop, promise_quota
from admittance.workload.families.reconcile import reconcile
from admittance.workload.families.roles import became_regular
from admittance.workload.stored import StoredWorkload, WorkloadStatus, head
from admittance.workload.transition_context import InactiveReason
from support.builders import NOON, Around, a_condition, an_admission, occasion

TAGS = tuple(Tag(name, place, (name,)) for place, name in enumerate(("best", "mid", "worst")))
MID: dict[str, Any] = {"namespace": "ns", "name": "p-mid", "uid": "p-mid"}
ON_MID = an_admission(flavor="mid")


def a_member(name: str, *conditions: str, **fields: Any) -> StoredWorkload:
    """A workload with these conditions; one after ``!`` has status False. ``fields``: of its spec
    in the words of JSON, of its status in those of Python."""
    status = {key: fields.pop(key) for key in WorkloadStatus.__struct_fields__ if key in fields}
    return StoredWorkload(
        api_version="v1",
        kind="Workload",
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=name,
            creation_timestamp=NOON,
            owner_references=(OwnerReference(kind="Workload", name="p", uid="p"),),
        ),
        spec=msgspec.Raw(msgspec.json.encode({"queueName": "q", "podSets": [], **fields})),
        status=WorkloadStatus(
            conditions=tuple(
                a_condition(kind.removeprefix("!"), not kind.startswith("!")) for kind in conditions
            ),
            **status,
        ),
    )


def a_variant(tag: str, *conditions: str, **fields: Any) -> StoredWorkload:
    return a_member(f"p-{tag}", *conditions, **{"role": "variant", "variant": tag} | fields)


def a_parent(*conditions: str, **fields: Any) -> StoredWorkload:
    return a_member("p", *conditions, role="parent", **fields)


def line_of(change: Change, family: FamilyTransition) -> str:
    """The outcome, then what the change leaves in the variant, and the gates of the others."""
    if change.outcome.value != "applied":
        return f"{change.outcome.value} {change.reason}: {change.message}"
    after = change.workload
    assert after is not None
    status = after.status
    words = [change.outcome.value, "active" if head(after).active else "inactive"]
    words += [f"stopped by {status.stopped_by}"] if status.stopped_by else []
    words += ["promised"] if status.promised is not None else []
    words += ["reserved"] if status.admission is not None else []
    words += [f"{gate.name} {gate.position}" for gate in status.preemption_gates]
    best = family.variants["p-best"].status
    words += [f"p-best {gate.position}" for gate in best.preemption_gates]
    gate = family.parent.status.preemption_gate if family.parent is not None else None
    words += [f"held by {gate.holder}"] if gate is not None else []
    words += [f"{entry.what} {entry.reason} {entry.message}".strip() for entry in change.outbox]
    return ", ".join(words)


def assigned(flavor: str = "mid", **more: Any) -> Fact:
    admission = an_admission(flavor=flavor)
    return facts.Assigned(**MID, revision=0, seen=0, domain="", admission=admission, **more)


OPEN = (GatePosition(name=FAMILY_GATE, position="Open", last_transition_time=NOON),)
CLOSED = (GatePosition(name="other", position="Open"), GatePosition(name=FAMILY_GATE))
HELD = a_parent(preemption_gate=GateHolder(holder="p-best", since=NOON))
ONLY_MID: dict[str, Any] = {"admissionConstraints": {"allowedResourceFlavors": ["mid"]}}
OFF: dict[str, Any] = {"active": False}
UNGATED = facts.Ungated(**MID)
REVOKED = facts.Revoked(**MID, revision=0, seen=0, domain="", reason="Preempted")
PLAIN = a_variant("mid")
BY_POLICY = "Policy"


@pytest.mark.parametrize(
    ("parent", "variant", "fact", "line"),
    [
        # Quota.
        (None, PLAIN, assigned(), "ignored Orphan: its parent is gone"),
        (a_parent("QuotaReserved", "Evicted", admission=ON_MID), PLAIN, assigned(),
            "ignored FamilyStops: its family's job is being stopped"),
        (a_parent("!Requeued"), PLAIN, assigned(), "ignored FamilyWaits: its family is in backoff"),
        (a_parent(), a_variant("mid", variant="old"), assigned(),
            "ignored NoSuchVariant: its queue no longer has such a variant"),
        (a_parent(**OFF), PLAIN, assigned(), "ignored NotWanted: policy does not want it: parent"),
        (a_parent(), a_variant("mid", **ONLY_MID), assigned("best"),
            "ignored FlavorNotAllowed: it may have mid"),
        (a_parent(), a_variant("mid", **ONLY_MID), assigned(),
            "applied, active, reserved, p-best Open, "
            "quota_reserved QuotaReserved Quota reserved in ClusterQueue cq, admitted Admitted"),
        (a_parent(), PLAIN, assigned("best"),
            "applied, active, reserved, p-best Open, "
            "quota_reserved QuotaReserved Quota reserved in ClusterQueue cq, admitted Admitted"),
        (a_parent(), a_variant("mid", promised=ON_MID), REVOKED,
            "applied, active, p-best Open, pending Preempted"),
        (a_parent(), PLAIN, REVOKED, "ignored NoMove: it is Pending: 'revoked' changes nothing"),
        (a_parent(), PLAIN, facts.Aggregated(**MID), "ignored IsVariant: it has no variants"),
        (a_parent(), PLAIN, facts.Held(**MID),
            "refused IsVariant: send the request to its parent 'p'"),
        # Activity.
        (a_parent(), PLAIN, facts.Deactivated(**MID, reason=BY_POLICY),
            "ignored PolicyMovedOn: policy has changed since"),
        (None, PLAIN, facts.Deactivated(**MID, reason=BY_POLICY),
            "ignored PolicyMovedOn: policy has changed since"),
        (a_parent(**OFF), PLAIN, facts.Deactivated(**MID, reason=BY_POLICY),
            "applied, inactive, p-best Open, pending Deactivated Variant deactivated: parent"),
        (a_parent(**OFF), a_variant("mid", **OFF), facts.Deactivated(**MID, reason=BY_POLICY),
            "ignored Repeated: it is not active"),
        (a_parent(), PLAIN, facts.Deactivated(**MID),
            "applied, inactive, stopped by User, p-best Open, "
            "pending Deactivated Variant deactivated: User"),
        (a_parent(), a_variant("mid", **OFF), facts.Deactivated(**MID),
            "applied, inactive, stopped by User, p-best Open"),
        (a_parent(), a_variant("mid", stopped_by="Rejected", **OFF), facts.Deactivated(**MID),
            "ignored Repeated: it is not active"),
        (a_parent(), a_variant("mid", stopped_by="User", **OFF), facts.Activated(**MID),
            "applied, inactive, p-best Open"),
        (a_parent(), a_variant("mid", stopped_by="User", **OFF),
            facts.Activated(**MID, reason=BY_POLICY),
            "ignored PolicyMovedOn: it was stopped meanwhile: User"),
        (None, a_variant("mid", **OFF), facts.Activated(**MID),
            "refused NotWanted: it has no parent"),
        (None, a_variant("mid", **OFF), facts.Activated(**MID, reason=BY_POLICY),
            "ignored NotWanted: it has no parent"),
        (a_parent(**OFF), a_variant("mid", **OFF), facts.Activated(**MID),
            "refused NotWanted: policy does not want it: parent"),
        (a_parent(), a_variant("mid", **OFF), facts.Activated(**MID),
            "applied, active, p-best Open, requeued Reactivated"),
        # Priority.
        (None, PLAIN, facts.Reprioritized(**MID, priority=0),
            "refused IsVariant: its priority is its parent's"),
        (a_parent(priority=5), PLAIN, facts.Reprioritized(**MID, priority=5),
            "applied, active, p-best Open"),
        (a_parent(priority=5), PLAIN, facts.Reprioritized(**MID, priority=4),
            "refused IsVariant: its priority is its parent's"),
        (a_parent(), a_variant("mid", priority=3), facts.Reprioritized(**MID, priority=0),
            "applied, active, p-best Open"),
        (a_parent(), a_variant("mid", priority=3), facts.Reprioritized(**MID, priority=1),
            "refused IsVariant: its priority is its parent's"),
        # Gates: the one of the variant is opened, and those of its siblings are closed.
        (None, PLAIN, UNGATED, "ignored Orphan: its parent is gone"),
        (a_parent(), a_variant("mid", preemption_gates=OPEN), UNGATED,
            "ignored Repeated: its gate is open"),
        (a_parent(), a_variant("mid", preemption_gates=CLOSED), UNGATED,
            "applied, active, other Open, kueue.x-k8s.io/concurrent-admission Open, "
            "p-best Closed, held by p-mid"),
        (HELD, a_variant("mid", preemption_gates=CLOSED), UNGATED,
            "ignored GateHeld: only p-best may preempt now"),
    ],
)  # fmt: skip
def test_a_fact_changes_one_variant(
    parent: StoredWorkload | None, variant: StoredWorkload, fact: Fact, line: str
) -> None:
    assert _line(parent, variant, fact, a_variant("best", preemption_gates=OPEN)) == line


def _family(
    parent: StoredWorkload | None, variant: StoredWorkload, best: StoredWorkload, **queue: Any
) -> FamilyTransition:
    """``queue``: attributes of `Around`."""
    around = Around()
    around.families = FamilyRules("UpgradeOnly", "", TAGS)
    for name, value in queue.items():
        setattr(around, name, value)
    members = {"p-mid": variant, "p-best": best}
    return FamilyTransition(FamilyMembers(parent, members), occasion(around=around))


def _line(
    parent: StoredWorkload | None, variant: StoredWorkload, fact: Fact, best: StoredWorkload
) -> str:
    family = _family(parent, variant, best)
    return line_of(variant_transition(family, variant, fact), family)


@pytest.mark.parametrize(
    "best",
    [
        pytest.param(a_variant("best", preemption_gates=CLOSED), id="has a closed gate"),
        pytest.param(a_variant("best", "!Requeued", preemption_gates=OPEN), id="is in backoff"),
        pytest.param(a_variant("best", variant="old", preemption_gates=OPEN), id="has no tag"),
        pytest.param(
            a_variant("best", stopped_by="User", preemption_gates=OPEN), id="is not wanted"
        ),
    ],
)
def test_a_gate_is_opened_if_the_sibling_with_the_open_gate(best: StoredWorkload) -> None:
    line = _line(HELD, a_variant("mid", preemption_gates=CLOSED), UNGATED, best)
    assert line.startswith("applied, active, other Open, "), line
    assert line.endswith("held by p-mid")


RUNS = a_parent("QuotaReserved", "Admitted", admission=ON_MID, admitted_variant="p-mid")
WORSE = a_variant("mid", "QuotaReserved", "Admitted", admission=ON_MID)
FROM_MID = HandedOn(namespace="ns", name="p-mid", uid="p-mid", revision=1, reason="")
FROM_OLD = HandedOn(namespace="ns", name="p-old", uid="p-old", revision=1, reason="")
ON_BEST = an_admission(flavor="best")


@pytest.mark.parametrize(
    ("parent", "best", "fields", "queue", "line"),
    [
        (RUNS, a_variant("best"), {}, {},
            "applied, active, promised, pending WaitingForPreemptedWorkloads "
            "Pending the migration of 1 workload(s), migrating to p-best"),
        (RUNS, a_variant("best"), {"migrates_from": None}, {},
            "ignored StaleFamily: another sibling is admitted now, or none"),
        (a_parent(), a_variant("best"), {}, {},
            "ignored StaleFamily: another sibling is admitted now, or none"),
        (RUNS, WORSE, {}, {}, "ignored NoMove: it is Admitted: it does not compete"),
        (RUNS, a_variant("best"), {}, {"checks": ("c",)},
            "ignored StaleFamily: it must wait for checks or for preempted workloads"),
        (RUNS, a_variant("best"), {"pending_preemption": PendingPreemption()}, {},
            "ignored StaleFamily: it must wait for checks or for preempted workloads"),
        (a_parent("QuotaReserved", "Admitted", admission=ON_MID, admitted_variant="p-old"),
            a_variant("best"), {"migrates_from": FROM_OLD}, {},
            "ignored FamilyStops: its family's job is being stopped"),
    ],
)  # fmt: skip
def test_quota_is_promised_to_a_better_variant(
    parent: StoredWorkload, best: StoredWorkload, fields: Any, queue: Any, line: str
) -> None:
    assert _promise(parent, best, fields, queue) == line


def _promise(parent: StoredWorkload, best: StoredWorkload, fields: Any, queue: Any) -> str:
    family = _family(parent, WORSE, best, **queue)
    given = {"migrates_from": FROM_MID} | fields
    fact = facts.Assigned(
        namespace="ns", name="p-best", revision=0, seen=0, domain="", admission=ON_BEST, **given
    )
    made = line_of(promise_quota(family, best, fact), family)
    stopping = family.existing_parent().status.migrating_to
    return f"{made}, migrating to {stopping}" if stopping else made


PREEMPTS: dict[str, Any] = {"pending_preemption": PendingPreemption()}
RESERVED: dict[str, Any] = {"admission": ON_BEST}
ONLY_WORST: dict[str, Any] = {"admissionConstraints": {"allowedResourceFlavors": ["worst"]}}
STOPPED_QUEUE: dict[str, Any] = {"stopped": InactiveReason("Stopped", "it is stopped")}


@pytest.mark.parametrize(
    ("best", "queue", "line"),
    [
        (a_variant("best", "QuotaReserved", **RESERVED), {}, "applied, active, reserved"),
        (a_variant("best", promised=ON_BEST), {},
            "applied, active, reserved, "
            "quota_reserved QuotaReserved Quota reserved in ClusterQueue cq, admitted Admitted"),
        (a_variant("best"), {}, "no longer"),
        (a_variant("best", "!QuotaReserved", **RESERVED), {}, "no longer"),
        (a_variant("best", "QuotaReserved", "Evicted", **RESERVED), {}, "no longer"),
        (a_variant("best", "QuotaReserved", **PREEMPTS, **RESERVED), {}, "no longer"),
        (a_variant("best", "QuotaReserved", **OFF, **RESERVED), {}, "no longer"),
        (a_variant("best", "QuotaReserved", variant="old", **RESERVED), {}, "no longer"),
        (a_variant("best", "QuotaReserved", stopped_by="User", **RESERVED), {}, "no longer"),
        (a_variant("best", "QuotaReserved", **ONLY_WORST, **RESERVED), {}, "no longer"),
        (a_variant("best", "QuotaReserved", **RESERVED), STOPPED_QUEUE, "no longer"),
        (a_variant("best", "QuotaReserved", **RESERVED), {"gone": ("best",)}, "no longer"),
        (a_variant("best", "QuotaReserved", **RESERVED), {"checks": ("c",)}, "no longer"),
        (a_variant("best", promised=ON_BEST), {"checks": ("c",)}, "no longer"),
        (a_variant("best", promised=an_admission("other", "best")), {}, "no longer"),
    ],
)  # fmt: skip
def test_a_better_variant_is_admitted_after_the_job_has_stopped(
    best: StoredWorkload, queue: Any, line: str
) -> None:
    assert _successor(best, queue) == line


def _successor(best: StoredWorkload, queue: Any) -> str:
    family = _family(a_parent(), a_variant("mid"), best, **queue)
    change = admitted_after_stop(family, "p-best")
    return line_of(change, family) if change is not None else "no longer"


ADMITTED = ("QuotaReserved", "Admitted")


@pytest.mark.parametrize(
    ("parent", "evicted", "message"),
    [
        (RUNS, "p-best", "Variant p-mid is admitted"),
        (a_parent(*ADMITTED, admission=ON_MID), "p-best", "No variant of its family may run"),
        (a_parent(), "p-mid", "Variant p-best is admitted"),
    ],
)
def test_a_second_admitted_variant_is_evicted(
    parent: StoredWorkload, evicted: str, message: str
) -> None:
    family = _family(parent, WORSE, a_variant("best", *ADMITTED, admission=ON_BEST))
    reconcile(family)
    condition = find(family.variants[evicted], Type.EVICTED)
    assert condition is not None
    assert condition.message == message


LATE, SOON = (RequeueState(requeue_at=NOON + timedelta(seconds=at)) for at in (60, 30))
NOW = RequeueState(requeue_at=NOON)


@pytest.mark.parametrize(
    ("mid", "best", "tags", "waits"),
    [
        (a_variant("mid", requeue_state=SOON), LATE, TAGS[:2], SOON),
        (a_variant("mid", requeue_state=SOON), LATE, TAGS, None),
        (a_variant("mid", "!Requeued", requeue_state=NOW), LATE, TAGS[:2], None),
        (a_variant("mid", "QuotaReserved", admission=ON_MID, requeue_state=SOON), LATE,
            TAGS[:2], None),
    ],
)  # fmt: skip
def test_a_parent_waits_while_each_of_its_variants_waits_for_a_time(
    mid: StoredWorkload, best: RequeueState, tags: tuple[Tag, ...], waits: RequeueState | None
) -> None:
    rules = FamilyRules("UpgradeOnly", "", tags)
    family = _family(a_parent(), mid, a_variant("best", requeue_state=best), families=rules)
    reconcile(family, requested=True)
    assert family.existing_parent().status.requeue_state == waits


BACKOFF = RequeueState(count=2, requeue_at=NOON)


@pytest.mark.parametrize(
    ("conditions", "more", "state", "reason"),
    [
        (("!QuotaReserved", "!Requeued"), {}, BACKOFF, "PendingEvaluation"),
        (("!QuotaReserved",), {}, RequeueState(count=2), "PendingEvaluation"),
        (("!QuotaReserved",), OFF, RequeueState(count=2), "QuotaReserved"),
        ((), {}, RequeueState(count=2), ""),
    ],
)
def test_a_parent_becomes_a_regular_workload(
    conditions: tuple[str, ...], more: dict[str, Any], state: RequeueState, reason: str
) -> None:
    parent = a_parent(*conditions, requeue_state=BACKOFF, **more)
    change = became_regular(parent, occasion())
    after = change.workload
    assert after is not None
    assert change.outcome is FactOutcome.APPLIED
    reserved = find(after, Type.QUOTA_RESERVED)
    assert (head(after).role, after.status.requeue_state) == ("regular", state)
    assert (reserved.reason if reserved is not None else "") == reason
    assert reserved is None or reserved.status == "False"
