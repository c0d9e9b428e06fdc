"""Flavors of one pod set with different values of a node label: no node has both values."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.events.requests.whatif import Fit, FitReply
from admittance.scheduling.state.config import Config
from support.cores.stepped_scheduler import SteppedScheduler
from support.examples import examples

BOTH = {"cpu": "1", "gpu": "1"}
CLASH = (
    "couldn't assign flavors to pod set main: flavor gpu-b has another value of node label zone "
    "than flavor cpu-a of the same pods"
)


def a_scheduler(cpu: str, gpu: str, config: Config | None = None) -> SteppedScheduler:
    """A queue with cpu in these zones, in order, and gpu in these; a zone ``-`` is no label."""
    scheduler = SteppedScheduler(config or Config())
    groups: list[dict[str, Any]] = []
    for resource, zones in (("cpu", cpu), ("gpu", gpu)):
        flavors = []
        for zone in zones:
            name = f"{resource}-{zone}" if zone != "-" else resource
            scheduler.flavor(name, **({"nodeLabels": {"zone": zone}} if zone != "-" else {}))
            resources = [{"name": resource, "nominalQuota": "1"}]
            flavors.append({"name": name, "resources": resources})
        groups.append({"coveredResources": [resource], "flavors": flavors})
    scheduler.queue("cq", resourceGroups=groups)
    return scheduler


def fit(scheduler: SteppedScheduler, requests: dict[str, str]) -> FitReply:
    containers = [{"name": "c", "resources": {"requests": requests}}]
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    manifest = {"spec": {"queueName": "cq", "podSets": [pods]}}
    return scheduler.core.fit(Fit(workload=msgspec.Raw(json.dumps(manifest).encode())), "ns")


@pytest.mark.parametrize(
    ("cpu", "gpu", "assigned"),
    [
        ("a", "b", None),
        ("ab", "b", ("cpu-b", "gpu-b")),
        ("ab", "ba", ("cpu-a", "gpu-a")),
        ("a-", "b", ("cpu", "gpu-b")),
        ("-a", "b", ("cpu", "gpu-b")),
        ("a", "-", ("cpu-a", "gpu")),
        ("abcdefghijklmnopqrstuvw", "w", ("cpu-w", "gpu-w")),
        ("abc", "de", None),
    ],
)
def test_a_pod_set_gets_flavors_with_equal_values_of_a_label(
    cpu: str, gpu: str, assigned: tuple[str, str] | None
) -> None:
    scheduler = a_scheduler(cpu, gpu)
    scheduler.submit("w", "cq", pods=[{"requests": BOTH}])
    assert fit(scheduler, BOTH).fits is (assigned is not None)
    scheduler.settle()
    flavors = scheduler.flavors("w")
    assert flavors == ([dict(zip(("cpu", "gpu"), assigned, strict=True))] if assigned else [])


def test_the_reason_names_the_label_and_both_flavors() -> None:
    scheduler = a_scheduler("a", "b")
    scheduler.submit("w", "cq", pods=[{"requests": BOTH}])
    assert scheduler.settle() == []
    why = scheduler.why("w")
    assert (why.reason, why.message) == ("NoMatchingFlavor", CLASH)
    assert [(flavor.flavor, flavor.outcome) for flavor in why.flavors] == [
        ("cpu-a", "Fits"),
        ("gpu-b", "Ineligible"),
    ]
    assert why.unblocked_by == ("one value of node label zone in the flavors of pod set main",)
    reply = fit(scheduler, BOTH)
    assert reply.reason == "NoMatchingFlavor"
    assert "have the same values of their node labels" in reply.message


def test_pod_sets_of_one_workload_may_be_in_different_zones() -> None:
    scheduler = a_scheduler("a", "b")
    scheduler.submit("w", "cq", pods=[{"requests": {"cpu": "1"}}, {"requests": {"gpu": "1"}}])
    assert scheduler.settle() == ["w"]


def test_as_kueue_one_of_the_values_is_lost() -> None:
    scheduler = a_scheduler("a", "b", Config(as_kueue=True))
    scheduler.submit("w", "cq", pods=[{"requests": BOTH}])
    assert scheduler.settle() == ["w"]


zones = st.text("abc-", min_size=1, max_size=4).filter(lambda text: len(set(text)) == len(text))


@settings(max_examples=examples(100))
@given(cpu=zones, gpu=zones)
def test_a_pod_set_is_admitted_wherever_some_of_its_flavors_agree(cpu: str, gpu: str) -> None:
    scheduler = a_scheduler(cpu, gpu)
    scheduler.submit("w", "cq", pods=[{"requests": BOTH}])
    scheduler.settle()
    agree = any("-" in (label, other) or label == other for label, other in product(cpu, gpu))
    assert bool(scheduler.flavors("w")) == agree == fit(scheduler, BOTH).fits
    for flavor in scheduler.flavors("w"):
        values = {name.partition("-")[2] for name in flavor.values()} - {""}
        assert len(values) <= 1
