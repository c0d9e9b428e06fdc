"""What `admit submit` says when it refuses a command that could never start."""

from admittance.cli.fit import refusal
from admittance.events.requests import FitReply


def test_a_missing_clusterqueue_has_to_be_created() -> None:
    message = "ClusterQueue cq of LocalQueue default/lq does not exist"
    said = refusal(FitReply(cluster_queue="cq", reason="NoSuchQueue", message=message))
    assert said.startswith(f"not submitted: {message}; ")
    assert said.endswith("it waits until the queue is created")


def test_a_quota_that_is_too_small_has_to_be_raised() -> None:
    message = "cpu: 100 > 4, the most that flavor f can give"
    said = refusal(FitReply(cluster_queue="cq", reason="ExceedsMaxQuota", message=message))
    assert "clusterqueue cq can never hold it" in said
    assert said.endswith("it waits until the quota is raised")
