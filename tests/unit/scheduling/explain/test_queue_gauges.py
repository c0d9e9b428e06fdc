"""The gauges of queues and cohorts, as Kueue's dashboards read them."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from math import inf
from threading import Event, Thread
from typing import Any

from admittance.events.shapes import ConsumedUsage
from admittance.scheduling.queue_gauges import GAUGES
from admittance.scheduling.state.config import CohortFairSharing, Config, UsageFairSharing
from support.cores.families.family_queues import both, explicit
from support.cores.families.family_scheduler import FamilyScheduler
from support.cores.stepped_scheduler import SteppedScheduler, groups, quota


def read(scheduler: SteppedScheduler, name: str) -> dict[tuple[str, ...], float]:
    return scheduler.core.gauges()[name]


def a_scheduler() -> SteppedScheduler:
    """In the cohort team ``cq`` borrows 2 of the 8 cpus of ``lender``; in ``cq`` one workload waits
    that is too large, and one that competes."""
    scheduler = SteppedScheduler(Config(fair_sharing=CohortFairSharing()))
    scheduler.put("Cohort", "team", {"parentName": "company"})
    scheduler.queue("cq", "team", resourceGroups=groups(default=quota("4", borrow="2")))
    scheduler.queue("lender", "team", resourceGroups=groups(default=quota("8", lend="5")))
    scheduler.submit("first", "cq", "4")
    scheduler.submit("second", "cq", "2")
    assert scheduler.settle() == ["first", "second"]
    scheduler.submit("large", "cq", "500m")
    scheduler.settle()
    scheduler.submit("small", "cq", "250m", priority=-1)
    return scheduler


def test_gauges_count_workloads_of_a_cluster_queue() -> None:
    scheduler = a_scheduler()
    pending = read(scheduler, "pending_workloads")
    assert (pending["cq", "active"], pending["cq", "inadmissible"]) == (1, 1)
    assert (pending["lender", "active"], pending["lender", "inadmissible"]) == (0, 0)
    assert read(scheduler, "reserving_active_workloads") == {("cq",): 2, ("lender",): 0}
    assert read(scheduler, "admitted_active_workloads") == {("cq",): 2, ("lender",): 0}
    assert read(scheduler, "unadmitted_workloads") == {("cq", "NoReservation", ""): 2}
    assert read(scheduler, "cluster_queue_resource_pending") == {("cq", "cpu"): 0.75}


def test_gauges_show_quota_in_cores() -> None:
    scheduler = a_scheduler()
    cq, lender = ("team", "cq", "default", "cpu"), ("team", "lender", "default", "cpu")
    assert read(scheduler, "cluster_queue_nominal_quota") == {cq: 4, lender: 8}
    assert read(scheduler, "cluster_queue_borrowing_limit") == {cq: 2, lender: inf}
    assert read(scheduler, "cluster_queue_lending_limit") == {cq: inf, lender: 5}
    assert read(scheduler, "cluster_queue_resource_reservation") == {cq: 6, lender: 0}
    assert read(scheduler, "cluster_queue_resource_usage") == {cq: 6, lender: 0}
    # 2 borrowed of 9 lendable cpus
    assert read(scheduler, "cluster_queue_weighted_share")["cq", "team"] == 223
    local = ("cq", "ns", "default", "cpu")
    assert read(scheduler, "local_queue_resource_usage")[local] == 6
    assert read(scheduler, "local_queue_pending_workloads")["cq", "ns", "inadmissible"] == 1


def test_gauges_sum_over_the_subtree_of_a_cohort() -> None:
    scheduler = a_scheduler()
    assert read(scheduler, "cohort_info") == {
        ("company", "", "company"): 1,
        ("team", "company", "company"): 1,
    }
    assert read(scheduler, "cluster_queue_info")["cq", "team", "company"] == 1
    for cohort in ("team", "company"):
        assert (
            read(scheduler, "cohort_subtree_resource_reservations")[cohort, "default", "cpu"] == 6
        )
        assert read(scheduler, "cohort_subtree_admitted_active_workloads")[(cohort,)] == 2
        assert read(scheduler, "cohort_subtree_quota")[cohort, "default", "cpu"] == 9


def test_a_reservation_that_waits_for_checks_does_not_count_as_usage() -> None:
    scheduler = SteppedScheduler()
    scheduler.admits = False
    scheduler.put("AdmissionCheck", "later", {"controllerName": "ctl"})
    scheduler.queue("cq", resourceGroups=groups(default="4"), admissionChecks=["later"])
    scheduler.submit("w", "cq", "3")
    scheduler.settle()
    labels = ("", "cq", "default", "cpu")
    assert read(scheduler, "cluster_queue_resource_reservation") == {labels: 3}
    assert read(scheduler, "cluster_queue_resource_usage") == {labels: 0}
    assert read(scheduler, "unadmitted_workloads") == {("cq", "UnsatisfiedChecks", ""): 1}
    assert read(scheduler, "admitted_active_workloads") == {("cq",): 0}


def test_the_usage_that_orders_local_queues_is_shown() -> None:
    config = UsageFairSharing(usage_half_life_time=timedelta(hours=1))
    scheduler = SteppedScheduler(Config(admission_fair_sharing=config))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    scheduler.cluster_queue("cq", admissionScope=scope, resourceGroups=groups(default="9"))
    for name, weight in (("half", "500m"), ("zero", "0")):
        local = {"clusterQueue": "cq", "fairSharing": {"weight": weight}}
        scheduler.put("LocalQueue", name, local, namespace="ns")
    record = ConsumedUsage(consumed_resources={"cpu": "3"}, last_update=scheduler.now)
    scheduler.core.apply_usage("ns", "half", record)
    name = "local_queue_admission_fair_sharing_usage"
    assert read(scheduler, name) == {("half", "ns", "cq"): 6, ("zero", "ns", "cq"): inf}
    scheduler.delete("LocalQueue", "zero", "ns")
    assert read(scheduler, name) == {("half", "ns", "cq"): 6}


def test_the_status_of_a_queue_is_one_of_three() -> None:
    scheduler = a_scheduler()
    scheduler.queue("stopped", resourceGroups=groups(default="4"), stopPolicy="Hold")
    status = read(scheduler, "cluster_queue_status")
    assert status["cq", "active"] == 1
    assert status["stopped", "pending"] == 1
    assert status["stopped", "active"] == status["stopped", "terminating"] == 0
    local = read(scheduler, "local_queue_status")
    assert (local["cq", "ns", "True"], local["cq", "ns", "False"]) == (1, 0)


def test_gauges_vanish_with_their_queue_and_with_its_domain() -> None:
    scheduler = a_scheduler()
    scheduler.delete("LocalQueue", "lender", "ns")
    scheduler.delete("ClusterQueue", "lender")
    assert not any(
        "lender" in labels for gauge in scheduler.core.gauges().values() for labels in gauge
    )
    scheduler.core.disown("cohort-company")
    assert scheduler.core.gauges() == {name: {} for name in GAUGES}


def test_gauges_of_a_cohort_vanish_with_the_cohort() -> None:
    scheduler = a_scheduler()
    scheduler.put("Cohort", "team", {})
    scheduler.delete("Cohort", "company")
    gauges = scheduler.core.gauges()
    assert {labels[0] for labels in gauges["cohort_info"]} == {"team"}
    assert not any("company" in labels for series in gauges.values() for labels in series)


def test_unadmitted_workloads_are_counted_by_local_queue_too() -> None:
    scheduler = SteppedScheduler()
    scheduler.admits = False
    scheduler.put("AdmissionCheck", "later", {"controllerName": "ctl"})
    scheduler.queue("cq", resourceGroups=groups(default="4"), admissionChecks=["later"])
    scheduler.put("LocalQueue", "other", {"clusterQueue": "cq"}, "ns")
    for name, queue, cpu in (("a", "cq", "3"), ("b", "cq", "3"), ("c", "other", "9")):
        scheduler.submit(name, queue, cpu)
    scheduler.settle()
    by_local = read(scheduler, "local_queue_unadmitted_workloads")
    assert by_local["cq", "ns", "cq", "UnsatisfiedChecks", ""] == 1
    summed = Counter[tuple[str, ...]]()
    for labels, count in by_local.items():
        summed[labels[2:]] += int(count)
    assert summed == read(scheduler, "unadmitted_workloads")
    assert summed.total() == 3
    scheduler.delete("LocalQueue", "other", "ns")
    assert {name for name, *_ in read(scheduler, "local_queue_unadmitted_workloads")} == {"cq"}


def test_equal_workloads_count_with_the_reasons_of_their_status() -> None:
    """A reason that a refusal in flight will replace is not shown."""
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="1"))
    for name in ("a", "b"):
        scheduler.submit(name, "cq", "2")
    scheduler.settle()
    scheduler.change("a", conditions={"QuotaReserved": (False, "Pending")})
    labels = ("cq", "ns", "cq", "NoReservation")
    by_local = "local_queue_unadmitted_workloads"
    assert read(scheduler, by_local) == {(*labels, "Pending"): 1, (*labels, ""): 1}
    assert read(scheduler, "cluster_queue_resource_pending") == {("cq", "cpu"): 4}
    scheduler.now += timedelta(minutes=1)
    assert len(scheduler.core.refusals(now=scheduler.now)) == 2
    assert read(scheduler, by_local) == {(*labels, ""): 2}


def test_the_reservation_of_a_variant_counts_with_its_family() -> None:
    scheduler = FamilyScheduler()
    scheduler.check("slow")
    scheduler.family_queue(checks={"best": ["slow"]}, flavors={"best": "4", "mid": "1"})
    scheduler.family("w")
    scheduler.settle()
    assert scheduler.admission("w-best") is not None
    labels = ("cq", "ns", "cq", "NoReservation", "")
    assert read(scheduler, "local_queue_unadmitted_workloads") == {labels: 1}


def test_a_family_counts_as_one_workload() -> None:
    scheduler = FamilyScheduler()
    for flavor in ("reservation", "on-demand", "cpu-only"):
        scheduler.flavor(flavor)
    scheduler.queue(
        "q",
        resourceGroups=both({"reservation": "8", "on-demand": "8"}, "30"),
        concurrentAdmission=explicit("reservation", "on-demand"),
    )
    tags: dict[str, Any] = {
        "reservation": ("reservation", "cpu-only"),
        "on-demand": ("on-demand", "cpu-only"),
    }
    scheduler.open_family("w", "q", tags, pods=[(1, {"cpu": "4"}), (4, {"gpu": "2", "cpu": "4"})])
    pending = read(scheduler, "pending_workloads")
    assert pending["q", "active"] + pending["q", "inadmissible"] == 1
    assert read(scheduler, "cluster_queue_resource_pending") == {("q", "cpu"): 20, ("q", "gpu"): 8}
    by_local = read(scheduler, "local_queue_unadmitted_workloads")
    assert {
        ("q", *why): count for (*_, _, r, c), count in by_local.items() for why in [(r, c)]
    } == (read(scheduler, "unadmitted_workloads"))


def test_gauges_are_read_while_another_thread_decides() -> None:
    scheduler = SteppedScheduler(Config(fair_sharing=CohortFairSharing()))
    for number in range(4):
        scheduler.queue(f"cq-{number}", "team", resourceGroups=groups(default="8"))
    stop = Event()
    errors: list[Exception] = []

    def scrape() -> None:
        while not stop.is_set():
            try:
                scheduler.core.gauges()
            except Exception as error:
                errors.append(error)

    thread = Thread(target=scrape)
    thread.start()
    for number in range(150):
        scheduler.submit(f"w-{number}", f"cq-{number % 4}", str(1 + number % 3))
        scheduler.settle()
        if number >= 12:
            scheduler.gone(f"w-{number - 12}")
    stop.set()
    thread.join()
    # A dict that changed its size meanwhile is no harm: the gauges are read again.
    assert all(isinstance(error, RuntimeError) for error in errors)
