"""Kueue's tables about provisioning requests, played through the core of the provisioning check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from admittance.api.meta import ObjectMeta
from admittance.api.reading.canonical import spec_of
from admittance.api.reading.manifest import decode_object
from admittance.events.provisioning import ProvisioningCancelled, ProvisioningRequested
from admittance.events.shapes import PodSetToProvision
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.new_request import IncompleteReservation, assigned_pod_sets
from admittance.provisioning.observed_state import ObservedState
from admittance.provisioning.records import (
    Record,
    RecordSpec,
    RecordStatus,
    State,
    request_id,
    template_name,
)
from admittance.provisioning.steps import VerdictReport
from admittance.workload import stored
from admittance.workload.stored import StoredWorkload
from conformance.provisioning_differences import MESSAGES, UNANSWERABLE, UNPLAYED
from conformance.tables import cases, needs_data, time_of
from support.builders import an_object
from support.requests import admission_check

pytestmark = needs_data

BY_WEIGHT = ("Failed", "CapacityRevoked", "BookingExpired", "Provisioned", "Accepted")
UID = "uid"


def a_workload(given: Mapping[str, Any]) -> StoredWorkload:
    whole = msgspec.json.decode(msgspec.json.encode(given))
    whole["metadata"]["uid"] = UID
    return stored.decode(msgspec.json.encode(whole))


def a_record(given: Mapping[str, Any], work: StoredWorkload) -> Record:
    """A request of the table as we keep it; the first condition by weight that is true counts."""
    name = given["metadata"]["name"]
    check, _, attempt = name.removeprefix("wl-").rpartition("-")
    if not check:
        check, attempt = name.removeprefix("wl-"), "1"
    status = given.get("status", {})
    by_type = {condition["type"]: condition for condition in status.get("conditions", ())}
    state = next((kind for kind in BY_WEIGHT if by_type.get(kind, {}).get("status") == "True"), "")
    # What is expected is told by the condition that is not true yet.
    says = by_type.get("Provisioned" if state == "Accepted" else state, {})
    spec = {"provisioningClassName": "", "podSets": [], **given.get("spec", {})}
    row = next((row for row in work.status.admission_checks if row.name == check), None)
    return Record(
        api_version="autoscaling.x-k8s.io/v1",
        kind="ProvisioningRequest",
        metadata=ObjectMeta(name=name, namespace="ns"),
        spec=RecordSpec(
            id=request_id(UID, check, 0, int(attempt)),
            workload="wl",
            uid=UID,
            check=check if row is not None else "another",
            cycle=0,
            attempt=int(attempt),
            provisioning_class_name=spec["provisioningClassName"],
            parameters=spec.get("parameters", {}),
            pod_sets=tuple(
                PodSetToProvision(
                    name=pod_set["podTemplateRef"]["name"].rpartition("-")[2],
                    count=pod_set["count"],
                )
                for pod_set in spec["podSets"]
            ),
        ),
        status=RecordStatus(
            state=State(state) if state else State.REQUESTED,
            message=says.get("message", ""),
            details=status.get("provisioningClassDetails", {}),
        ),
    )


def manifest_of(value: Mapping[str, Any]) -> Any:
    """The object as its kind."""
    return decode_object(value).manifest


class Played:
    """A played case. ``records``: by name; ``verdicts``: by check; ``asked``: requests."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.core = ProvisioningCore(None)
        self.records: dict[str, Record] = {}
        self.verdicts: dict[str, VerdictReport] = {}
        self.asked: list[ProvisioningRequested] = []
        self.cancelled: list[str] = []
        observed = self.core.observed
        for raw in given.get("checks", ()):
            observed.check(raw["metadata"]["name"], manifest_of(raw))
        for raw in given.get("configs", ()):
            observed.config(raw["metadata"]["name"], manifest_of(raw))
        for flavor in given.get("flavors", ()):
            whole = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", **flavor}
            observed.flavor(flavor["metadata"]["name"], manifest_of(whole))
        work = a_workload(given["workload"])
        revision = 0
        for request in given.get("requests", ()):
            revision += 1
            record = a_record(request, work)
            self.records[record.metadata.name] = record
            observed.record(("ns", record.metadata.name), record, revision)
        observed.workload(("ns", "wl"), work)
        now = time_of(given["now"])
        while steps := list(self.core.steps(now)):
            for step in steps:
                revision += 1
                if step.write is not None and step.write.record is not None:
                    self.records[step.write.name] = step.write.record
                elif step.write is not None:
                    del self.records[step.write.name]
                if isinstance(step.fact, ProvisioningRequested):
                    self.asked.append(step.fact)
                elif isinstance(step.fact, ProvisioningCancelled):
                    self.cancelled.append(step.fact.id)
                if step.report is not None:
                    self.verdicts[step.slot.check] = step.report
                self.core.done(step, revision)

    def open(self) -> dict[str, Record]:
        """The records that were not cancelled."""
        return {
            name: record for name, record in self.records.items() if not record.status.cancelled
        }


