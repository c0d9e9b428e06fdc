"""Plans of the benches of families are what the system takes in; their jobs are counted once."""

from __future__ import annotations

import msgspec
import pytest
from benchmarks import families, upgrade
from benchmarks.harness.load import Jobs

from admittance.api.queues import ClusterQueue
from admittance.api.reading.manifest import decode_object
from admittance.api.workload import Workload
from admittance.bench.generator import BenchPlan, manifests_of
from admittance.bench.load import submission
from admittance.family import rules_of


def queue_of(plan: BenchPlan) -> ClusterQueue:
    documents = [decode_object(manifest) for manifest in manifests_of(plan)]
    assert all(not document.warnings for document in documents)
    return next(
        document.manifest for document in documents if isinstance(document.manifest, ClusterQueue)
    )


def quotas(queue: ClusterQueue) -> list[str]:
    [group] = queue.spec.resource_groups
    return [str(flavor.resources[0].nominal_quota) for flavor in group.flavors]


@pytest.mark.parametrize(
    ("variants", "full", "tags", "free"),
    [
        pytest.param(0, 0, None, [True], id="regular workloads have one flavor and no policy"),
        pytest.param(3, 0, 3, [True] * 3, id="each flavor is a variant"),
        pytest.param(3, 2, 3, [False, False, True], id="the best ones may have no quota"),
    ],
)
def test_the_queues_of_families(
    variants: int, full: int, tags: int | None, free: list[bool]
) -> None:
    queue = queue_of(families.bench_plan(10, variants, full))
    rules = rules_of(queue.spec)
    assert (len(rules.tags) if rules is not None else None) == tags
    assert [quota != "0" for quota in quotas(queue)] == free


def test_workloads_that_block_upgrades_use_only_the_best_flavor() -> None:
    plan = upgrade.bench_plan(4)
    rules = rules_of(queue_of(plan).spec)
    assert rules is not None
    others, jobs = plan.workloads[:4], plan.workloads[4:]
    for planned in (*others, *jobs):
        said = msgspec.json.decode(submission(planned, "default", "upgrade"))
        workload = decode_object(said["workload"]).manifest
        assert isinstance(workload, Workload)
        constraints = workload.spec.admission_constraints
        if planned in others:
            assert constraints is not None
            assert constraints.allowed_resource_flavors == (rules.tags[0].name,)
        else:
            assert constraints is None


class RecordedLoad:
    """Keeps what a runner would publish."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, int]] = []

    def say(self, what: str, name: str, revision: int) -> None:
        self.said.append((what, name, revision))


def test_a_moved_job_is_counted_twice_and_a_repeated_fact_once() -> None:
    load = RecordedLoad()
    jobs = Jobs(load)  # type: ignore[arg-type]
    for what, revision in (("admitted", 3), ("admitted", 3), ("evicted", 5), ("evicted", 5)):
        data = msgspec.json.encode({"name": "job", "revision": revision})
        jobs.on_message(f"admit.workload.{what}.default.job".encode(), b"", data, b"")
    assert jobs.admissions == {"job": 1}
    assert load.said == [("stopped", "job", 5)]
    data = msgspec.json.encode({"name": "job", "revision": 8})
    jobs.on_message(b"admit.workload.admitted.default.job", b"", data, b"")
    assert jobs.admissions == {"job": 2}
    jobs.end("job")
    assert load.said[-1] == ("finished", "job", 8)
