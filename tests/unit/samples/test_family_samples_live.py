"""Each sample of concurrent admission, applied unchanged, behaves as its first lines describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from admittance.api.reading.from_job import workload_of
from admittance.api.reading.manifest import encode, read
from admittance.api.workload import Job, Workload
from admittance.events import facts
from admittance.workload.conditions import is_true
from support.cores.family_cores import FamilyCores

FAMILIES = Path(__file__).parents[3] / "deploy" / "samples" / "families"
GPU = "nvidia.com/gpu"
HOUR = 3600


class Sample(FamilyCores):
    """One file, applied at noon. Its job is ``train-N``, blocked by ``other-N-<flavor>``."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.namespace = "default"
        self.number = number
        text = (FAMILIES / f"story-{number}.yaml").read_text()
        for value in yaml.safe_load_all(text):
            if value["kind"] not in ("Workload", "Job"):
                meta = value["metadata"]
                namespace = meta.get("namespace", "")
                self.put(value["kind"], meta["name"], value.get("spec"), namespace)
        for document in read(text, f"story-{number}.yaml"):
            if isinstance(document.manifest, Workload | Job):
                self.submit_manifest(document.manifest)
        self.go()

    def submit_manifest(self, manifest: Workload | Job) -> None:
        """As `admit apply` would, and nothing follows from it yet."""
        workload = manifest if isinstance(manifest, Workload) else workload_of(manifest, suffix="x")
        fact = facts.Submitted(
            namespace="default",
            name=workload.metadata.name,
            workload=msgspec.Raw(encode(workload)),
        )
        self.hear(fact)

    @property
    def job_name(self) -> str:
        return f"train-{self.number}"

    def free(self, flavor: str) -> None:
        """The job that held it ends."""
        self.done(f"other-{self.number}-{flavor}")

    def place(self) -> str:
        """Where its gpus are; "": it does not run."""
        stored = self.stored(self.job_name)
        if stored.status.admission is None or not is_true(stored, "Admitted"):
            return ""
        flavors = [one.flavors for one in stored.status.admission.pod_set_assignments]
        return next(one[GPU] for one in flavors if GPU in one)

    def seen(self) -> tuple[str, str, int]:
        """Flavor, active variants, moves so far."""
        return self.place(), self.active(self.job_name), self.migrations(self.job_name)


def test_story_1_starts_anywhere_and_migrates_to_better_flavors() -> None:
    cores = Sample(1)
    assert cores.seen() == ("spot", "reservation on-demand spot", 0)
    cores.at(5)
    cores.free("on-demand")
    assert cores.seen() == ("on-demand", "reservation on-demand", 1)
    cores.at(10)
    cores.free("reservation")
    assert cores.seen() == ("reservation", "reservation", 2)
    cores.done("train-1")
    assert cores.phase("train-1") == "Finished"
    assert cores.starts("train-1") == 3


def test_story_2_moves_to_the_reservation_only() -> None:
    cores = Sample(2)
    assert cores.seen() == ("spot", "reservation spot", 0)
    cores.at(5)
    cores.free("on-demand")
    assert cores.seen() == ("spot", "reservation spot", 0)
    cores.at(10)
    cores.free("reservation")
    assert cores.seen() == ("reservation", "reservation", 1)


def test_story_3_takes_the_first_ready_zone_then_the_reservation() -> None:
    cores = Sample(3)
    assert cores.seen() == ("", "reservation zone-a zone-b zone-c", 0)
    assert cores.reserved("train-3") == "zone-a zone-b zone-c"
    cycle = cores.stored("train-3-variant-zone-b").status.admission_cycle
    cores.publish(
        facts.CheckReported,
        "train-3-variant-zone-b",
        controller="admittance.dev/approval",
        check="capacity",
        cycle=cycle,
        state="Ready",
    )
    cores.go()
    assert cores.seen() == ("zone-b", "reservation zone-b", 0)
    assert cores.reserved("train-3") == ""
    cores.free("reservation")
    assert cores.seen() == ("reservation", "reservation", 1)


def test_story_4_starts_in_the_first_zone_that_has_room_and_stays_there() -> None:
    cores = Sample(4)
    assert cores.seen() == ("zone-b", "zone-b", 0)
    cores.at(5)
    cores.free("zone-a")
    cores.at(HOUR)
    assert cores.seen() == ("zone-b", "zone-b", 0)


@pytest.mark.parametrize(
    ("frees_at", "seen"),
    [
        pytest.param(10, ("reservation", "reservation", 0), id="the reservation comes free"),
        pytest.param(None, ("on-demand", "reservation on-demand", 0), id="it does not"),
    ],
)
def test_story_5_tries_only_the_reservation_for_two_hours(
    frees_at: int | None, seen: tuple[str, str, int]
) -> None:
    cores = Sample(5)
    assert cores.seen() == ("", "reservation", 0)
    if frees_at is not None:
        cores.at(frees_at)
        cores.free("reservation")
        assert cores.seen() == seen
    else:
        cores.at(2 * HOUR - 1)
        assert cores.seen() == ("", "reservation", 0)
    cores.at(2 * HOUR)
    assert cores.seen() == seen


def test_story_6_moves_within_the_first_day() -> None:
    cores = Sample(6)
    assert cores.seen() == ("on-demand", "reservation on-demand", 0)
    cores.at(24 * HOUR - 1)
    cores.free("reservation")
    assert cores.seen() == ("reservation", "reservation", 1)


def test_story_6_does_not_move_afterwards() -> None:
    cores = Sample(6)
    cores.at(24 * HOUR)
    assert cores.seen() == ("on-demand", "on-demand", 0)
    cores.free("reservation")
    assert cores.seen() == ("on-demand", "on-demand", 0)


def test_story_7_moves_gpus_and_leaves_cpus_where_they_are() -> None:
    cores = Sample(7)
    cells: dict[Any, int] = cores.cells("story-7")
    assert cores.seen() == ("on-demand", "reservation-flavor on-demand-flavor", 0)
    assert cells == {
        ("reservation", GPU): 8,
        ("on-demand", GPU): 8,
        ("default-cpu", "cpu"): 20_000,
    }
    cores.free("reservation")
    assert cores.seen() == ("reservation", "reservation-flavor", 1)
    cells = cores.cells("story-7")
    assert cells == {
        ("reservation", GPU): 8,
        ("on-demand", GPU): 0,
        ("default-cpu", "cpu"): 20_000,
    }
