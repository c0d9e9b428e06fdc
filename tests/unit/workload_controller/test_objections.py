"""What speaks against applying a manifest, given what is there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.manifest import encode
from admittance.workload_controller.objects import Kept, Objects, plan
from admittance.workload_controller.proposals import objections, proposal

from builders import NOON

VERSION = "kueue.x-k8s.io/v1beta2"


def a_check(name: str, controller: str = "ctl") -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }


def a_queue(*checks: str, flavor: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    quota = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}
    group = {"coveredResources": ["cpu"], "flavors": [{**quota, "admissionChecks": flavor}]}
    return {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {"admissionChecks": checks, "resourceGroups": [group], **spec},
    }


class House:
    """Manifests, applied one after the other."""

    def __init__(self) -> None:
        self.objects = Objects()
        self._revision = 0

    def apply(self, *manifests: dict[str, Any]) -> list[str]:
        """What speaks against them; else they are there."""
        raws = [msgspec.Raw(msgspec.json.encode(one)) for one in manifests]
        proposed = proposal(enumerate(raws, 1), "")
        assert not proposed.problems, proposed.problems
        planned = list(plan(self.objects, proposed.manifests, now=NOON))
        found = objections(self.objects, planned)
        if not found:
            for one in planned:
                if one.value is not None:
                    self._revision += 1
                    kept = Kept(one.object, encode(one.object), self._revision)
                    self.objects.keep(one.key, kept)
        return found


@pytest.fixture
def house() -> House:
    return House()


CONFLICT = "ClusterQueue cq: spec.admissionChecks: 'a' and 'b' go by the same controller 'ctl'"


@pytest.mark.scenario("B8")
def test_two_checks_of_one_controller_in_one_list_are_refused_where_they_are_known(
    house: House,
) -> None:
    assert house.apply(a_check("a"), a_check("b")) == []
    assert house.apply(a_queue("a", "b")) == [CONFLICT]
    (found,) = house.apply(a_queue(flavor=("a", "b")))
    assert "spec.resourceGroups[0].flavors[0].admissionChecks" in found


@pytest.mark.scenario("B8")
def test_they_are_known_too_when_they_come_with_the_queue(house: House) -> None:
    assert house.apply(a_queue("a", "b"), a_check("b"), a_check("a")) == [CONFLICT]


@pytest.mark.scenario("B8")
def test_a_check_that_comes_later_is_no_fault_of_an_edit_of_the_queue(house: House) -> None:
    assert house.apply(a_check("a"), a_queue("a", "b")) == []
    assert house.apply(a_check("b")) == []
    assert house.apply(a_queue("a", "b", stopPolicy="Hold")) == []
    house.apply(a_check("c", "other"), a_check("d", "other"))
    (found,) = house.apply(a_queue("a", "b", "c", "d"))
    assert "'c' and 'd'" in found
    assert house.apply(a_queue("b")) == []


def test_a_flavors_check_may_go_by_the_controller_of_a_queue_wide_one(house: House) -> None:
    house.apply(a_check("a"), a_check("b"))
    assert house.apply(a_queue("a", flavor=("b",))) == []


def test_the_controller_of_a_check_never_changes(house: House) -> None:
    house.apply(a_check("a"))
    (found,) = house.apply(a_check("a", "other"))
    assert found.startswith("AdmissionCheck a: spec.controllerName")