PLAYED = [
    case for case in cases("provisioning/TestReconcile") if case.values[0]["name"] not in UNPLAYED
]


def test_cases_that_are_not_played_exist() -> None:
    names = {case.values[0]["name"] for case in cases("provisioning/TestReconcile")}
    assert set(UNPLAYED) | set(MESSAGES) | {UNANSWERABLE} <= names


@pytest.mark.parametrize("case", PLAYED)
def test_requests_follow_as_in_kueue(case: dict[str, Any]) -> None:
    given, want = case["given"], case["want"]
    played = Played(given)
    if case["name"] == UNANSWERABLE:
        assert "has no assignment" in played.verdicts["check1"].verdict.message
        assert not played.asked
        return
    created = [event for event in want["events"] if event["reason"] == "ProvisioningRequestCreated"]
    assert len(played.asked) == (len(created) or len(played.asked))
    for name in want.get("requestsNotFound", ()):
        assert name not in played.open()
    for name, wanted in want.get("requests", {}).items():
        spec = played.open()[name].spec
        wanted_class = wanted["spec"].get("provisioningClassName", "")
        assert spec.provisioning_class_name == wanted_class
        assert spec.parameters == wanted["spec"].get("parameters", {})
        assert [
            (template_name(name, pod_set.name), pod_set.count) for pod_set in spec.pod_sets
        ] == [
            (expected["podTemplateRef"]["name"], expected["count"])
            for expected in wanted["spec"]["podSets"]
        ]
    for name, wanted in want.get("templates", {}).items():
        _same_pods(played, name, wanted["template"])
    for wanted in want.get("workloads", {}).values():
        for row in wanted["status"].get("admissionChecks", ()):
            _same_row(case["name"], given, played, row)


def _same_pods(played: Played, name: str, wanted: Mapping[str, Any]) -> None:
    templates = {
        template_name(record.metadata.name, pod_set.name): msgspec.json.decode(
            bytes(pod_set.template)
        )
        for record in played.open().values()
        for pod_set in record.spec.pod_sets
        if bytes(pod_set.template) != b"null"
    }
    if name not in templates:
        return  # It stood before: what is in it was given.
    spec, other = templates[name]["spec"], wanted["spec"]
    assert spec.get("nodeSelector", {}) == other.get("nodeSelector", {})
    assert spec.get("tolerations", []) == other.get("tolerations", [])
    resources = [container.get("resources", {}) for container in spec["containers"]]
    for mine, theirs in zip(resources, other["containers"], strict=True):
        assert mine.get("requests", {}) == theirs.get("resources", {}).get("requests", {})


def _same_row(name: str, given: Mapping[str, Any], played: Played, wanted: Any) -> None:
    before = next(
        row
        for row in given["workload"]["status"]["admissionChecks"]
        if row["name"] == wanted["name"]
    )
    tell = played.verdicts.get(wanted["name"])
    state = tell.verdict.state if tell is not None else before["state"]
    message = tell.verdict.message if tell is not None else before.get("message", "")
    assert state == wanted["state"]
    assert message == (wanted.get("message") or MESSAGES.get(name, "") or "") or (
        wanted["name"] != "check1"
    )
    if tell is None:
        return
    if wanted.get("requeueAfterSeconds") is not None:
        assert tell.verdict.after == wanted["requeueAfterSeconds"]
    updates = {update.name: update for update in tell.verdict.updates}
    assert updates.keys() == {expected["name"] for expected in wanted.get("podSetUpdates", ())}
    for expected in wanted.get("podSetUpdates", ()):
        assert updates[expected["name"]].node_selector == expected.get("nodeSelector", {})
        assert updates[expected["name"]].annotations == expected.get("annotations", {})


