"""The error of `admit submit` for a command that could never start."""

from admittance.cli.fit import refusal
from admittance.events.requests import FitReply


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
