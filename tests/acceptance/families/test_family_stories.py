"""The seven stories of concurrent admission, cell by cell; once more with everything restarted
between any two steps, with every decision lost at first, with a variant-controller that is slow,
and with a workload-controller that is. docs/spec/lifecycle.md#4.11, #7.4 D8 to D14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from admittance.workload.conditions import is_true
from support.builders import NOON
from support.cores.families.family_cores import GPU, LOWER, FamilyCores, Row, cores_with_families

scenario = pytest.mark.scenario
Begin = Callable[..., FamilyCores]
DAY = 86_400


MISHAPS = [
    pytest.param({}, id="calm"),
    pytest.param({"restarts": True}, id="restarted all the time"),
    pytest.param({"loses_decisions": True}, id="every decision is lost once"),
    pytest.param({"slow_variants": True}, id="the variant-controller is slow"),
    pytest.param({"slow_controller": True}, id="the workload-controller is slow"),
]


@pytest.fixture(params=MISHAPS)
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """A life with families, see `cores_with_families`. No decision may be refused."""
    played: list[FamilyCores] = []

    def made(*args: Any, **spec: Any) -> FamilyCores:
        spec |= request.param
        played.append(cores_with_families(*args, **spec))
        return played[-1]

    yield made
    for cores in played:
        assert cores.in_vain() == []


def preempted_by(cores: FamilyCores, flavor: str, gpu: int = 4) -> None:
    """Submits a workload of higher priority that takes the quota of the job."""
    cores.submit_regular("p", flavor, gpu)


def variant(tag: str, flavors: list[str] | None = None, **delays: int) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": flavors or [tag], **delays}


# Story 1: UpgradeOnly. ----------------------------------------------------------------------

ONE = {"reservation": 4, "on-demand": 4, "spot": 8}
BOTH_FULL = {"r1": "reservation", "o1": "on-demand"}


@scenario("D8")
def test_it_starts_where_it_can_and_moves_up_place_by_place(begin: Begin) -> None:
    cores = begin(ONE, foreign=BOTH_FULL)
    before, written = cores.attempts(), len(cores.revisions)
    cores.job()
    assert list(cores.variants()) == ["reservation", "on-demand", "spot"]
    assert cores.row() == Row("spot", "reservation on-demand spot", 0, 1, "4/4/4")
    if cores.is_calm:
        assert cores.assigned_in("j-variant-spot") - before == 3, "at the third attempt"
    cores.at(100)
    cores.done("o1")
    assert cores.row() == Row("on-demand", "reservation on-demand", 1, 2, "4/4/0")
    assert cores.why() == {
        "reservation": "upgrade", "on-demand": "admitted", "spot": "lowerThanAdmitted",
    }  # fmt: skip
    cores.at(200)
    cores.done("r1")
    assert cores.row() == Row("reservation", "reservation", 2, 3, "4/0/0")
    cores.at(300)
    cores.done("j")
    assert cores.phase("j") == "Finished"
    assert [cores.phase(variant.metadata.name) for variant in cores.variants().values()] == [
        "Finished"
    ] * 3
    assert cores.used() == "0/0/0"
    assert cores.lived() == [
        ("started", 0), ("stopped", 100), ("started", 100), ("stopped", 200), ("started", 200),
    ]  # fmt: skip
    assert cores.starts("j") == 3
    assert cores.migrations() == 2
    assert cores.evicted_for("j") == ["VariantEvicted"] * 2
    tally = cores.tallied(written)
    assert sum(tally.lifecycle.admitted.clusters.values.values()) == 3
    assert tally.evicted.clusters.values == {("cq", "FlavorMigration", "", ""): 2}


# Story 2: UpgradeOnly, and minFlavor. -------------------------------------------------------


@scenario("D9")
def test_a_family_does_not_migrate_below_the_floor(begin: Begin) -> None:
    cores = begin(ONE, floor="reservation", foreign=BOTH_FULL)
    cores.job()
    assert cores.row() == Row("spot", "reservation spot", 0, 1, "4/4/4")
    assert cores.why()["on-demand"] == "belowMin"
    cores.at(100)
    cores.done("o1")
    cores.at(199)
    assert cores.row() == Row("spot", "reservation spot", 0, 1, "4/0/4")
    cores.at(200)
    cores.done("r1")
    assert cores.row() == Row("reservation", "reservation", 1, 2, "4/0/0")
    assert cores.lived() == [("started", 0), ("stopped", 200), ("started", 200)]


# Story 3: a race of long checks. ------------------------------------------------------------

THREE = {"reservation": 4, "a": 4, "b": 4, "c": 4}
LONG = {"a": ["check-a"], "b": ["check-b"], "c": ["check-c"]}


@scenario("D10")
@pytest.mark.parametrize("stopping", [0, 30], ids=["stops at once", "takes its time to stop"])
def test_checks_race_and_the_first_wins(begin: Begin, stopping: int) -> None:
    cores = begin(THREE, floor="reservation", foreign={"r1": "reservation"}, checks=LONG)
    cores.job()
    assert cores.row() == Row("", "reservation a b c", 0, 0, "4/4/4/4")
    assert cores.reserved() == "a b c"
    for tag in "abc":
        assert cores.states(f"j-variant-{tag}") == {f"check-{tag}": "Pending"}
    assert cores.phase("j") == "Pending"
    assert cores.stored("j").status.admission_checks == ()
    cores.at(600)
    cores.report("j-variant-b", "check-b", "Ready")
    assert cores.row() == Row("b", "reservation b", 0, 1, "4/0/4/0")
    assert cores.reserved() == ""
    assert cores.withdrawn("check-a", "j-variant-a")
    assert cores.withdrawn("check-c", "j-variant-c")
    assert not cores.withdrawn("check-b", "j-variant-b")
    cores.at(900)
    late = cores.answer("j-variant-a", "check-a", "Ready", cycle=0)
    assert late is not None
    assert late.outcome == "ignored"
    cores.go()
    assert cores.row() == Row("b", "reservation b", 0, 1, "4/0/4/0")
    cores.at(950)
    cores.offer({**THREE, "a": 8}, checks=LONG)
    cores.go()
    assert cores.row() == Row("b", "reservation b", 0, 1, "4/0/4/0")
    if stopping:
        cores.slow_jobs.add("j")
    cores.at(1200)
    cores.done("r1")
    if stopping:
        assert cores.phase("j") == "Evicting"
        assert cores.used() == "0/0/4/0"
        cores.at(1200 + stopping)
        cores.stop("j")
        cores.go()
    assert cores.row() == Row("reservation", "reservation", 1, 2, "4/0/0/0")
    ends = 1200 + stopping
    assert cores.lived() == [("started", 600), ("stopped", ends), ("started", ends)]


# Story 4: NoMigration. ----------------------------------------------------------------------

FOUR = {"1a": 4, "1b": 4, "1c": 4}


@scenario("D11")
def test_it_stays_where_it_started(begin: Begin) -> None:
    cores = begin(FOUR, "NoMigration", foreign={"f": "1a"})
    before = cores.attempts()
    cores.job()
    assert cores.row() == Row("1b", "1b", 0, 1, "4/4/0")
    if cores.is_calm:
        assert cores.assigned_in("j-variant-1b") - before == 2, "at the second attempt"
    assert "j-variant-1c" not in cores.considered()
    assert cores.why() == {"1a": "NoMigration", "1b": "admitted", "1c": "NoMigration"}
    cores.at(100)
    cores.done("f")
    assert cores.row() == Row("1b", "1b", 0, 1, "0/4/0")
    cores.at(10 * DAY)
    assert cores.row() == Row("1b", "1b", 0, 1, "0/4/0")


@scenario("D11")
def test_a_preempted_family_starts_over(begin: Begin) -> None:
    cores = begin(FOUR, "NoMigration", foreign={"f": "1a"}, preemption=LOWER)
    cores.job()
    cores.at(100)
    cores.done("f")
    cores.at(500)
    preempted_by(cores, "1b")
    assert (500, "1a 1b 1c") in cores.actives["j"], "all of them try again"
    assert cores.row() == Row("1a", "1a", 0, 2, "4/4/0")
    assert cores.lived() == [("started", 0), ("stopped", 500), ("started", 500)]
    refused = [name for name in cores.considered() if name.startswith("j-variant-1")]
    assert refused[-1] == "j-variant-1a"


# Story 5: createDelay. ----------------------------------------------------------------------

TWO = {"reservation": 4, "on-demand": 4}
FALLBACK = [variant("reservation"), variant("on-demand", createDelaySeconds=7200)]


@scenario("D12")
def test_the_fallback_comes_after_its_delay(begin: Begin) -> None:
    cores = begin(TWO, explicit=FALLBACK, foreign={"r1": "reservation"})
    cores.job()
    assert list(cores.variants()) == ["reservation", "on-demand"]
    for moment in (0, 3600, 7199):
        cores.at(moment)
        assert cores.row() == Row("", "reservation", 0, 0, "4/0")
        assert cores.why() == {"reservation": "race", "on-demand": "createDelay"}
        assert cores.phase("j") == "Pending"
        assert cores.waits_for("j") == {"family": NOON + timedelta(seconds=7200)}
    assert "j-variant-on-demand" not in cores.considered()
    before = cores.attempts()
    cores.at(7200)
    assert cores.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")
    if cores.is_calm:
        assert cores.assigned_in("j-variant-on-demand") - before == 1, "within one cycle"
    assert cores.lived() == [("started", 7200)]


@scenario("D12")
def test_the_fallback_is_not_needed_where_the_better_place_came_free(begin: Begin) -> None:
    cores = begin(TWO, explicit=FALLBACK, foreign={"r1": "reservation"})
    cores.job()
    cores.at(3600)
    cores.done("r1")
    assert cores.row() == Row("reservation", "reservation", 0, 1, "4/0")
    for moment in (7200, DAY):
        cores.at(moment)
        assert cores.row() == Row("reservation", "reservation", 0, 1, "4/0")
        assert cores.why()["on-demand"] == "lowerThanAdmitted"
    assert "j-variant-on-demand" not in cores.considered()


# Story 6: deleteDelay. ----------------------------------------------------------------------

PATIENT = [variant("reservation", deleteDelaySeconds=DAY), variant("on-demand")]


def waiting_for_better(begin: Begin) -> FamilyCores:
    cores = begin(TWO, explicit=PATIENT, foreign={"r1": "reservation"}, preemption=LOWER)
    cores.at(10)
    cores.job()
    assert cores.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")
    return cores


@scenario("D13")
def test_after_its_time_the_better_place_is_given_up(begin: Begin) -> None:
    cores = waiting_for_better(begin)
    cores.at(86_409)
    assert cores.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")
    cores.at(86_410)
    assert cores.row() == Row("on-demand", "on-demand", 0, 1, "4/4")
    assert cores.why() == {"reservation": "deleteDelay", "on-demand": "admitted"}
    cores.at(90_000)
    cores.done("r1")
    assert cores.row() == Row("on-demand", "on-demand", 0, 1, "0/4")
    assert cores.lived() == [("started", 10)]


@scenario("D13")
def test_the_migration_time_restarts_with_the_admission_after_preemption(begin: Begin) -> None:
    cores = waiting_for_better(begin)
    cores.at(100_000)
    preempted_by(cores, "on-demand")
    assert cores.row() == Row("", "reservation on-demand", 0, 1, "4/4")
    cores.at(100_100)
    cores.done("p")
    assert cores.row() == Row("on-demand", "reservation on-demand", 0, 2, "4/4")
    cores.at(100_100 + DAY - 1)
    assert cores.row() == Row("on-demand", "reservation on-demand", 0, 2, "4/4")
    cores.at(100_100 + DAY)
    assert cores.row() == Row("on-demand", "on-demand", 0, 2, "4/4")


@scenario("D13")
def test_a_move_between_lower_variants_does_not_extend_the_time_limit(begin: Begin) -> None:
    flavors = {**TWO, "spot": 4}
    explicit = [*PATIENT, variant("spot")]
    cores = begin(flavors, explicit=explicit, foreign={"r1": "reservation", "o1": "on-demand"})
    cores.at(10)
    cores.job()
    cores.at(50_000)
    cores.done("o1")
    assert cores.row() == Row("on-demand", "reservation on-demand", 1, 2, "4/4/0")
    cores.at(86_409)
    assert cores.active() == "reservation on-demand"
    cores.at(86_410)
    assert cores.active() == "on-demand"


# Story 7: several pod sets. -----------------------------------------------------------------

SHARED = [
    variant("reservation-flavor", ["reservation", "default-cpu"]),
    variant("on-demand-flavor", ["on-demand", "default-cpu"]),
]
CPU = ("default-cpu", "cpu")


def groups(*checks: str) -> list[dict[str, Any]]:
    reservation: dict[str, Any] = {"admissionChecks": list(checks)} if checks else {}
    return [
        {
            "coveredResources": [GPU],
            "flavors": [
                {
                    "name": "reservation",
                    "resources": [{"name": GPU, "nominalQuota": 8}],
                    **reservation,
                },
                {"name": "on-demand", "resources": [{"name": GPU, "nominalQuota": 8}]},
            ],
        },
        {
            "coveredResources": ["cpu"],
            "flavors": [
                {"name": "default-cpu", "resources": [{"name": "cpu", "nominalQuota": 30}]}
            ],
        },
    ]


def pod_set(name: str, count: int, **requests: int) -> dict[str, Any]:
    container = {"name": "c", "command": ["true"], "resources": {"requests": requests}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container]}}}


def with_launcher(begin: Begin, *checks: str) -> FamilyCores:
    """R1 holds the reservation; the job runs on-demand."""
    cores = begin({"reservation": 8, "on-demand": 8})
    for check in checks:
        cores.check(check)
    cores.put("ResourceFlavor", "default-cpu")
    cores.edit_queue(resourceGroups=groups(*checks), concurrentAdmission=None)
    cores.job("r1", 8, allowed=["reservation"])
    for check in checks:
        cores.report("r1", check, "Ready")
    assert cores.phase("r1") == "Admitted"
    cores.policy(explicit=SHARED)
    cores.job(pods=[pod_set("launcher", 1, cpu=4), pod_set("workers", 4, gpu=2, cpu=4)])
    return cores


def flavors_of(cores: FamilyCores, name: str = "j") -> dict[str, dict[str, str]]:
    admission = cores.stored(name).status.admission
    assert admission is not None
    return {row.name: dict(row.flavors) for row in admission.pod_set_assignments}


@scenario("D14")
def test_what_siblings_share_is_counted_once(begin: Begin) -> None:
    cores = with_launcher(begin)
    assert cores.row() == Row("on-demand", "reservation-flavor on-demand-flavor", 0, 1, "8/8")
    assert cores.cells()[CPU] == 20_000
    assert flavors_of(cores) == {
        "launcher": {"cpu": "default-cpu"},
        "workers": {"gpu": "on-demand", "cpu": "default-cpu"},
    }
    cores.at(500)
    cores.done("r1")
    assert cores.row() == Row("reservation", "reservation-flavor", 1, 2, "8/0")
    assert cores.cells()[CPU] == 20_000
    assert flavors_of(cores) == {
        "launcher": {"cpu": "default-cpu"},
        "workers": {"gpu": "reservation", "cpu": "default-cpu"},
    }
    since = [held for at, held in cores.levels if at >= 500][1:]
    assert max(sum(m for (_, r), m in held.items() if r == GPU) for held in since) == 8
    assert max(held.get(CPU, 0) for _, held in cores.levels) == 20_000


@scenario("D14")
def test_while_a_check_of_the_better_place_runs_both_are_held(begin: Begin) -> None:
    cores = with_launcher(begin, "long")
    cores.at(500)
    cores.done("r1")
    both = Row("on-demand", "reservation-flavor on-demand-flavor", 0, 1, "8/8")
    for moment in (500, 559):
        cores.at(moment)
        assert cores.row() == both
        assert cores.cells()[CPU] == 20_000
        assert is_true(cores.stored("j"), "Admitted")
    cores.at(560)
    cores.report("j-variant-reservation-flavor", "long", "Ready")
    assert cores.row() == Row("reservation", "reservation-flavor", 1, 2, "8/0")
    assert cores.cells()[CPU] == 20_000
    assert cores.lived() == [("started", 0), ("stopped", 560), ("started", 560)]
