"""Generator files become plans as Kueue's runner would carry them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.bench.generator import bench_plan, read
from admittance.runtime.errors import SetupError

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "benchmarks"

TWO_SETS = """
cohorts:
  - className: cohort
    count: 2
    queuesSets:
      - className: cq
        count: 1
        nominalQuota: 2
        borrowingLimit: 500m
        workloadsSets:
          - count: 3
            creationIntervalMs: 100
            workloads:
              - {className: small, runtimeMs: 200, priority: 50, request: 1}
              - {className: large, runtimeMs: 400, priority: 60, request: 1500m}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "generator.yaml"
    path.write_text(text)
    return path


def test_classes_of_a_set_submit_in_turn_interval_by_interval(tmp_path: Path) -> None:
    workloads = [w for w in bench_plan(read(written(tmp_path, TWO_SETS))).workloads if w.queue == 0]
    assert [(round(w.at, 3), w.class_name, w.request) for w in workloads] == [
        (0.1, "small", 1000),
        (0.2, "large", 1500),
        (0.3, "small", 1000),
        (0.4, "large", 1500),
        (0.5, "small", 1000),
        (0.6, "large", 1500),
    ]


def test_quotas_are_read_as_quantities(tmp_path: Path) -> None:
    first, second = bench_plan(read(written(tmp_path, TWO_SETS))).queues
    assert (first.nominal, first.borrowing, first.lending) == (2000, 500, None)
    assert (first.cohort, second.cohort) == ("cohort-0", "cohort-1")


@pytest.mark.parametrize(
    ("scale", "want"),
    [
        pytest.param(2.0, 24, id="twice as many"),
        pytest.param(0.34, 4, id="a third of them"),
        pytest.param(0.0001, 4, id="never less than one round of a set"),
    ],
)
def test_scale_multiplies_workloads_and_leaves_queues(
    tmp_path: Path, scale: float, want: int
) -> None:
    scaled = bench_plan(read(written(tmp_path, TWO_SETS)), scale=scale)
    assert (len(scaled.queues), len(scaled.workloads)) == (2, want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("cohorts: [", "not a generator file", id="malformed YAML"),
        pytest.param("cohorts: [{className: a, count: 1}]", "queuesSets", id="a missing field"),
        pytest.param("flavours: []", "flavours", id="an unknown field"),
        pytest.param(TWO_SETS.replace("1500m", "1.5.2"), "1.5.2", id="a quantity that is none"),
    ],
)
def test_a_bad_file_gives_one_line_with_the_reason(tmp_path: Path, text: str, want: str) -> None:
    with pytest.raises(SetupError) as refused:
        bench_plan(read(written(tmp_path, text)))
    assert want in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"absent\.yaml: .*No such file"):
        read(tmp_path / "absent.yaml")


@pytest.mark.parametrize("name", ["baseline", "large-scale"])
def test_our_benchmarks_are_the_plans_of_kueues_files(name: str) -> None:
    theirs = SHARED / f"{name}.generator.yaml"
    if not theirs.exists():
        pytest.skip(f"{theirs} is not here")
    assert bench_plan(read(ROOT / "benchmarks" / f"{name}.yaml")) == bench_plan(read(theirs))
