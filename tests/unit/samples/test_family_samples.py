"""The samples of concurrent admission are accepted without a word, and complete."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from admittance.api.queues import ClusterQueue
from admittance.api.reading.manifest import read
from admittance.api.workload import QUEUE_LABEL, Job, Workload
from admittance.family import rules_of

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"
FAMILIES = SAMPLES / "families"
STORIES = sorted(FAMILIES.glob("story-*.yaml"))


def test_every_story_has_its_example() -> None:
    assert [story.stem for story in STORIES] == [f"story-{number}" for number in range(1, 8)]


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_file_of_a_story_contains_all_its_manifests(path: Path) -> None:
    documents = read(path.read_text(), path.name)
    assert all(document.warnings == () for document in documents)
    manifests = [document.manifest for document in documents]
    names = {(manifest.kind, manifest.metadata.name) for manifest in manifests}
    [queue] = [manifest for manifest in manifests if isinstance(manifest, ClusterQueue)]
    assert queue.metadata.name == path.stem
    offered = [flavor for group in queue.spec.resource_groups for flavor in group.flavors]
    assert {name for kind, name in names if kind == "ResourceFlavor"} == {f.name for f in offered}
    checks = {check for flavor in offered for check in flavor.admission_checks}
    assert {name for kind, name in names if kind == "AdmissionCheck"} == checks
    rules = rules_of(queue.spec)
    assert rules is not None
    jobs = [manifest for manifest in manifests if isinstance(manifest, Workload | Job)]
    assert jobs
    assert jobs[-1].metadata.name == path.stem.replace("story", "train")
    for job in jobs:
        queue_name = (
            job.spec.queue_name
            if isinstance(job, Workload)
            else job.metadata.labels.get(QUEUE_LABEL)
        )
        assert ("LocalQueue", queue_name) in names
        if isinstance(job, Workload) and job.spec.admission_constraints is not None:
            # Another job, which blocks just one variant.
            allowed = frozenset(job.spec.admission_constraints.allowed_resource_flavors or ())
            assert len(rules.tags_within(allowed)) == 1


def test_no_sample_changes_a_flavor_of_another_one() -> None:
    specs: dict[str, list[object]] = {}
    for path in sorted(SAMPLES.glob("**/*.yaml")):
        for value in yaml.safe_load_all(path.read_text()):
            if isinstance(value, dict) and value.get("kind") == "ResourceFlavor":
                specs.setdefault(value["metadata"]["name"], []).append(value.get("spec"))
    assert len(specs["spot"]) >= 3
    for name, flavor_specs in specs.items():
        assert all(spec == flavor_specs[0] for spec in flavor_specs), name
