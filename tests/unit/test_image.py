"""The contents and labels of the image, without building it."""

from __future__ import annotations

import re
import runpy
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("file", ["Dockerfile", "nats.Dockerfile"])
def test_the_labels_have_the_version_of_the_project(file: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "deploy" / file).read_text()
    assert re.findall(r"^ARG VERSION=(.*)$", text, re.M) == [project["version"]]
    assert re.findall(r"^LABEL .*title=", text, re.M)


def test_what_an_image_does_not_need_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    packages = tmp_path / "lib/python3.13/site-packages"
    kept = ["botocore/data/ec2/a.gz", "botocore/data/sts/a.gz", "botocore/data/endpoints.json"]
    kept += ["admittance/cli/main.py", "boto3/session.py"]
    gone = ["botocore/data/s3/a.gz", "pip/__init__.py", "pip-24.2.dist-info/RECORD"]
    gone += ["setuptools/__init__.py", "_distutils_hack/__init__.py"]
    for name in (*kept, *gone):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).touch()
    (tmp_path / "bin").mkdir()
    for name in ("admit", "nats-server", "pip", "pip3.13", "python"):
        (tmp_path / "bin" / name).touch()
    runpy.run_path(str(ROOT / "deploy" / "strip.py"))["strip"](tmp_path)
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == ["admit", "python"]
    assert [name for name in kept if not (packages / name).exists()] == []
    assert [name for name in gone if (packages / name).exists()] == []
