"""Two-stage admission: rows, late and foreign verdicts, what checks add to pods. LIFECYCLE 7.1."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.reading.manifest import ManifestError, read
from admittance.cli.show.objects import check_conditions
from admittance.control.manifest_changes import marked, unneeded
from admittance.events import facts
from admittance.events.shapes import PodSetUpdate
from admittance.workload.conditions import find
from admittance.workload.stored import encode, head
from support.cores.scheduling_story import groups

from long_living import LongLife, a_long_life

scenario = pytest.mark.scenario


def with_checks(life: LongLife, *checks: str) -> None:
    """The queue's list is now so."""
    spec = life.spec("ClusterQueue", "cq")
    life.put("ClusterQueue", "cq", {**spec, "admissionChecks": list(checks)})
    life.go()


@scenario("A17")
def test_an_edit_of_the_list_during_the_wait_leaves_what_stays_as_it_is() -> None:
    life = a_long_life("c1", "c2")
    life.check("c3")
    life.submit("w", "cq", "8")
    life.go()
    life.judge("w", "c1", "Ready")
    life.judge("w", "c2", "Retry", after=60, message="full")
    before = msgspec.json.encode(life.rows("w")["c2"])
    life.advance(10)
    with_checks(life, "c2", "c3")
    assert life.states("w") == {"c2": "Retry", "c3": "Pending"}
    assert msgspec.json.encode(life.rows("w")["c2"]) == before
    assert (life.phase("w"), life.wait("w")) == ("Backoff", 50)
    with_checks(life, "c3")
    assert life.states("w") == {"c3": "Pending"}
    assert life.wait("w") is None
    assert life.phase("w") == "QuotaReserved", "its delay went with the check"


@scenario("A19")
def test_a_queue_with_a_missing_check_admits_nothing_until_it_exists() -> None:
    life = a_long_life()
    with_checks(life, "c1")
    life.submit("w", "cq", "8")
    life.go()
    life.advance(60)
    assert (life.activity("cq"), life.phase("w")) == ("AdmissionCheckNotFound", "Pending")
    life.check("c1")
    life.go()
    assert (life.activity("cq"), life.phase("w")) == ("", "QuotaReserved")


def active(life: LongLife, name: str, status: str, reason: str) -> None:
    condition = {"type": "Active", "status": status, "reason": reason, "message": ""}
    life.put(
        "AdmissionCheck",
        name,
        {"controllerName": f"ctl-{name}"},
        status={"conditions": [condition]},
    )
    life.go()


@scenario("A19")
@pytest.mark.parametrize("of_flavor", [False, True], ids=["queue-wide", "of a flavor"])
def test_a_queue_with_an_inactive_check_admits_nothing_until_it_is_active(of_flavor: bool) -> None:
    life = a_long_life()
    life.check("c1")
    if of_flavor:
        (group,) = groups(default="10")
        group["flavors"][0]["admissionChecks"] = ["c1"]
        life.queue("cq", resourceGroups=[group])
    else:
        with_checks(life, "c1")
    life.submit("before", "cq", "1")
    life.submit("ran", "cq", "1")
    life.go()
    life.judge("ran", "c1", "Ready")
    active(life, "c1", "False", "BadParametersRef")
    life.submit("w", "cq", "1")
    life.go()
    assert life.activity("cq") == "AdmissionCheckInactive"
    assert life.phases("w", "before", "ran") == ["Pending", "QuotaReserved", "Admitted"]
    active(life, "c1", "True", "Active")
    assert (life.activity("cq"), life.phase("w")) == ("", "QuotaReserved")


def label(**labels: str) -> tuple[PodSetUpdate, ...]:
    return (PodSetUpdate(name="main", labels=labels),)


@scenario("A21")
@pytest.mark.parametrize("last", ["c1", "c2"])
def test_conflicting_labels_of_two_checks_reject_before_the_start(
    last: str,
) -> None:
    life = a_long_life("c1", "c2")
    life.submit("w", "cq", "8")
    life.go()
    first = "c2" if last == "c1" else "c1"
    life.judge("w", first, "Ready", pod_set_updates=label(pool=f"of-{first}"))
    life.judge("w", last, "Ready", pod_set_updates=label(pool=f"of-{last}"))
    assert life.phase("w") == "Rejected"
    assert life.starts("w") == 0
    assert life.usage("cq") == 0
    (said,) = [one for one in life.said if isinstance(one, facts.Rejected)]
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


