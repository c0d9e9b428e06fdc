"""Requests are named after their workload, their check and the attempt, whatever the length."""

from __future__ import annotations

import pytest

from admittance.provisioning.records import NAME_MAX, request_id, request_name, template_name


def test_a_request_is_named_after_workload_check_and_attempt() -> None:
    assert request_name("train", "u", "capacity", 3) == "train-capacity-3"


def test_a_long_name_is_cut_before_its_attempt() -> None:
    name = request_name("t" * 250, "u", "capacity", 12)

    assert len(name) == NAME_MAX == 253
    assert name.endswith("-12")
    assert name != request_name("t" * 250, "u", "capacity", 13)


def test_long_names_of_two_checks_differ() -> None:
    names = {request_name("t" * 250, "u", check, 1) for check in ("one", "two")}

    assert len(names) == 2


def test_the_hash_distinguishes_requests_with_equal_plain_names() -> None:
    name = request_name("a-b", "u1", "c", 1, force_hash=True)
    other = request_name("a", "u2", "b-c", 1, force_hash=True)

    assert request_name("a-b", "u1", "c", 1) == request_name("a", "u2", "b-c", 1)
    assert name != other


@pytest.mark.parametrize("workload", [".a." * 90, "-" * 251, "é" * 200])
def test_a_cut_name_ends_in_its_hash_and_attempt(workload: str) -> None:
    name = request_name(workload, "u", "c", 1, limit=100)

    assert len(name) <= 100
    assert "--" not in name[-9:]


def test_an_id_names_workload_check_cycle_and_attempt() -> None:
    assert request_id("u", "capacity", 4, 2) == "u/capacity/4/2"


def test_a_template_is_named_after_its_request_and_pod_set() -> None:
    assert template_name("train-capacity-1", "main") == "ppt-train-capacity-1-main"
