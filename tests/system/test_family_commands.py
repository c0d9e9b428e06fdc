"""The command `admit` shows and changes families of a whole running system."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from support.servers import answer_with
from system.test_cli import Up

pytestmark = pytest.mark.bus

QUEUES = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: reservation}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: human}
spec: {controllerName: admittance.dev/approval}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  concurrentAdmission:
    migrationConstraints: {mode: UpgradeOnly}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: reservation
      resources: [{name: cpu, nominalQuota: 1}]
    - name: spot
      resources: [{name: cpu, nominalQuota: 1}]
      admissionChecks: [human]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: team}
"""
BIGGER = QUEUES.replace("nominalQuota: 1}", "nominalQuota: 2}", 1)
BEST, WORST = "job-variant-reservation", "job-variant-spot"


@pytest.fixture(scope="module")
def admit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """``first`` runs on the reservation; ``job`` waits for a verdict about spot."""
    with Up(tmp_path_factory.mktemp("families")) as up:
        up.ok("apply", "-f", "-", stdin=QUEUES)
        submit(up, "first", "--flavor", "reservation")
        up.ok("wait", "workload", "first", "--for", "Running", "--timeout", "50s")
        submit(up, "job")
        answer_with(lambda: phase(up, WORST), lambda phase_shown: phase_shown == "QuotaReserved")
        yield up


def submit(up: Up, name: str, *more: str) -> None:
    asked = ("--cpu", "1", "--memory", "0", *more)
    up.ok("submit", "-q", "team", "--name", name, *asked, "--", "sleep", "600")


def rows(up: Up, *words: str) -> dict[str, list[str]]:
    """The lines of a table by their first word that is no mark."""
    lines = up.ok(*words).out.splitlines()
    rows = {}
    for line in lines[1:]:
        cells = [cell for cell in line.replace("├─", "").replace("└─", "").split() if cell]
        if cells:
            rows[cells[0]] = cells
    return rows


def phase(up: Up, name: str) -> str:
    return rows(up, "get", "workloads").get(name, ["", "", "", ""])[3]


def test_one_line_for_each_family_with_its_variants_beneath(admit: Up) -> None:
    lines = admit.ok("get", "workloads").out.splitlines()
    names = [line.split("  ")[0].rstrip() for line in lines[1:]]
    assert names == [
        "first",
        "└─ first-variant-reservation",
        "job",
        f"├─ {BEST}",
        f"└─ {WORST}",
    ]
    assert list(rows(admit, "get", "workload", "job")) == ["job", BEST, WORST]


def test_a_trace_has_the_variants_inside_their_parent(admit: Up) -> None:
    spans = admit.ok("trace", "workload", "job", "-o", "json").json()["spans"]
    assert len({span["traceId"] for span in spans}) == 1
    by_id = {span["spanId"]: span for span in spans}
    check = next(span for span in spans if span["name"] == "check human")
    reservation = by_id[check["parentId"]]
    variant = by_id[reservation["parentId"]]
    assert (reservation["name"], variant["name"]) == ("reservation", "variant spot")
    assert by_id[variant["parentId"]] is spans[0]
    alone = admit.ok("trace", "workload", WORST, "-o", "json").json()["spans"]
    assert {span["spanId"] for span in alone} <= set(by_id)
    assert "parentId" in alone[0]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("hold", "workload", BEST), id="hold"),
        pytest.param(("priority", "workload", BEST, "5"), id="priority"),
        pytest.param(("logs", "workload", BEST), id="logs"),
    ],
)
def test_what_concerns_the_job_is_for_its_parent(admit: Up, words: tuple[str, ...]) -> None:
    answer = admit(*words)
    assert answer.status == 1
    assert f'workload "{BEST}" is the variant reservation of workload "job"' in answer.err
    assert f"`admit {words[0]} workload job" in answer.err


def test_an_edit_of_a_variant_is_refused(admit: Up) -> None:
    kept = admit.ok("get", "workload", BEST, "-o", "yaml").out
    assert "unchanged" in admit.ok("apply", "-f", "-", stdin=kept).out
    answer = admit("apply", "-f", "-", stdin=kept.replace("cpu: '1'", "cpu: '2'"))
    assert answer.status == 1
    assert f"workload.kueue.x-k8s.io/{BEST} is a variant" in answer.err
    assert "unchanged" not in answer.out


def test_the_what_if_command_reports_families(admit: Up) -> None:
    reply = json.loads(admit.ok("simulate", "-f", "-", "-o", "json", stdin=BIGGER).out)
    assert [start["name"] for start in reply["starts"]] == ["job"]
    assert reply["starts"][0]["admission"]["podSetAssignments"][0]["flavors"] == {
        "cpu": "reservation"
    }
    assert reply["counts"].get("run") == 1


def test_a_family_is_stopped_approved_and_activated_by_its_user(admit: Up) -> None:
    stopped = admit.ok("stop", "workload", BEST)
    assert "continues with the others" in stopped.err
    answer_with(lambda: rows(admit, "get", "workload", "job")[BEST], lambda row: "User" in row)
    assert f"{WORST} approved" in admit.ok("approve", "workload", "job").out
    admit.ok("wait", "workload", "job", "--for", "Running", "--timeout", "50s")
    assert "tries it again" in admit.ok("activate", "workload", BEST).err
    admit.ok("finish", "workload", "first")
    answer_with(
        lambda: rows(admit, "get", "workload", "job"),
        lambda rows: rows["job"][3] == "Running" and rows["job"][4] == "reservation",
    )
    assert "Migrations:" in admit.ok("describe", "workload", "job").out
    story = admit.ok("events", "--workload", "job").out
    for words in (
        f"{BEST}  CreatedVariant: reservation of job",
        f"{BEST}  DeactivatedVariant: by admin, reservation: User",
        f"{BEST}  ActivatedVariant: by admin, reservation",
        f"takes over from {WORST} once its job has stopped",
        "default/job  VariantEvicted",
    ):
        assert words in story
    assert "aggregated" not in story


def test_every_decision_about_a_family_comes_out_the_same_from_the_log(admit: Up) -> None:
    decided = [
        line.split()
        for line in admit.ok("events", "-A", "-o", "wide").out.splitlines()
        if line.split()[2] in ("assigned", "refused", "confirmed", "preempted", "revoked")
    ]
    assert len(decided) >= 4
    for sequence, _, kind, whose, *_ in decided:
        answer = admit.ok("replay", "--from-log", sequence)
        assert answer.out.splitlines()[-1] == "same", (sequence, kind, whose, answer.out)
