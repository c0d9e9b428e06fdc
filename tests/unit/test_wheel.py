"""The wheel holds the product only."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]
SIZE_MAX = 4_000_000
"""Bytes of all files; the product has less than 3 MB."""
OUTSIDE = {"tests", "test", "benchmarks", "simulation", "reference", "twin", "tools"}


def test_the_wheel_holds_only_modules_of_the_product() -> None:
    files = list(WheelBuilder(str(ROOT)).recurse_included_files())
    names = [file.distribution_path for file in files]
    assert "admittance/cli/main.py" in names
    assert [name for name in names if not name.startswith("admittance/")] == []
    assert [name for name in names if not name.endswith(".py")] == []
    assert [name for name in names if OUTSIDE & {*Path(name).with_suffix("").parts}] == []
    assert sum(Path(file.path).stat().st_size for file in files) < SIZE_MAX
