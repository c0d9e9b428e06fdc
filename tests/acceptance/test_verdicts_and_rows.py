"""Two-stage admission: rows, late and foreign verdicts, what checks add to pods.
docs/spec/lifecycle.md#7.1."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.reading.manifest import ManifestError, read
from admittance.cli.show.objects import check_conditions
from admittance.control.manifests.planned_writes import deletion_mark, unneeded_objects
from admittance.events import facts
from admittance.events.shapes import PodSetUpdate
from admittance.workload.conditions import find
from admittance.workload.stored import encode, head
from support.cores.stepped_scheduler import groups
from support.cores.timed_cores import TimedCores, cores_with_queue

scenario = pytest.mark.scenario


def with_checks(cores: TimedCores, *checks: str) -> None:
    """Makes the queue list these checks."""
    spec = cores.spec("ClusterQueue", "cq")
    cores.put("ClusterQueue", "cq", {**spec, "admissionChecks": list(checks)})
    cores.go()


@scenario("A17")
def test_an_edit_of_the_list_during_the_wait_leaves_what_stays_as_it_is() -> None:
    cores = cores_with_queue("c1", "c2")
    cores.check("c3")
    cores.submit("w", "cq", "8")
    cores.go()
    cores.report("w", "c1", "Ready")
    cores.report("w", "c2", "Retry", after=60, message="full")
    before = msgspec.json.encode(cores.rows("w")["c2"])
    cores.advance(10)
    with_checks(cores, "c2", "c3")
    assert cores.states("w") == {"c2": "Retry", "c3": "Pending"}
    assert msgspec.json.encode(cores.rows("w")["c2"]) == before
    assert (cores.phase("w"), cores.wait("w")) == ("Backoff", 50)
    with_checks(cores, "c3")
    assert cores.states("w") == {"c3": "Pending"}
    assert cores.wait("w") is None
    assert cores.phase("w") == "QuotaReserved", "its delay went with the check"


@scenario("A19")
def test_a_queue_with_a_missing_check_admits_nothing_until_it_exists() -> None:
    cores = cores_with_queue()
    with_checks(cores, "c1")
    cores.submit("w", "cq", "8")
    cores.go()
    cores.advance(60)
    assert (cores.activity("cq"), cores.phase("w")) == ("AdmissionCheckNotFound", "Pending")
    cores.check("c1")
    cores.go()
    assert (cores.activity("cq"), cores.phase("w")) == ("", "QuotaReserved")


def active(cores: TimedCores, name: str, status: str, reason: str) -> None:
    condition = {"type": "Active", "status": status, "reason": reason, "message": ""}
    cores.put(
        "AdmissionCheck",
        name,
        {"controllerName": f"ctl-{name}"},
        status={"conditions": [condition]},
    )
    cores.go()


@scenario("A19")
@pytest.mark.parametrize("of_flavor", [False, True], ids=["queue-wide", "of a flavor"])
def test_a_queue_with_an_inactive_check_admits_nothing_until_it_is_active(of_flavor: bool) -> None:
    cores = cores_with_queue()
    cores.check("c1")
    if of_flavor:
        (group,) = groups(default="10")
        group["flavors"][0]["admissionChecks"] = ["c1"]
        cores.queue("cq", resourceGroups=[group])
    else:
        with_checks(cores, "c1")
    cores.submit("before", "cq", "1")
    cores.submit("ran", "cq", "1")
    cores.go()
    cores.report("ran", "c1", "Ready")
    active(cores, "c1", "False", "BadParametersRef")
    cores.submit("w", "cq", "1")
    cores.go()
    assert cores.activity("cq") == "AdmissionCheckInactive"
    assert cores.phases("w", "before", "ran") == ["Pending", "QuotaReserved", "Admitted"]
    active(cores, "c1", "True", "Active")
    assert (cores.activity("cq"), cores.phase("w")) == ("", "QuotaReserved")


def label(**labels: str) -> tuple[PodSetUpdate, ...]:
    return (PodSetUpdate(name="main", labels=labels),)


@scenario("A21")
@pytest.mark.parametrize("last", ["c1", "c2"])
def test_conflicting_labels_of_two_checks_reject_before_the_start(
    last: str,
) -> None:
    cores = cores_with_queue("c1", "c2")
    cores.submit("w", "cq", "8")
    cores.go()
    first = "c2" if last == "c1" else "c1"
    cores.report("w", first, "Ready", pod_set_updates=label(pool=f"of-{first}"))
    cores.report("w", last, "Ready", pod_set_updates=label(pool=f"of-{last}"))
    assert cores.phase("w") == "Rejected"
    assert cores.starts("w") == 0
    assert cores.usage("cq") == 0
    (said,) = [fact for fact in cores.published if isinstance(fact, facts.Rejected)]
    # Of the checks that set the key, the last one by name.
    assert '"c2"' in said.message
    for word in ("pool", "of-c1", "of-c2"):
        assert word in said.message


PLACES = [
    pytest.param(
        {"metadata": {"labels": {"pool": "mine"}}},
        PodSetUpdate(name="main", labels={"pool": "theirs"}),
        id="a label",
    ),
    pytest.param(
        {"metadata": {"annotations": {"pool": "mine"}}},
        PodSetUpdate(name="main", annotations={"pool": "theirs"}),
        id="an annotation",
    ),
    pytest.param(
        {"spec": {"nodeSelector": {"pool": "mine"}}},
        PodSetUpdate(name="main", node_selector={"pool": "theirs"}),
        id="a node selector",
    ),
]


def submit_template(cores: TimedCores, name: str, template: dict[str, Any]) -> None:
    """Submits a workload of 8 cpu with further fields in its pod template."""
    container = {"name": "c", "command": ["true"], "resources": {"requests": {"cpu": "8"}}}
    spec = {"containers": [container], **template.get("spec", {})}
    pods = {"name": "main", "count": 1, "template": {**template, "spec": spec}}
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queueName": "cq", "podSets": [pods]},
    }
    cores.publish(facts.Submitted, name, workload=msgspec.Raw(json.dumps(manifest).encode()))


@scenario("A21")
@pytest.mark.parametrize(("template", "update"), PLACES)
def test_a_check_may_not_change_what_the_template_says(
    template: dict[str, Any], update: PodSetUpdate
) -> None:
    cores = cores_with_queue("c1")
    submit_template(cores, "w", template)
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    cores.report("w", "c1", "Ready", pod_set_updates=(update,))
    assert (cores.phase("w"), cores.starts("w")) == ("Rejected", 0)
    message = cores.message("w", "Evicted")
    for word in ("c1", "pool", "mine", "theirs"):
        assert word in message


@scenario("A21")
def test_a_check_may_not_change_what_the_flavor_says() -> None:
    cores = TimedCores()
    cores.put("ResourceFlavor", "f", {"nodeLabels": {"pool": "spot"}})
    cores.check("c1")
    cores.queue("cq", resourceGroups=groups(f="10"), admissionChecks=["c1"])
    cores.submit("w", "cq", "8")
    cores.go()
    update = PodSetUpdate(name="main", node_selector={"pool": "other"})
    cores.report("w", "c1", "Ready", pod_set_updates=(update,))
    assert (cores.phase("w"), cores.starts("w")) == ("Rejected", 0)
    for word in ("pool", "spot", "other"):
        assert word in cores.message("w", "Evicted")


@scenario("A21")
def test_equal_updates_do_not_conflict_and_tolerations_are_merged() -> None:
    cores = cores_with_queue("c1", "c2")
    cores.submit("w", "cq", "8")
    cores.go()
    toleration = {"key": "spot", "operator": "Exists"}
    for check, more in (("c1", {"a": "1"}), ("c2", {"b": "2"})):
        update = PodSetUpdate(
            name="main", labels={"pool": "one", **more}, tolerations=(toleration,)
        )
        cores.report("w", check, "Ready", pod_set_updates=(update,))
    assert cores.phase("w") == "Admitted"
    (admitted,) = [fact for fact in cores.published if isinstance(fact, facts.Admitted)]
    (pods,) = admitted.pod_sets
    assert pods.labels == {"pool": "one", "a": "1", "b": "2"}
    assert list(pods.tolerations) == [toleration]


@scenario("A21")
def test_a_conflict_found_by_the_runner_ends_the_job_without_a_retry() -> None:
    cores = cores_with_queue("c1")
    cores.submit("w", "cq", "8")
    cores.go()
    cores.report("w", "c1", "Ready")
    revision = cores.stored("w").status.admitted_revision
    cores.publish(
        facts.Finished, "w", revision=revision, succeeded=False, reason="FailedToStart",
        message="label pool: theirs, and mine",
    )  # fmt: skip
    cores.go()
    assert cores.reason("w", "Finished") == "True: FailedToStart"
    assert cores.usage("cq") == 0
    cores.advance(86_400)
    assert (cores.phase("w"), cores.starts("w")) == ("Finished", 1)


@scenario("A22")
def test_a_rejection_during_an_eviction_is_not_lost() -> None:
    for reason in ("Retry", "Preempted"):
        cores = cores_with_queue("c1", "c2", preemption={"withinClusterQueue": "LowerPriority"})
        cores.submit("w", "cq", "8")
        cores.go()
        cores.report("w", "c1", "Ready")
        cores.report("w", "c2", "Ready")
        cores.slow_jobs.add("w")
        cycle = cores.stored("w").status.admission_cycle
        if reason == "Retry":
            cores.report("w", "c1", "Retry", after=60)
        else:
            cores.submit("high", "cq", "8", priority=10)
            cores.go()
        assert cores.phase("w") == "Evicting"
        assert cores.answer("w", "c2", "Rejected", cycle=cycle, message="never") is None
        assert cores.phase("w") == "Rejected"
        assert cores.reason("w", "Evicted") == "True: DeactivatedDueToAdmissionCheck"
        cores.stop("w")
        cores.advance(3600)
        assert (cores.phase("w"), cores.starts("w")) == ("Rejected", 1)
        assert not cores.waits_for("w")


@scenario("A22")
def test_a_rejection_counts_after_the_stop_until_the_next_reservation() -> None:
    cores = cores_with_queue("c1", preemption={"withinClusterQueue": "LowerPriority"})
    cores.submit("w", "cq", "8")
    cores.go()
    cycle = cores.stored("w").status.admission_cycle
    cores.submit("high", "cq", "8", priority=10)
    cores.go()
    assert cores.phase("w") == "Pending"
    assert cores.answer("w", "c1", "Rejected", cycle=cycle) is None
    assert cores.phase("w") == "Rejected"


STALE = [
    pytest.param({"state": "Ready", "cycle": 0}, id="an old cycle"),
    pytest.param({"state": "Rejected", "cycle": 0}, id="a rejection of an old cycle"),
    pytest.param({"state": "Retry", "cycle": 0}, id="a retry without delay of an old cycle"),
    pytest.param({"state": "Ready", "cycle": 99}, id="a cycle to come"),
    pytest.param({"state": "Ready", "controller": "ctl-c2"}, id="a foreign controller"),
    pytest.param({"state": "Rejected", "controller": "absent"}, id="an unknown controller"),
    pytest.param({"state": "Ready", "check": "c9"}, id="a missing row"),
    pytest.param({"state": "Perhaps"}, id="an unknown state"),
    pytest.param({"state": "Retry", "after": -1}, id="a delay below nothing"),
]


@scenario("A23")
@pytest.mark.parametrize("said", STALE)
def test_a_stale_or_foreign_verdict_changes_nothing(said: dict[str, Any]) -> None:
    cores = cores_with_queue("c1", "c2")
    cores.submit("w", "cq", "8")
    cores.go()
    # Two rounds, the last of them no retry's: no exception for old verdicts holds.
    for _ in range(2):
        cores.report("w", "c1", "Retry")
    cores.publish(facts.Deactivated, "w")
    cores.publish(facts.Activated, "w")
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    before, timers = encode(cores.stored("w")), cores.waits_for("w")
    more = dict(said)
    outcome = cores.answer("w", more.pop("check", "c1"), more.pop("state"), **more)
    assert outcome is not None
    assert outcome.outcome in ("ignored", "refused")
    assert outcome.reason
    assert outcome.message
    cores.go()
    assert encode(cores.stored("w")) == before
    assert cores.waits_for("w") == timers
    for check in ("c1", "c2"):
        cores.report("w", check, "Ready")
    assert cores.phase("w") == "Admitted"


MINUTES = """
apiVersion: kueue.x-k8s.io/{version}
kind: AdmissionCheck
metadata: {{name: c1}}
spec: {{controllerName: ctl-c1, retryDelayMinutes: 15}}
"""


@scenario("A28")
def test_the_old_delay_is_read_with_a_warning_and_has_no_effect() -> None:
    (document,) = read(MINUTES.format(version="v1beta1"), "check.yaml")
    assert any("retryDelayMinutes" in warning for warning in document.warnings)
    cores = cores_with_queue("c1")
    cores.put("AdmissionCheck", "c1", json.loads(document.raw)["spec"])
    cores.submit("w", "cq", "8")
    cores.go()
    cores.report("w", "c1", "Retry")
    assert cores.phase("w") == "QuotaReserved"
    assert cores.seconds() == 0, "no hidden fifteen minutes"
    assert len(cores.requests("c1", "w")) == 2


@scenario("A28")
def test_the_old_delay_field_is_refused_by_its_name() -> None:
    with pytest.raises(ManifestError, match="retryDelayMinutes"):
        read(MINUTES.format(version="v1beta2"), "check.yaml")


class Budget:
    """A budget per namespace, as an outside author would write it: it uses the requests and what
    was spent, and nothing else of Admittance."""

    def __init__(self, cores: TimedCores) -> None:
        self.cores = cores
        self.spent: dict[str, float] = {}
        self.read = 0
        self.jobs: dict[str, facts.CheckRequested] = {}

    def look(self) -> None:
        """Answers all open requests, and gives new verdicts to the workloads that passed before."""
        for fact in self.cores.check_facts[self.read :]:
            if isinstance(fact, facts.CheckRequested) and fact.check == "budget":
                self.jobs[fact.name] = fact
        self.read = len(self.cores.check_facts)
        for job in list(self.jobs.values()):
            rules = msgspec.json.decode(job.parameters)
            over = self.spent.get(job.namespace, 0) >= rules["weekly"]
            self.cores.namespace = job.namespace
            if over:
                del self.jobs[job.name]
                monday = self.cores.now + timedelta(days=3)
                said = f"the week's budget is spent, next try {monday.isoformat()}"
                self.cores.answer(job.name, "budget", "Retry", after=3 * 86_400, message=said)
            else:
                self.cores.answer(job.name, "budget", "Ready", message="within budget")
        self.cores.namespace = "ns"
        self.cores.go()


@scenario("A29")
def test_a_budget_check_by_namespace_works_on_the_public_protocol() -> None:
    cores = cores_with_queue()
    cores.put("Budget", "team", {"weekly": 100}, apiVersion="example.com/v1")
    named = {"apiGroup": "example.com", "kind": "Budget", "name": "team"}
    cores.put("AdmissionCheck", "budget", {"controllerName": "ctl-budget", "parameters": named})
    with_checks(cores, "budget")
    cores.put("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="other")
    budget = Budget(cores)
    budget.spent["other"] = 120
    for namespace, name in (("ns", "under"), ("other", "over")):
        cores.namespace = namespace
        cores.submit(name, "cq", "1")
    cores.go()
    budget.look()
    assert cores.phase("under") == "Admitted"
    cores.namespace = "other"
    assert cores.phase("over") == "Backoff"
    assert "next try 2026-01-04T12:00:00" in cores.message("over", "Evicted")
    cores.advance(3 * 86_400 - 1)
    assert cores.phase("over") == "Backoff"
    budget.spent.clear()
    cores.advance(1)
    budget.look()
    cores.namespace = "other"
    assert cores.phase("over") == "Admitted"
    cores.namespace = "ns"
    untouched = encode(cores.stored("under"))
    budget.spent["other"] = 100
    cores.advance(60)
    budget.look()
    assert encode(cores.stored("under")) == untouched
    cores.namespace = "other"
    assert cores.phase("over") == "Backoff"
    assert cores.job_events[-2:] == [
        ("stopped", "over", cores.seconds()),
        ("freed", "over", cores.seconds()),
    ]
    evicted = find(cores.stored("over"), "Evicted")
    assert evicted is not None
    assert evicted.reason == "AdmissionCheck"
    assert head(cores.stored("over")).active


@scenario("A20")
def test_a_deleted_check_stays_until_the_last_queue_that_names_it_is_gone() -> None:
    cores = cores_with_queue("c1")
    cores.queue("other", resourceGroups=groups(default="10"), admissionChecks=["c1"])
    cores.submit("w", "cq", "8")
    cores.go()
    kept = cores.controller.objects.get("admissioncheck.c1")
    assert kept is not None
    going = deletion_mark("admissioncheck.c1", kept, cores.now)
    cores.put(
        "AdmissionCheck", "c1", cores.spec("AdmissionCheck", "c1"),
        metadata={"deletionTimestamp": going.object.metadata.deletion_timestamp.isoformat()},
    )  # fmt: skip
    cores.go()
    assert unneeded_objects(cores.controller) == []
    assert cores.states("w") == {"c1": "Pending"}, "the check continues for the judged workload"
    cores.report("w", "c1", "Ready")
    assert cores.phase("w") == "Admitted"
    with_checks(cores)
    assert unneeded_objects(cores.controller) == []
    cores.delete("ClusterQueue", "other")
    assert [key for key, _ in unneeded_objects(cores.controller)] == ["admissioncheck.c1"]


@scenario("A27")
def test_check_states_are_shown_as_conditions_named_like_their_checks() -> None:
    checks = ["pending", "ready", "rejected", "required", "retry"]
    cores = cores_with_queue(*checks)
    cores.submit("w", "cq", "8")
    cores.go()
    cores.report("w", "ready", "Ready", message="fine")
    cores.report("w", "required", "Pending", reason="PreemptionRequired", message="needs room")
    cores.report("w", "retry", "Retry", after=60, message="later")
    rows = msgspec.to_builtins(cores.stored("w").status.admission_checks)
    # A rejection clears the rows in the same write, so its row is one as a check asks for it.
    for row in rows:
        if row["name"] == "rejected":
            row["state"] = "Rejected"
    conditions = {
        check_condition["type"]: (check_condition["status"], check_condition["reason"])
        for check_condition in check_conditions(rows)
    }
    assert conditions == {
        "pending": ("Unknown", "Pending"),
        "ready": ("True", "Ready"),
        "rejected": ("False", "Reject"),
        "required": ("Unknown", "PreemptionRequired"),
        "retry": ("False", "Retry"),
    }
    messages = {
        check_condition["type"]: check_condition.get("message", "")
        for check_condition in check_conditions(rows)
    }
    assert messages["retry"] == "later"
    assert messages["required"] == "needs room"
