"""Each folder of samples can be applied as a folder, but for the alternative stories."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.cli.support.files import documents

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "deploy" / "samples"
FOREIGN = {SAMPLES / "providers" / "kubernetes" / "cluster", SAMPLES / "providers" / "aws" / "iam"}
"""Files for other programs."""
FOLDERS = sorted(
    {file.parent for kind in ("*.yaml", "*.json") for file in SAMPLES.rglob(kind)}
    - FOREIGN
    - {SAMPLES / "families"}
)


@pytest.mark.parametrize("folder", [str(path.relative_to(ROOT)) for path in FOLDERS])
def test_a_folder_of_samples_has_manifests_only(folder: str) -> None:
    assert documents([str(ROOT / folder)], "default")
