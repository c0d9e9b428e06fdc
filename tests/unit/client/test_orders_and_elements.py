"""The order in which workloads of one file are submitted, and names of elements of arrays."""

from __future__ import annotations

import pytest

from admittance.api.dependencies import Dependency, parse_dependency
from admittance.api.meta import ObjectMeta
from admittance.api.workload import ArraySpec, Workload, WorkloadSpec
from admittance.client.errors import BadInput
from admittance.client.requests.objects import elements_named
from admittance.client.requests.submissions.commands import array_of, dependencies_of
from admittance.client.requests.submissions.manifests import in_order


def a_workload(name: str, *after: str, namespace: str = "ns") -> Workload:
    return Workload(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=WorkloadSpec(after=tuple(map(parse_dependency, after))),
    )


@pytest.mark.parametrize(
    ("workloads", "order"),
    [
        ([], ""),
        ([a_workload("a"), a_workload("b")], "ab"),
        ([a_workload("b", "a"), a_workload("a")], "ab"),
        ([a_workload("c", "b", "a"), a_workload("b", "a"), a_workload("a")], "abc"),
        (
            [a_workload("d", "b", "c"), a_workload("c", "a"), a_workload("b"), a_workload("a")],
            "bacd",
        ),
        ([a_workload("b", "elsewhere"), a_workload("a")], "ba"),
        ([a_workload("b", "a"), a_workload("a", "b", namespace="other")], "ba"),
    ],
)
def test_workloads_come_behind_those_that_they_wait_for(
    workloads: list[Workload], order: str
) -> None:
    assert "".join(workloads[place].metadata.name for place in in_order(workloads)) == order


@pytest.mark.parametrize(
    ("workloads", "path"),
    [
        ([a_workload("a", "a")], "a → a"),
        ([a_workload("a", "b"), a_workload("b", "a")], "a → b → a"),
        ([a_workload("x", "a"), a_workload("a", "b"), a_workload("b", "a")], "a → b → a"),
    ],
)
def test_a_cycle_is_refused_with_its_path(workloads: list[Workload], path: str) -> None:
    with pytest.raises(BadInput, match=f"these workloads wait for each other: {path}$"):
        in_order(workloads)


def test_a_long_chain_is_put_in_order() -> None:
    chain = [a_workload(f"w{n}", f"w{n + 1}") for n in range(3000)]
    assert in_order(chain) == list(range(2999, -1, -1))


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("sweep", None),
        ("sweep[3]", ("sweep", (3,))),
        ("sweep[1-3,7]", ("sweep", (1, 2, 3, 7))),
    ],
)
def test_a_name_with_indexes_names_elements(
    typed: str, named: tuple[str, tuple[int, ...]] | None
) -> None:
    assert elements_named(typed) == named


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        ("[3]", "does not name elements of an array"),
        ("a[1][2]", "does not name elements of an array"),
        ("a[]", "is not an index like 3"),
        ("a[3-1]", "the range 3-1 is empty"),
    ],
)
def test_a_name_with_wrong_indexes_is_refused(typed: str, error: str) -> None:
    with pytest.raises(BadInput, match=error):
        elements_named(typed)


def test_options_of_arrays_and_dependencies_are_read() -> None:
    assert array_of(None) is None
    assert array_of("0-3%2", fail_fast=True) == ArraySpec(
        indexes="0-3", parallelism=2, fail_fast=True
    )
    assert dependencies_of(["a", "b:any"], "keep") == (
        (Dependency(workload="a"), Dependency(workload="b", condition="any")),
        "keep",
    )
    assert dependencies_of([], None) == ((), None)


@pytest.mark.parametrize(
    ("after", "unmet", "error"),
    [
        ([], "keep", "after_unmet goes with after"),
        (["a"], "drop", 'after_unmet "drop" is not one of cancel, keep'),
        (["a:b"], None, 'after "a:b": "b" is not one of ok, any, failed, started'),
    ],
)
def test_a_wrong_dependency_is_bad_input(after: list[str], unmet: str | None, error: str) -> None:
    with pytest.raises(BadInput) as raised:
        dependencies_of(after, unmet)
    assert str(raised.value) == error


def test_an_array_option_alone_is_bad_input() -> None:
    with pytest.raises(BadInput, match="fail_fast goes with array"):
        array_of(None, fail_fast=True)
    with pytest.raises(BadInput, match="array: the range 2-1 is empty"):
        array_of("2-1")
