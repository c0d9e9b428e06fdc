"""Whether a queue could ever hold a workload that is not submitted."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from admittance.api.pod_requests import ResourceTransformation
from admittance.events.requests.whatif import Fit, FitReply
from admittance.scheduling.state.config import Config
from support.cores.stepped_scheduler import SteppedScheduler, groups, quota


def asked(
    scheduler: SteppedScheduler, queue: str, cpu: str, count: int = 1, **more: Any
) -> FitReply:
    requests = {"cpu": cpu, **more.pop("requests", {})}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    pods = {"name": "main", "count": count, "template": {"spec": {"containers": containers}}}
    labels = more.pop("labels", {})
    spec = {"queueName": queue, "podSets": [{**pods, **more}]}
    manifest = {"metadata": {"labels": labels}, "spec": spec}
    return scheduler.core.fit(Fit(workload=msgspec.Raw(json.dumps(manifest).encode())), "ns")


@pytest.fixture
def scheduler() -> SteppedScheduler:
    stepped = SteppedScheduler(Config())
    stepped.flavor("spot")
    stepped.queue("cq", "team", resourceGroups=groups(default="4", spot=quota("2", borrow="1")))
    stepped.queue("other", "team", resourceGroups=groups(default="3", spot="5"))
    return stepped


@pytest.mark.parametrize(
    ("cpu", "count", "fits"),
    [
        pytest.param("7", 1, True, id="with all that its cohort lends"),
        pytest.param("7001m", 1, False, id="more than the cohort has"),
        pytest.param("1", 7, True, id="over all pods"),
        pytest.param("1", 8, False, id="too many pods"),
    ],
)
def test_a_request_fits_up_to_nominal_quota_and_borrowing(
    scheduler: SteppedScheduler, cpu: str, count: int, fits: bool
) -> None:
    reply = asked(scheduler, "cq", cpu, count)
    assert reply.fits is fits
    assert reply.cluster_queue == "cq"
    if not fits:
        assert reply.reason == "ExceedsMaxQuota"
        assert "> 7, the most that flavor default can give" in reply.message
        assert "> 3, the most that flavor spot can give" in reply.message


@pytest.mark.parametrize(
    ("cpu", "more", "message"),
    [
        ("2", {}, ""),
        ("3", {}, "one user may hold 2 cpu in ClusterQueue cq; the workload asks for 3"),
        ("1", {"count": 4, "minCount": 2}, ""),
        ("1", {"labels": {"team": "red"}}, ""),
        (
            "2",
            {"labels": {"team": "red"}},
            "label team=red may hold 1 cpu in LocalQueue ns/cq; the workload asks for 2",
        ),
    ],
)
def test_a_request_beyond_the_limit_of_a_user_never_fits(
    scheduler: SteppedScheduler, cpu: str, more: dict[str, Any], message: str
) -> None:
    scheduler.queue("cq", resourceGroups=groups(default="9"), perUser={"cpu": 2})
    local = {"clusterQueue": "cq", "perLabel": {"team": {"cpu": 1}}}
    scheduler.put("LocalQueue", "cq", local, namespace="ns")
    reply = asked(scheduler, "cq", cpu, **more)
    assert (reply.fits, reply.message) == (not message, message)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, ""),
        ({"stopPolicy": "Hold"}, ""),
        ({"admissionChecks": ["none"]}, "references missing AdmissionCheck(s): none"),
        (
            {"resourceGroups": groups(default="4", gold="5")},
            "references missing ResourceFlavor(s): gold",
        ),
    ],
    ids=["an active queue", "a stopped queue", "a check", "a flavor"],
)
def test_the_answer_says_why_the_queue_is_inactive(
    scheduler: SteppedScheduler, spec: dict[str, Any], why: str
) -> None:
    scheduler.queue("cq", **{"resourceGroups": groups(default="4"), **spec})
    reply = asked(scheduler, "cq", "1")
    assert reply.fits
    assert reply.inactive.endswith(why)
    assert bool(reply.inactive) == bool(why)


def test_quota_that_others_use_does_not_matter(scheduler: SteppedScheduler) -> None:
    scheduler.submit("runs", "cq", "4")
    scheduler.settle()
    assert asked(scheduler, "cq", "7").fits


def test_fewer_pods_count_where_the_workload_may_start_with_them(
    scheduler: SteppedScheduler,
) -> None:
    assert asked(scheduler, "cq", "1", 50, minCount=7).fits
    assert not asked(scheduler, "cq", "1", 50, minCount=8).fits


def test_a_resource_that_the_queue_does_not_cover_never_fits(scheduler: SteppedScheduler) -> None:
    reply = asked(scheduler, "cq", "1", requests={"nvidia.com/gpu": "1"})
    assert (reply.fits, reply.reason) == (False, "NoMatchingFlavor")
    assert "resource nvidia.com/gpu unavailable in ClusterQueue" in reply.message


def test_a_queue_that_does_not_exist_is_named(scheduler: SteppedScheduler) -> None:
    assert asked(scheduler, "nowhere", "1").message == "LocalQueue ns/nowhere does not exist"
    scheduler.put("LocalQueue", "astray", {"clusterQueue": "gone"}, namespace="ns")
    reply = asked(scheduler, "astray", "1")
    assert (reply.fits, reply.cluster_queue) == (False, "gone")
    assert "ClusterQueue gone of LocalQueue ns/astray does not exist" in reply.message


def test_the_answer_contains_its_revision(scheduler: SteppedScheduler) -> None:
    assert asked(scheduler, "cq", "1").seen == scheduler.revision


def test_bytes_that_are_no_workload_are_an_error(scheduler: SteppedScheduler) -> None:
    assert scheduler.core.fit(Fit(workload=msgspec.Raw(b'{"spec": 3}')), "ns").error


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Config(exclude_resource_prefixes=("v.test/",)), "excludeResourcePrefixes excludes it"),
        (Config(quota_check_strategy="IgnoreUndeclared"), "the ClusterQueue does not cover it"),
        (
            Config(transformations=(ResourceTransformation("v.test/gpu", False, "", ()),)),
            "its transformation replaces it by nothing",
        ),
    ],
)
def test_requests_without_quota_are_named(config: Config, expected: str) -> None:
    scheduler = SteppedScheduler(config)
    scheduler.queue("cq", resourceGroups=groups(default="4"))
    reply = asked(scheduler, "cq", "1", requests={"v.test/gpu": "1"})
    assert reply.fits
    assert reply.uncharged.keys() == {"v.test/gpu"}
    assert expected in reply.uncharged["v.test/gpu"]