@pytest.mark.parametrize("case", cases("provisioning/TestReqIsNeeded"))
def test_a_request_is_needed_where_some_pod_uses_what_is_managed(case: dict[str, Any]) -> None:
    given, want = case["given"], case["want"]
    config = decode_object(given["provisioningRequestConfig"]).manifest.spec
    whole = msgspec.json.decode(msgspec.json.encode(given["workload"]))
    pods = {pod_set["name"]: pod_set for pod_set in whole["spec"]["podSets"]}
    for assignment in whole["status"]["admission"]["podSetAssignments"]:
        # Here every assignment tells how many were admitted.
        assignment.setdefault("count", pods.get(assignment["name"], {}).get("count", 0))
    work = a_workload(whole)
    pod_sets = spec_of(work.spec).pod_sets
    try:
        assigned = assigned_pod_sets(pod_sets, work.status.admission, config.managed_resources)
    except IncompleteReservation:
        # There the first pod set that needs a request is enough; here all are asked for at once.
        assert "err" in want or case["name"] == (
            "needed podset short circuits later missing assignment"
        )
        return
    assert bool(assigned) == want["result"]


@pytest.mark.parametrize("case", cases("provisioning/TestReconcileAdmissionCheck"))
def test_a_check_can_be_evaluated_with_its_parameters(case: dict[str, Any]) -> None:
    given, want = case["given"], case["want"].get("condition")
    observed = ObservedState()
    check = given["check"]
    name = check["metadata"]["name"]
    observed.check(name, manifest_of(check))
    for raw in given.get("configs", ()):
        whole = {**raw, "spec": {"provisioningClassName": "class", **raw.get("spec", {})}}
        observed.config(raw["metadata"]["name"], manifest_of(whole))
    trouble = observed.trouble(name)
    if want is None:
        assert name not in observed.checks
    elif want["status"] == "True":
        assert trouble is None
    else:
        assert trouble is not None
        assert trouble.reason == want["reason"]
        assert trouble.message


@pytest.mark.parametrize("case", cases("provisioning/TestActiveOrLastPRForChecks"))
def test_the_last_attempt_counts(case: dict[str, Any]) -> None:
    """There requests of earlier attempts may stand beside; here there is one of a slot, and of two
    the newer counts."""
    given, want = case["given"], case["want"].get("result", {})
    core = ProvisioningCore(None)
    work = a_workload(given["workload"])
    ordered = sorted(given.get("requests", ()), key=lambda raw: raw["metadata"]["name"])
    for number, raw in enumerate(ordered, 1):
        record = a_record(raw, work)
        core.observed.record(("ns", record.metadata.name), record, number)
    names = {slot.check: kept.record.metadata.name for slot, kept in core.observed.records.items()}
    assert names == {check: raw["metadata"]["name"] for check, raw in want.items()}


@pytest.mark.parametrize("case", cases("provisioning/TestUpdateCheckMessage"))
def test_a_message_is_published_only_when_it_differs(case: dict[str, Any]) -> None:
    given, want = case["given"], case["want"]
    shown, new = given.get("message", ""), given.get("newMessage", "")
    config = an_object("ProvisioningRequestConfig", "config1", {"provisioningClassName": "class1"})
    check = admission_check(
        "check1",
        "kueue.x-k8s.io/provisioning-request",
        parameters={
            "apiGroup": "kueue.x-k8s.io",
            "kind": "ProvisioningRequestConfig",
            "name": "config1",
        },
    )
    pods = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    place = {"name": "main", "count": 1, "flavors": {"cpu": "f"}}
    row = {"name": "check1", "state": "Pending", "message": shown}
    work = an_object(
        "Workload",
        "wl",
        {"podSets": [{"name": "main", "count": 1, "template": {"spec": pods}}]},
        namespace="ns",
        status={
            "admission": {"clusterQueue": "q", "podSetAssignments": [place]},
            "admissionChecks": [row],
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "R"}],
        },
    )
    conditions = [
        {"type": "Accepted", "status": "True"},
        {"type": "Provisioned", "status": "False", "message": new},
    ]
    request = {
        "metadata": {"name": "wl-check1-1"},
        "spec": {"provisioningClassName": "class1", "podSets": []},
        "status": {"conditions": conditions},
    }
    played = Played(
        {
            "checks": [check], "configs": [config], "workload": work, "requests": [request],
            "now": "2026-01-01T00:00:00Z",
        }
    )  # fmt: skip
    assert ("check1" in played.verdicts) == want["changed"]
    if want["changed"]:
        assert played.verdicts["check1"].verdict.message == want.get("message", "")