def submit_template(life: LongLife, name: str, template: dict[str, Any]) -> None:
    """A workload of 8 cpu with more in its pod template."""
    container = {"name": "c", "command": ["true"], "resources": {"requests": {"cpu": "8"}}}
    spec = {"containers": [container], **template.get("spec", {})}
    pods = {"name": "main", "count": 1, "template": {**template, "spec": spec}}
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queueName": "cq", "podSets": [pods]},
    }
    life.say(facts.Submitted, name, workload=msgspec.Raw(json.dumps(manifest).encode()))


@scenario("A21")
@pytest.mark.parametrize(("template", "update"), PLACES)
def test_a_check_may_not_change_what_the_template_says(
    template: dict[str, Any], update: PodSetUpdate
) -> None:
    life = a_long_life("c1")
    submit_template(life, "w", template)
    life.go()
    assert life.phase("w") == "QuotaReserved"
    life.judge("w", "c1", "Ready", pod_set_updates=(update,))
    assert (life.phase("w"), life.starts("w")) == ("Rejected", 0)
    message = life.message("w", "Evicted")
    for word in ("c1", "pool", "mine", "theirs"):
        assert word in message


@scenario("A21")
def test_a_check_may_not_change_what_the_flavor_says() -> None:
    life = LongLife()
    life.put("ResourceFlavor", "f", {"nodeLabels": {"pool": "spot"}})
    life.check("c1")
    life.queue("cq", resourceGroups=groups(f="10"), admissionChecks=["c1"])
    life.submit("w", "cq", "8")
    life.go()
    update = PodSetUpdate(name="main", node_selector={"pool": "other"})
    life.judge("w", "c1", "Ready", pod_set_updates=(update,))
    assert (life.phase("w"), life.starts("w")) == ("Rejected", 0)
    for word in ("pool", "spot", "other"):
        assert word in life.message("w", "Evicted")


@scenario("A21")
def test_equal_updates_do_not_conflict_and_tolerations_are_merged() -> None:
    life = a_long_life("c1", "c2")
    life.submit("w", "cq", "8")
    life.go()
    toleration = {"key": "spot", "operator": "Exists"}
    for check, more in (("c1", {"a": "1"}), ("c2", {"b": "2"})):
        update = PodSetUpdate(
            name="main", labels={"pool": "one", **more}, tolerations=(toleration,)
        )
        life.judge("w", check, "Ready", pod_set_updates=(update,))
    assert life.phase("w") == "Admitted"
    (admitted,) = [one for one in life.said if isinstance(one, facts.Admitted)]
    (pods,) = admitted.pod_sets
    assert pods.labels == {"pool": "one", "a": "1", "b": "2"}
    assert list(pods.tolerations) == [toleration]


@scenario("A21")
def test_a_conflict_found_by_the_runner_ends_the_job_without_a_retry() -> None:
    life = a_long_life("c1")
    life.submit("w", "cq", "8")
    life.go()
    life.judge("w", "c1", "Ready")
    revision = life.stored("w").status.admitted_revision
    life.say(
        facts.Finished, "w", revision=revision, succeeded=False, reason="FailedToStart",
        message="label pool: theirs, and mine",
    )  # fmt: skip
    life.go()
    assert life.reason("w", "Finished") == "True: FailedToStart"
    assert life.usage("cq") == 0
    life.advance(86_400)
    assert (life.phase("w"), life.starts("w")) == ("Finished", 1)


@scenario("A22")
def test_a_rejection_during_an_eviction_is_not_lost() -> None:
    for reason in ("Retry", "Preempted"):
        life = a_long_life("c1", "c2", preemption={"withinClusterQueue": "LowerPriority"})
        life.submit("w", "cq", "8")
        life.go()
        life.judge("w", "c1", "Ready")
        life.judge("w", "c2", "Ready")
        life.stubborn.add("w")
        cycle = life.stored("w").status.admission_cycle
        if reason == "Retry":
            life.judge("w", "c1", "Retry", after=60)
        else:
            life.submit("high", "cq", "8", priority=10)
            life.go()
        assert life.phase("w") == "Evicting"
        assert life.answer("w", "c2", "Rejected", cycle=cycle, message="never") is None
        assert life.phase("w") == "Rejected"
        assert life.reason("w", "Evicted") == "True: DeactivatedDueToAdmissionCheck"
        life.stop("w")
        life.advance(3600)
        assert (life.phase("w"), life.starts("w")) == ("Rejected", 1)
        assert not life.timers("w")


