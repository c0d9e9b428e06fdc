"""The bill of materials names every package of the lock. Needs a package index."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


def test_the_bill_of_materials_is_the_lock_and_always_the_same(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("first.json", "second.json")]
    for file in files:
        subprocess.run(["make", "--silent", "sbom", f"SBOM={file}"], cwd=ROOT, check=True)
    first, second = (file.read_bytes() for file in files)
    assert first == second
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "admittance",
    )
    lock = (ROOT / "requirements.lock").read_text()
    pinned = set(re.findall(r"^([^\s#=]+)==([^\s;]+)", lock, re.M))
    assert {(component["name"], component["version"]) for component in bill["components"]} == pinned
    assert b"file://" not in first
