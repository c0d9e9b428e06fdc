"""The seven stories of concurrent admission, cell by cell; once more with everything restarted
between any two steps, with every decision lost at first, with a variant-controller that is slow,
and with a workload-controller that is. LIFECYCLE 4.11, 7.4 D8 to D14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from admittance.workload.conditions import is_true
from support.builders import NOON

from family_living import GPU, LOWER, FamilyLife, Row, a_family_life

scenario = pytest.mark.scenario
Begin = Callable[..., FamilyLife]
DAY = 86_400


MISHAPS = [
    pytest.param({}, id="calm"),
    pytest.param({"restless": True}, id="restarted all the time"),
    pytest.param({"forgetful": True}, id="every decision is lost once"),
    pytest.param({"belated": True}, id="the variant-controller is slow"),
    pytest.param({"laggard": True}, id="the workload-controller is slow"),
]


@pytest.fixture(params=MISHAPS)
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """A life with families, see `a_family_life`. No decision may be refused."""
    lives: list[FamilyLife] = []

    def made(*args: Any, **spec: Any) -> FamilyLife:
        spec |= request.param
        lives.append(a_family_life(*args, **spec))
        return lives[-1]

    yield made
    for life in lives:
        assert life.in_vain() == []


def preempted_by(life: FamilyLife, flavor: str, gpu: int = 4) -> None:
    """A workload of higher priority takes the quota of the job."""
    life.foreigner("p", flavor, gpu)


def variant(tag: str, flavors: list[str] | None = None, **delays: int) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": flavors or [tag], **delays}


# Story 1: UpgradeOnly. ----------------------------------------------------------------------

ONE = {"reservation": 4, "on-demand": 4, "spot": 8}
BOTH_FULL = {"r1": "reservation", "o1": "on-demand"}


@scenario("D8")
def test_it_starts_where_it_can_and_moves_up_place_by_place(begin: Begin) -> None:
    life = begin(ONE, foreign=BOTH_FULL)
    before, written = life.attempts(), len(life.revisions)
    life.job()
    assert list(life.variants()) == ["reservation", "on-demand", "spot"]
    assert life.row() == Row("spot", "reservation on-demand spot", 0, 1, "4/4/4")
    if life.is_calm:
        assert life.assigned_in("j-variant-spot") - before == 3, "at the third attempt"
    life.at(100)
    life.done("o1")
    assert life.row() == Row("on-demand", "reservation on-demand", 1, 2, "4/4/0")
    assert life.why() == {
        "reservation": "upgrade", "on-demand": "admitted", "spot": "lowerThanAdmitted",
    }  # fmt: skip
    life.at(200)
    life.done("r1")
    assert life.row() == Row("reservation", "reservation", 2, 3, "4/0/0")
    life.at(300)
    life.done("j")
    assert life.phase("j") == "Finished"
    assert [life.phase(one.metadata.name) for one in life.variants().values()] == ["Finished"] * 3
    assert life.used() == "0/0/0"
    assert life.lived() == [
        ("started", 0), ("stopped", 100), ("started", 100), ("stopped", 200), ("started", 200),
    ]  # fmt: skip
    assert life.starts("j") == 3
    assert life.migrations() == 2
    assert life.evicted_for("j") == ["VariantEvicted"] * 2
    tally = life.tallied(written)
    assert sum(tally.lifecycle.admitted.clusters.values.values()) == 3
    assert tally.evicted.clusters.values == {("cq", "FlavorMigration", "", ""): 2}


# Story 2: UpgradeOnly, and minFlavor. -------------------------------------------------------


@scenario("D9")
def test_a_family_does_not_migrate_below_the_floor(begin: Begin) -> None:
    life = begin(ONE, floor="reservation", foreign=BOTH_FULL)
    life.job()
    assert life.row() == Row("spot", "reservation spot", 0, 1, "4/4/4")
    assert life.why()["on-demand"] == "belowMin"
    life.at(100)
    life.done("o1")
    life.at(199)
    assert life.row() == Row("spot", "reservation spot", 0, 1, "4/0/4")
    life.at(200)
    life.done("r1")
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0/0")
    assert life.lived() == [("started", 0), ("stopped", 200), ("started", 200)]


@scenario("D9")
def test_the_floor_is_about_targets_and_not_about_the_start(begin: Begin) -> None:
    life = begin(ONE, floor="reservation", foreign={"r1": "reservation"})
    life.job()
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4/0")
    assert life.why()["spot"] == "lowerThanAdmitted"
    life.at(200)
    life.done("r1")
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0/0")
    life.at(DAY)
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0/0")


# Story 3: a race of long checks. ------------------------------------------------------------

THREE = {"reservation": 4, "a": 4, "b": 4, "c": 4}
LONG = {"a": ["check-a"], "b": ["check-b"], "c": ["check-c"]}


@scenario("D10")
@pytest.mark.parametrize("stopping", [0, 30], ids=["stops at once", "takes its time to stop"])
def test_checks_race_and_the_first_wins(begin: Begin, stopping: int) -> None:
    life = begin(THREE, floor="reservation", foreign={"r1": "reservation"}, checks=LONG)
    life.job()
    assert life.row() == Row("", "reservation a b c", 0, 0, "4/4/4/4")
    assert life.reserved() == "a b c"
    for tag in "abc":
        assert life.states(f"j-variant-{tag}") == {f"check-{tag}": "Pending"}
    assert life.phase("j") == "Pending"
    assert life.stored("j").status.admission_checks == ()
    life.at(600)
    life.judge("j-variant-b", "check-b", "Ready")
    assert life.row() == Row("b", "reservation b", 0, 1, "4/0/4/0")
    assert life.reserved() == ""
    assert life.withdrawn("check-a", "j-variant-a")
    assert life.withdrawn("check-c", "j-variant-c")
    assert not life.withdrawn("check-b", "j-variant-b")
    life.at(900)
    late = life.answer("j-variant-a", "check-a", "Ready", cycle=0)
    assert late is not None
    assert late.outcome == "ignored"
    life.go()
    assert life.row() == Row("b", "reservation b", 0, 1, "4/0/4/0")
    life.at(950)
    life.offer({**THREE, "a": 8}, checks=LONG)
    life.go()
    assert life.row() == Row("b", "reservation b", 0, 1, "4/0/4/0")
    if stopping:
        life.stubborn.add("j")
    life.at(1200)
    life.done("r1")
    if stopping:
        assert life.phase("j") == "Evicting"
        assert life.used() == "0/0/4/0"
        life.at(1200 + stopping)
        life.stop("j")
        life.go()
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0/0/0")
    ends = 1200 + stopping
    assert life.lived() == [("started", 600), ("stopped", ends), ("started", ends)]


# Story 4: NoMigration. ----------------------------------------------------------------------

FOUR = {"1a": 4, "1b": 4, "1c": 4}


@scenario("D11")
def test_it_stays_where_it_started(begin: Begin) -> None:
    life = begin(FOUR, "NoMigration", foreign={"f": "1a"})
    before = life.attempts()
    life.job()
    assert life.row() == Row("1b", "1b", 0, 1, "4/4/0")
    if life.is_calm:
        assert life.assigned_in("j-variant-1b") - before == 2, "at the second attempt"
    assert "j-variant-1c" not in life.considered()
    assert life.why() == {"1a": "NoMigration", "1b": "admitted", "1c": "NoMigration"}
    life.at(100)
    life.done("f")
    assert life.row() == Row("1b", "1b", 0, 1, "0/4/0")
    life.at(10 * DAY)
    assert life.row() == Row("1b", "1b", 0, 1, "0/4/0")


@scenario("D11")
def test_all_of_them_wait_for_their_checks_until_one_is_through(begin: Begin) -> None:
    checks = {"1a": ["check-a"], "1b": ["check-b"], "1c": ["check-c"]}
    life = begin(FOUR, "NoMigration", checks=checks)
    life.job()
    life.at(299)
    assert life.row() == Row("", "1a 1b 1c", 0, 0, "4/4/4")
    assert life.reserved() == "1a 1b 1c"
    life.at(300)
    life.judge("j-variant-1c", "check-c", "Ready")
    assert life.row() == Row("1c", "1c", 0, 1, "0/0/4")
    assert life.lived() == [("started", 300)]


@scenario("D11")
def test_a_preempted_family_starts_over(begin: Begin) -> None:
    life = begin(FOUR, "NoMigration", foreign={"f": "1a"}, preemption=LOWER)
    life.job()
    life.at(100)
    life.done("f")
    life.at(500)
    preempted_by(life, "1b")
    assert (500, "1a 1b 1c") in life.actives["j"], "all of them try again"
    assert life.row() == Row("1a", "1a", 0, 2, "4/4/0")
    assert life.lived() == [("started", 0), ("stopped", 500), ("started", 500)]
    refused = [one for one in life.considered() if one.startswith("j-variant-1")]
    assert refused[-1] == "j-variant-1a"


# Story 5: createDelay. ----------------------------------------------------------------------

TWO = {"reservation": 4, "on-demand": 4}
FALLBACK = [variant("reservation"), variant("on-demand", createDelaySeconds=7200)]


@scenario("D12")
def test_the_fallback_comes_after_its_delay(begin: Begin) -> None:
    life = begin(TWO, explicit=FALLBACK, foreign={"r1": "reservation"})
    life.job()
    assert list(life.variants()) == ["reservation", "on-demand"]
    for moment in (0, 3600, 7199):
        life.at(moment)
        assert life.row() == Row("", "reservation", 0, 0, "4/0")
        assert life.why() == {"reservation": "race", "on-demand": "createDelay"}
        assert life.phase("j") == "Pending"
        assert life.timers("j") == {"family": NOON + timedelta(seconds=7200)}
    assert "j-variant-on-demand" not in life.considered()
    before = life.attempts()
    life.at(7200)
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")
    if life.is_calm:
        assert life.assigned_in("j-variant-on-demand") - before == 1, "within one cycle"
    assert life.lived() == [("started", 7200)]


@scenario("D12")
def test_the_fallback_is_not_needed_where_the_better_place_came_free(begin: Begin) -> None:
    life = begin(TWO, explicit=FALLBACK, foreign={"r1": "reservation"})
    life.job()
    life.at(3600)
    life.done("r1")
    assert life.row() == Row("reservation", "reservation", 0, 1, "4/0")
    for moment in (7200, DAY):
        life.at(moment)
        assert life.row() == Row("reservation", "reservation", 0, 1, "4/0")
        assert life.why()["on-demand"] == "lowerThanAdmitted"
    assert "j-variant-on-demand" not in life.considered()


@scenario("D12")
def test_a_preempted_family_waits_the_whole_delay_again(begin: Begin) -> None:
    life = begin(TWO, explicit=FALLBACK, foreign={"r1": "reservation"}, preemption=LOWER)
    life.job()
    life.at(10_000)
    preempted_by(life, "on-demand")
    assert life.row() == Row("", "reservation", 0, 1, "4/4")
    assert life.why() == {"reservation": "race", "on-demand": "createDelay"}
    life.at(11_000)
    life.done("p")
    life.at(17_199)
    assert life.row() == Row("", "reservation", 0, 1, "4/0")
    life.at(17_200)
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 2, "4/4")


# Story 6: deleteDelay. ----------------------------------------------------------------------

PATIENT = [variant("reservation", deleteDelaySeconds=DAY), variant("on-demand")]


def waiting_for_better(begin: Begin) -> FamilyLife:
    life = begin(TWO, explicit=PATIENT, foreign={"r1": "reservation"}, preemption=LOWER)
    life.at(10)
    life.job()
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")
    return life


@scenario("D13")
def test_it_moves_up_within_its_time(begin: Begin) -> None:
    life = waiting_for_better(begin)
    life.at(40_000)
    life.done("r1")
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")
    life.at(86_410)
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")


@scenario("D13")
def test_after_its_time_the_better_place_is_given_up(begin: Begin) -> None:
    life = waiting_for_better(begin)
    life.at(86_409)
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")
    life.at(86_410)
    assert life.row() == Row("on-demand", "on-demand", 0, 1, "4/4")
    assert life.why() == {"reservation": "deleteDelay", "on-demand": "admitted"}
    life.at(90_000)
    life.done("r1")
    assert life.row() == Row("on-demand", "on-demand", 0, 1, "0/4")
    assert life.lived() == [("started", 10)]


@scenario("D13")
def test_a_preempted_family_tries_the_better_flavor_again(begin: Begin) -> None:
    life = waiting_for_better(begin)
    life.at(90_000)
    life.done("r1")
    life.at(100_000)
    preempted_by(life, "on-demand")
    assert (100_000, "reservation on-demand") in life.actives["j"]
    assert life.row() == Row("reservation", "reservation", 0, 2, "4/4")


@scenario("D13")
def test_the_migration_time_restarts_with_the_admission_after_preemption(begin: Begin) -> None:
    life = waiting_for_better(begin)
    life.at(100_000)
    preempted_by(life, "on-demand")
    assert life.row() == Row("", "reservation on-demand", 0, 1, "4/4")
    life.at(100_100)
    life.done("p")
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 2, "4/4")
    life.at(100_100 + DAY - 1)
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 2, "4/4")
    life.at(100_100 + DAY)
    assert life.row() == Row("on-demand", "on-demand", 0, 2, "4/4")


@scenario("D13")
def test_a_move_between_lower_variants_does_not_extend_the_time_limit(begin: Begin) -> None:
    flavors = {**TWO, "spot": 4}
    explicit = [*PATIENT, variant("spot")]
    life = begin(flavors, explicit=explicit, foreign={"r1": "reservation", "o1": "on-demand"})
    life.at(10)
    life.job()
    life.at(50_000)
    life.done("o1")
    assert life.row() == Row("on-demand", "reservation on-demand", 1, 2, "4/4/0")
    life.at(86_409)
    assert life.active() == "reservation on-demand"
    life.at(86_410)
    assert life.active() == "on-demand"


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


def with_launcher(begin: Begin, *checks: str) -> FamilyLife:
    """R1 holds the reservation; the job runs on-demand."""
    life = begin({"reservation": 8, "on-demand": 8})
    for check in checks:
        life.check(check)
    life.put("ResourceFlavor", "default-cpu")
    life.says(resourceGroups=groups(*checks), concurrentAdmission=None)
    life.job("r1", 8, allowed=["reservation"])
    for check in checks:
        life.judge("r1", check, "Ready")
    assert life.phase("r1") == "Admitted"
    life.policy(explicit=SHARED)
    life.job(pods=[pod_set("launcher", 1, cpu=4), pod_set("workers", 4, gpu=2, cpu=4)])
    return life


def flavors_of(life: FamilyLife, name: str = "j") -> dict[str, dict[str, str]]:
    admission = life.stored(name).status.admission
    assert admission is not None
    return {row.name: dict(row.flavors) for row in admission.pod_set_assignments}


@scenario("D14")
def test_what_siblings_share_is_counted_once(begin: Begin) -> None:
    life = with_launcher(begin)
    assert life.row() == Row("on-demand", "reservation-flavor on-demand-flavor", 0, 1, "8/8")
    assert life.cells()[CPU] == 20_000
    assert flavors_of(life) == {
        "launcher": {"cpu": "default-cpu"},
        "workers": {"gpu": "on-demand", "cpu": "default-cpu"},
    }
    life.at(500)
    life.done("r1")
    assert life.row() == Row("reservation", "reservation-flavor", 1, 2, "8/0")
    assert life.cells()[CPU] == 20_000
    assert flavors_of(life) == {
        "launcher": {"cpu": "default-cpu"},
        "workers": {"gpu": "reservation", "cpu": "default-cpu"},
    }
    since = [held for at, held in life.levels if at >= 500][1:]
    assert max(sum(m for (_, r), m in held.items() if r == GPU) for held in since) == 8
    assert max(held.get(CPU, 0) for _, held in life.levels) == 20_000


@scenario("D14")
def test_while_a_check_of_the_better_place_runs_both_are_held(begin: Begin) -> None:
    life = with_launcher(begin, "long")
    life.at(500)
    life.done("r1")
    both = Row("on-demand", "reservation-flavor on-demand-flavor", 0, 1, "8/8")
    for moment in (500, 559):
        life.at(moment)
        assert life.row() == both
        assert life.cells()[CPU] == 20_000
        assert is_true(life.stored("j"), "Admitted")
    life.at(560)
    life.judge("j-variant-reservation-flavor", "long", "Ready")
    assert life.row() == Row("reservation", "reservation-flavor", 1, 2, "8/0")
    assert life.cells()[CPU] == 20_000
    assert life.lived() == [("started", 0), ("stopped", 560), ("started", 560)]