@scenario("A22")
def test_a_rejection_counts_after_the_stop_until_the_next_reservation() -> None:
    life = a_long_life("c1", preemption={"withinClusterQueue": "LowerPriority"})
    life.submit("w", "cq", "8")
    life.go()
    cycle = life.stored("w").status.admission_cycle
    life.submit("high", "cq", "8", priority=10)
    life.go()
    assert life.phase("w") == "Pending"
    assert life.answer("w", "c1", "Rejected", cycle=cycle) is None
    assert life.phase("w") == "Rejected"


STALE = [
    pytest.param({"state": "Ready", "cycle": 0}, id="an old cycle"),
    pytest.param({"state": "Rejected", "cycle": 0}, id="a rejection of an old cycle"),
    pytest.param({"state": "Retry", "cycle": 0}, id="a retry without delay of an old cycle"),
    pytest.param({"state": "Ready", "cycle": 99}, id="a cycle to come"),
    pytest.param({"state": "Ready", "controller": "ctl-c2"}, id="a foreign controller"),
    pytest.param({"state": "Rejected", "controller": "nobody"}, id="an unknown controller"),
    pytest.param({"state": "Ready", "check": "c9"}, id="a missing row"),
    pytest.param({"state": "Perhaps"}, id="an unknown state"),
    pytest.param({"state": "Retry", "after": -1}, id="a delay below nothing"),
]


@scenario("A23")
@pytest.mark.parametrize("said", STALE)
def test_a_stale_or_foreign_verdict_changes_nothing(said: dict[str, Any]) -> None:
    life = a_long_life("c1", "c2")
    life.submit("w", "cq", "8")
    life.go()
    # Two rounds, the last of them no retry's: no exception for old verdicts holds.
    for _ in range(2):
        life.judge("w", "c1", "Retry")
    life.say(facts.Deactivated, "w")
    life.say(facts.Activated, "w")
    life.go()
    assert life.phase("w") == "QuotaReserved"
    before, timers = encode(life.stored("w")), life.timers("w")
    more = dict(said)
    outcome = life.answer("w", more.pop("check", "c1"), more.pop("state"), **more)
    assert outcome is not None
    assert outcome.outcome in ("ignored", "refused")
    assert outcome.reason
    assert outcome.message
    life.go()
    assert encode(life.stored("w")) == before
    assert life.timers("w") == timers
    for check in ("c1", "c2"):
        life.judge("w", check, "Ready")
    assert life.phase("w") == "Admitted"


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
    life = a_long_life("c1")
    life.put("AdmissionCheck", "c1", json.loads(document.raw)["spec"])
    life.submit("w", "cq", "8")
    life.go()
    life.judge("w", "c1", "Retry")
    assert life.phase("w") == "QuotaReserved"
    assert life.seconds() == 0, "no hidden fifteen minutes"
    assert len(life.requests("c1", "w")) == 2


@scenario("A28")
def test_the_old_delay_field_is_refused_by_its_name() -> None:
    with pytest.raises(ManifestError, match="retryDelayMinutes"):
        read(MINUTES.format(version="v1beta2"), "check.yaml")


class Budget:
    """A budget per namespace, as an outside author would write it: it uses the requests and what
    was spent, and nothing else of Admittance."""

    def __init__(self, life: LongLife) -> None:
        self.life = life
        self.spent: dict[str, float] = {}
        self.heard = 0
        self.jobs: dict[str, facts.CheckRequested] = {}

    def look(self) -> None:
        """Answers all open requests, and judges the workloads again that passed before."""
        for one in self.life.asked[self.heard :]:
            if isinstance(one, facts.CheckRequested) and one.check == "budget":
                self.jobs[one.name] = one
        self.heard = len(self.life.asked)
        for one in list(self.jobs.values()):
            rules = msgspec.json.decode(one.parameters)
            over = self.spent.get(one.namespace, 0) >= rules["weekly"]
            self.life.namespace = one.namespace
            if over:
                del self.jobs[one.name]
                monday = self.life.now + timedelta(days=3)
                said = f"the week's budget is spent, next try {monday.isoformat()}"
                self.life.answer(one.name, "budget", "Retry", after=3 * 86_400, message=said)
            else:
                self.life.answer(one.name, "budget", "Ready", message="within budget")
        self.life.namespace = "ns"
        self.life.go()


