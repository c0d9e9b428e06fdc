"""Shares of a unit, what queues are entitled to, and costs by a list of prices."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from admittance.api.fields.units import INT64_MAX
from admittance.api.fields.usage_units import unit_named
from admittance.events.requests.queues import FlavorUsage, QueueStatus
from admittance.events.requests.reading import UsageSum
from admittance.usage.costs import PRICE_MAX, prices_of
from admittance.usage.shares import entitlements, plain, quota_parts, with_shares

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("name", "seconds", "used"),
    [
        ("gpu-hours", {GPU: "7200", "amd.com/gpu": "3600", "cpu": "9"}, "3"),
        ("cpu-hours", {"cpu": "1800.5", GPU: "9"}, "0.500139"),
        ("cpu-seconds", {"cpu": "0.001"}, "0.001"),
        ("gib-minutes", {"memory": str(2**31 * 60)}, "2"),
        ("memory-seconds", {"memory": "1" + "0" * 30}, "1" + "0" * 30),
        ("nvidia.com/gpu-days", {GPU: "86400", "amd.com/gpu": "86400"}, "1"),
        ("example.com/fast-fpga-hours", {"example.com/fast-fpga": "3600"}, "1"),
        ("gpu-hours", {}, "0"),
    ],
)
def test_a_unit_counts_seconds_of_its_resource(
    name: str, seconds: dict[str, str], used: str
) -> None:
    assert plain(unit_named(name).used(seconds)) == used


@pytest.mark.parametrize("name", ["", "gpu", "hours", "-hours", "gpu-weeks", "gpu-"])
def test_a_text_that_is_no_unit_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f'^"{name}" is not a unit: a resource, such as cpu'):
        unit_named(name)


def test_shares_are_parts_of_the_sum_of_all() -> None:
    sums = [UsageSum(group=(name,)) for name in "abc"]
    shared = with_shares(sums, [Decimal(31), Decimal(0), Decimal(69)])
    assert [(each.used, each.share) for each in shared] == [("31", 0.31), ("0", 0.0), ("69", 0.69)]
    assert [each.share for each in with_shares(sums[:1], [Decimal(0)])] == [None]


def a_cluster_queue(name: str, *quotas: tuple[str, str, int]) -> QueueStatus:
    usage = tuple(FlavorUsage(flavor=f, resource=r, nominal=n) for f, r, n in quotas)
    return QueueStatus(name=name, usage=usage)


def a_local_queue(namespace: str, name: str, cluster_queue: str) -> QueueStatus:
    return QueueStatus(name=name, namespace=namespace, cluster_queue=cluster_queue)


QUEUES = [
    a_cluster_queue("a", ("h100", GPU, 1), ("spot", GPU, 1), ("spot", "cpu", 99)),
    a_cluster_queue("b", ("h100", GPU, 6)),
]
LOCAL = [
    a_local_queue("team-a", "lq", "a"),
    a_local_queue("team-b", "lq", "b"),
    a_local_queue("team-c", "lq", "b"),
]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (("cluster-queue",), {("a",): 0.25, ("b",): 0.75}),
        (("flavor",), {("h100",): 0.875, ("spot",): 0.125}),
        (
            ("flavor", "cluster-queue"),
            {("h100", "a"): 1 / 8, ("spot", "a"): 1 / 8, ("h100", "b"): 0.75},
        ),
        (("namespace",), {("team-a",): 0.25}),
        (("queue",), {("team-a/lq",): 0.25}),
        ((), None),
        (("user",), None),
        (("cluster-queue", "label:team"), None),
    ],
)
def test_a_group_is_entitled_to_the_quota_that_it_has_alone(
    by: tuple[str, ...], expected: dict[Any, float] | None
) -> None:
    assert entitlements(by, quota_parts(unit_named("gpu-hours"), QUEUES, LOCAL)) == expected


@pytest.mark.parametrize("quotas", [[("f", GPU, INT64_MAX), ("g", GPU, 1)], [("f", GPU, 0)], []])
def test_nothing_is_entitled_to_a_part_of_quota_without_a_sum(quotas: list[Any]) -> None:
    parts = quota_parts(unit_named("gpu-hours"), [a_cluster_queue("a", *quotas)], [])
    assert entitlements(("cluster-queue",), parts) is None


# Costs. -----------------------------------------------------------------------------------------

PRICES = {
    "currency": "EUR",
    "prices": [
        {"resource": "gpu", "perHour": "2.40"},
        {"resource": "gpu", "flavor": "spot", "perHour": 0.9},
        {"resource": "amd.com/gpu", "perHour": 1},
        {"resource": "memory", "per": "1Gi", "perHour": 0.01},
    ],
}


@pytest.mark.parametrize(
    ("flavor", "seconds", "cost"),
    [
        ("h100", {GPU: "3600"}, "2.4"),
        ("spot", {GPU: "3600"}, "0.9"),
        ("h100", {"amd.com/gpu": "3600"}, "1"),
        ("spot", {"amd.com/gpu": "3600"}, "0.9"),
        ("h100", {"memory": str(2**30 * 3600 * 50), "cpu": "3600"}, "0.5"),
        ("h100", {}, "0"),
    ],
)
def test_the_price_of_the_flavor_wins_over_that_of_all_flavors(
    flavor: str, seconds: dict[str, str], cost: str
) -> None:
    assert plain(prices_of(PRICES).cost(flavor, seconds)) == cost


def test_a_resource_has_a_price_if_one_of_its_flavors_has() -> None:
    prices = prices_of(PRICES)
    assert prices.currency == "EUR"
    assert [prices.prices(name) for name in (GPU, "memory", "cpu")] == [True, True, False]


def a_price(**fields: Any) -> dict[str, Any]:
    return {"prices": [{"resource": "gpu", "perHour": 1}, {"resource": "cpu", **fields}]}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "a price list has the fields currency and prices"),
        ({"prices": [], "unit": 1}, "a price list has the fields currency and prices"),
        ({"prices": []}, "prices is not a list with at least one price"),
        ({"currency": "EUR"}, "prices is not a list with at least one price"),
        ({**a_price(perHour=1), "currency": 5}, "currency is not a text"),
        ({"prices": ["cpu"]}, "price 1 has other fields than resource, flavor, perHour, per"),
        (a_price(perHour=1, price=2), "price 2 has other fields than resource, flavor"),
        (a_price(perHour=1, flavor=2), "price 2 has no resource, or a flavor that is no text"),
        ({"prices": [{"perHour": 1}]}, "price 1 has no resource"),
        (a_price(), f"price 2: perHour None is not a number from 0 to {PRICE_MAX:,}"),
        (a_price(perHour=-0.1), "price 2: perHour -0.1 is not a number"),
        (a_price(perHour=PRICE_MAX + 1), "is not a number from 0"),
        (a_price(perHour="nan"), "price 2: perHour nan is not a number"),
        (a_price(perHour=True), "price 2: perHour True is not a number"),
        (a_price(perHour="two"), "price 2: perHour two is not a number"),
        (a_price(perHour=1, per=0), "price 2: per 0 is not a quantity above 0"),
        (a_price(perHour=1, per="1Zi"), "price 2: per 1Zi is not a quantity above 0"),
        (a_price(perHour=1, per=[]), "price 2: per [] is not a quantity above 0"),
        (a_price(perHour=1, resource="memory"), "price 2: the price of memory needs per"),
        (a_price(perHour=1, resource="gpu"), "price 2: gpu has a price"),
    ],
)
def test_a_wrong_price_list_is_refused_with_a_sentence(value: Any, said: str) -> None:
    with pytest.raises(ValueError) as error:
        prices_of(value)
    assert said in str(error.value)


def test_a_price_may_be_of_a_part_of_a_resource() -> None:
    prices = prices_of(a_price(perHour=1, per="500m"))
    assert prices.cost("f", {"cpu": "3600"}) == 2


def test_a_price_may_be_nothing_or_the_most() -> None:
    assert PRICE_MAX == 1_000_000_000_000
    for price in (0, PRICE_MAX):
        assert prices_of(a_price(perHour=price)).cost("f", {"cpu": "3600"}) == price
