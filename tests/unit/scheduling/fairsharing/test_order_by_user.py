"""The user with the least usage goes first, in a ClusterQueue with ``usageOf: User``
(docs/spec/scheduling.md#7.4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.events.names import token
from admittance.events.requests.queues import PendingQuery, Queues
from admittance.events.shapes import ConsumedUsage
from admittance.events.subjects import USAGE
from admittance.scheduling.state.config import Config, UsageFairSharing
from admittance.scheduling.state.lanes import user_key
from admittance.workload.bucket_reader import names_of
from support.cores.stepped_scheduler import SteppedScheduler, groups

HALF_LIFE = timedelta(minutes=30)
INTERVAL = timedelta(minutes=5)
CONFIG = Config(
    admission_fair_sharing=UsageFairSharing(
        usage_half_life_time=HALF_LIFE, usage_sampling_interval=INTERVAL
    )
)
BY_USER = {"admissionMode": "UsageBasedAdmissionFairSharing", "usageOf": "User"}
SECOND = timedelta(seconds=1)


class Shared(SteppedScheduler):
    """ClusterQueue ``a`` with two LocalQueues, ``a`` and ``b``."""

    def __init__(self, cpu: str = "2", config: Config = CONFIG, **spec: Any) -> None:
        super().__init__(config)
        self.configure(cpu, **spec)
        self.put("LocalQueue", "b", {"clusterQueue": "a"}, namespace="ns")
        self.number = 0

    def configure(self, cpu: str = "2", **spec: Any) -> None:
        spec.setdefault("admissionScope", BY_USER)
        self.queue("a", resourceGroups=groups(default=cpu), **spec)

    def job(self, name: str, user: str, cpu: str = "2", *, queue: str = "a", **more: Any) -> None:
        self.number += 1
        self.submit(name, queue, cpu, user=user, age=-self.number, **more)

    def had_used(self, user: str, cpu: str) -> None:
        record = ConsumedUsage(consumed_resources={"cpu": cpu}, last_update=self.now)
        self.core.apply_usage(*user_key("a", user), record)

    def usages(self) -> dict[str, float | None]:
        """The usage of each user, the least first."""
        (status,) = self.core.queues(Queues(cluster_queue="a")).cluster_queues
        return {row.user: row.used.value for row in status.users}

    def in_order(self) -> list[str]:
        return [row.name for row in self.core.pending(PendingQuery()).rows]

    def passes(self, time: timedelta) -> None:
        self.now += time
        self.core.wake(now=self.now)


def test_the_user_that_used_least_goes_first_whatever_the_priority() -> None:
    shared = Shared()
    shared.had_used("ada", "4")
    shared.job("a1", "ada", priority=5)
    shared.job("b1", "bob")
    assert shared.settle() == ["b1"]
    shared.finish("b1")
    assert shared.settle() == ["a1"]


def test_usage_in_all_local_queues_of_the_cluster_queue_counts_together() -> None:
    shared = Shared(cpu="4")
    shared.job("a1", "ada", queue="b")
    shared.job("b1", "bob", "1")
    assert shared.settle() == ["a1", "b1"]
    shared.passes(INTERVAL)
    shared.job("a2", "ada")
    shared.job("b2", "bob")
    assert shared.in_order() == ["b2", "a2"]
    assert list(shared.usages()) == ["bob", "ada"]


def test_users_take_turns_with_arrays_of_different_length() -> None:
    shared = Shared()
    for number in range(6):
        shared.job(f"a{number}", "ada")
    shared.job("b0", "bob")
    shared.job("b1", "bob")
    order = []
    for _ in range(4):
        (started,) = shared.settle()
        order.append(started[0])
        shared.passes(INTERVAL)
        shared.finish(started)
    assert order == ["a", "b", "a", "b"]


def test_usage_decays_and_a_user_without_usage_has_no_account() -> None:
    shared = Shared()
    shared.core.own("queue-a")
    shared.job("a1", "ada")
    shared.settle()
    shared.passes(HALF_LIFE)
    used = shared.usages()["ada"]
    assert used is not None and 1 <= used < 2
    shared.finish("a1")
    written = dict(shared.core.usages_to_write(now=shared.now, at_once=True))
    assert set(written) == {user_key("a", "ada")}
    assert written[user_key("a", "ada")] is not None
    for _ in range(60):
        shared.passes(HALF_LIFE)
    assert shared.usages() == {}
    assert dict(shared.core.usages_to_write(now=shared.now, at_once=True)) == {
        user_key("a", "ada"): None
    }


def test_the_next_scheduler_continues_with_the_stored_usage() -> None:
    shared = Shared()
    shared.restart_scheduler()
    shared.had_used("ada", "4")
    shared.job("a1", "ada")
    shared.job("b1", "bob")
    assert shared.in_order() == ["b1", "a1"]


def test_a_job_of_a_deleted_local_queue_counts_until_it_ends() -> None:
    shared = Shared()
    shared.job("a1", "ada", queue="b")
    shared.settle()
    shared.delete("LocalQueue", "b", "ns")
    shared.finish("a1")
    shared.passes(INTERVAL)
    first = shared.usages()["ada"]
    shared.passes(HALF_LIFE)
    later = shared.usages()["ada"]
    assert first is not None and later is not None
    assert later == pytest.approx(first / 2, rel=0.01)


@pytest.mark.parametrize(
    ("scope", "order"),
    [
        pytest.param(BY_USER, ["b1", "a1"], id="by users"),
        pytest.param({**BY_USER, "usageOf": "LocalQueue"}, ["a1", "b1"], id="by LocalQueues"),
        pytest.param({"admissionMode": "NoAdmissionFairSharing"}, ["a1", "b1"], id="by age"),
    ],
)
def test_the_order_follows_an_edit_of_the_queue(scope: dict[str, str], order: list[str]) -> None:
    shared = Shared(cpu="4", admissionScope={"admissionMode": "NoAdmissionFairSharing"})
    shared.job("x", "ada", "3")
    assert shared.settle() == ["x"]
    shared.job("a1", "ada")
    shared.job("b1", "bob")
    shared.configure("4", admissionScope=BY_USER)
    shared.configure("4", admissionScope=scope)
    assert shared.in_order() == order


def test_a_deleted_cluster_queue_has_no_stored_usages() -> None:
    shared = Shared()
    shared.had_used("ada", "4")
    shared.delete("ClusterQueue", "a")
    assert dict(shared.core.usages_to_write(now=shared.now + SECOND, at_once=True)) == {
        user_key("a", "ada"): None
    }


def test_workloads_of_users_that_used_more_are_preempted_first() -> None:
    shared = Shared(cpu="4", preemption={"withinClusterQueue": "LowerPriority"})
    shared.had_used("ada", "9")
    shared.job("a1", "ada")
    shared.job("b1", "bob")
    shared.settle()
    shared.job("urgent", "cy", priority=9)
    shared.settle()
    assert [decision.name for decision in shared.all_preempted] == ["a1"]


def test_an_explanation_names_the_users_that_are_compared() -> None:
    shared = Shared()
    shared.had_used("ada", "4")
    shared.job("a1", "ada")
    shared.job("b1", "bob")
    answer = shared.why("a1")
    assert "ada used more (4), and bob (0) goes first" in " ".join(
        [answer.message, *answer.unblocked_by]
    )


def test_limits_and_the_order_by_users_hold_together() -> None:
    shared = Shared(cpu="6", perUser={"cpu": 2})
    shared.had_used("bob", "4")
    for name, user in (("a1", "ada"), ("a2", "ada"), ("b1", "bob")):
        shared.job(name, user)
    assert shared.settle() == ["a1", "b1"]


def test_the_key_of_a_user_is_one_name_of_the_bucket() -> None:
    for user in ("ada", "", "a.b c"):
        key = user_key("team.a", user)
        stored = f"{USAGE}.{token(key[0])}.{token(key[1])}"
        assert stored.count(".") == 2
        assert names_of(stored) == key