@scenario("A29")
def test_a_budget_check_by_namespace_works_on_the_public_protocol() -> None:
    life = a_long_life()
    life.put("Budget", "team", {"weekly": 100}, apiVersion="example.com/v1")
    named = {"apiGroup": "example.com", "kind": "Budget", "name": "team"}
    life.put("AdmissionCheck", "budget", {"controllerName": "ctl-budget", "parameters": named})
    with_checks(life, "budget")
    life.put("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="other")
    budget = Budget(life)
    budget.spent["other"] = 120
    for namespace, name in (("ns", "under"), ("other", "over")):
        life.namespace = namespace
        life.submit(name, "cq", "1")
    life.go()
    budget.look()
    assert life.phase("under") == "Admitted"
    life.namespace = "other"
    assert life.phase("over") == "Backoff"
    assert "next try 2026-01-04T12:00:00" in life.message("over", "Evicted")
    life.advance(3 * 86_400 - 1)
    assert life.phase("over") == "Backoff"
    budget.spent.clear()
    life.advance(1)
    budget.look()
    life.namespace = "other"
    assert life.phase("over") == "Admitted"
    life.namespace = "ns"
    untouched = encode(life.stored("under"))
    budget.spent["other"] = 100
    life.advance(60)
    budget.look()
    assert encode(life.stored("under")) == untouched
    life.namespace = "other"
    assert life.phase("over") == "Backoff"
    assert life.story[-2:] == [
        ("stopped", "over", life.seconds()),
        ("freed", "over", life.seconds()),
    ]
    found = find(life.stored("over"), "Evicted")
    assert found is not None
    assert found.reason == "AdmissionCheck"
    assert head(life.stored("over")).active


@scenario("A20")
def test_a_deleted_check_stays_until_the_last_queue_that_names_it_is_gone() -> None:
    life = a_long_life("c1")
    life.queue("other", resourceGroups=groups(default="10"), admissionChecks=["c1"])
    life.submit("w", "cq", "8")
    life.go()
    kept = life.controller.objects.get("admissioncheck.c1")
    assert kept is not None
    going = marked("admissioncheck.c1", kept, life.now)
    life.put(
        "AdmissionCheck", "c1", life.spec("AdmissionCheck", "c1"),
        metadata={"deletionTimestamp": going.object.metadata.deletion_timestamp.isoformat()},
    )  # fmt: skip
    life.go()
    assert unneeded(life.controller) == []
    assert life.states("w") == {"c1": "Pending"}, "the check continues for the judged workload"
    life.judge("w", "c1", "Ready")
    assert life.phase("w") == "Admitted"
    with_checks(life)
    assert unneeded(life.controller) == []
    life.delete("ClusterQueue", "other")
    assert [key for key, _ in unneeded(life.controller)] == ["admissioncheck.c1"]


@scenario("A27")
def test_check_states_are_shown_as_conditions_named_like_their_checks() -> None:
    checks = ["pending", "ready", "rejected", "required", "retry"]
    life = a_long_life(*checks)
    life.submit("w", "cq", "8")
    life.go()
    life.judge("w", "ready", "Ready", message="fine")
    life.judge("w", "required", "Pending", reason="PreemptionRequired", message="needs room")
    life.judge("w", "retry", "Retry", after=60, message="later")
    rows = msgspec.to_builtins(life.stored("w").status.admission_checks)
    # A rejection clears the rows in the same write, so its row is one as a check asks for it.
    for one in rows:
        if one["name"] == "rejected":
            one["state"] = "Rejected"
    found = {one["type"]: (one["status"], one["reason"]) for one in check_conditions(rows)}
    assert found == {
        "pending": ("Unknown", "Pending"),
        "ready": ("True", "Ready"),
        "rejected": ("False", "Reject"),
        "required": ("Unknown", "PreemptionRequired"),
        "retry": ("False", "Retry"),
    }
    messages = {one["type"]: one.get("message", "") for one in check_conditions(rows)}
    assert messages["retry"] == "later"
    assert messages["required"] == "needs room"
