"""The error of `admit submit` for a command that could never start."""

from __future__ import annotations

from typing import Any, cast

import pytest

from admittance.api.reading.manifest import accept
from admittance.api.workload import Workload
from admittance.cli.workloads import submit
from admittance.client.arguments.spelling import IN_PYTHON
from admittance.client.errors import NotAllowed, RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.submissions.fit import refusal, refuse_misfit
from admittance.client.requests.submissions.warnings import misfits
from admittance.events.requests.whatif import FitReply
from admittance.runtime.bus.bucket import Entry
from support.builders import a_manifest

WORKLOAD = cast(Workload, accept(a_manifest("w", queueName="lq")).manifest)


class LinkOfUser:
    """A bus on which a user reads its own namespace, and a scheduler that has not read the
    LocalQueue until it is asked for the ``requests``-th time."""

    spelled = IN_PYTHON

    def __init__(self, requests: int) -> None:
        self.left = requests
        self.asked = 0

    async def ask(self, *_: Any, **__: Any) -> FitReply:
        self.asked += 1
        self.left -= 1
        if self.left <= 0:
            return FitReply(seen=7)
        return FitReply(fits=False, reason="NoSuchQueue", message="there is no LocalQueue", seen=6)

    async def read_all(self, pattern: str) -> list[Entry]:
        if not pattern.startswith("localqueue.ns."):
            raise NotAllowed(f"this login may not read {pattern}")
        return [await self.get(pattern)]

    async def get(self, key: str) -> Entry:
        return Entry(key, b"{}", 7)


async def test_a_user_waits_until_the_scheduler_has_read_its_queue() -> None:
    link = LinkOfUser(requests=3)
    await refuse_misfit(cast(Link, link), WORKLOAD)
    assert link.asked == 3


async def test_a_queue_that_the_scheduler_does_not_know_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("admittance.client.requests.submissions.fit.CURRENT_SECONDS", 0.0)
    with pytest.raises(RequestFailed, match="not submitted: there is no LocalQueue"):
        await refuse_misfit(cast(Link, LinkOfUser(requests=100)), WORKLOAD)


async def test_a_queue_that_is_inactive_now_gets_one_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Inactive(LinkOfUser):
        async def ask(self, *_: Any, **__: Any) -> FitReply:
            return FitReply(cluster_queue="cq", inactive="references missing …: gold", seen=7)

    link = cast(Link, Inactive(requests=1))
    await submit.refuse_misfit(link, WORKLOAD, anyway=False)
    heavier = cast(Workload, accept(a_manifest("v", queueName="lq", priority=3)).manifest)
    said = "ClusterQueue cq is inactive: references missing …: gold; its workloads wait"
    assert await misfits(link, [("v", heavier), ("w", WORKLOAD)]) == [said]
    assert capsys.readouterr().err == f"warning: {said}\n"


async def test_machines_that_are_too_small_get_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class TooSmall(LinkOfUser):
        async def ask(self, *_: Any, **__: Any) -> FitReply:
            return FitReply(machines="no machine can hold it", seen=7)

    link = cast(Link, TooSmall(requests=1))
    await submit.refuse_misfit(link, WORKLOAD, anyway=False)
    said = "no machine can hold it"
    assert await misfits(link, [("w", WORKLOAD)]) == [f"w: {said}"]
    assert capsys.readouterr().err == f"warning: the workload: {said}\n"


def test_a_refused_command_waits_for_a_missing_clusterqueue() -> None:
    message = "ClusterQueue cq of LocalQueue default/lq does not exist"
    said = refusal(FitReply(cluster_queue="cq", reason="NoSuchQueue", message=message))
    assert said.startswith(f"not submitted: {message}; ")
    assert said.endswith("it waits until the queue is created")


def test_a_refused_command_waits_for_more_quota() -> None:
    message = "cpu: 100 > 4, the most that flavor f can give"
    said = refusal(FitReply(cluster_queue="cq", reason="ExceedsMaxQuota", message=message))
    assert "clusterqueue cq can never hold it" in said
    assert said.endswith("it waits until the quota is raised")
