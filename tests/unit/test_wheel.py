"""The wheel contains only the product, and imports only packages that its metadata requires."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.programs.installed import needed_distributions

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SIZE_MAX = 8_000_000
"""Bytes of all files; the product has about 6 MB."""
OUTSIDE = {"tests", "test", "benchmarks", "simulation", "reference", "twin", "tools"}

IMPORT_ALL = """
import sys
from importlib import import_module
from pathlib import Path

OTEL = {"opentelemetry"}
PAGE = {"starlette", "jinja2", "uvicorn", "sse_starlette", "markupsafe"}
EXTRA = {
    "admittance.telemetry.exporter": OTEL,
    "admittance.telemetry.otlp_spans": OTEL,
}

def extra(name):
    # View models of the page need no package of its extra.
    if name.startswith("admittance.web.") and not name.startswith("admittance.web.views"):
        return PAGE
    return EXTRA.get(name, ())

wheel, library, *absent = sys.argv[1:]
sys.path += [wheel, library]

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not among the dependencies", name=name)

sys.meta_path.insert(0, Absent())
for path in sorted(Path(wheel).rglob("admittance/**/*.py")):
    if path.name != "__main__.py":
        name = ".".join(path.relative_to(wheel).with_suffix("").parts).removesuffix(".__init__")
        try:
            assert import_module(name).__file__ == str(path), name
        except ModuleNotFoundError as error:
            # The modules of an extra are imported by a function that names the extra.
            if error.name.partition(".")[0] not in extra(name):
                raise
        print(name)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel as `pip wheel` builds it, without a build environment of its own."""
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    return zipfile.ZipFile(built)


def test_the_wheel_holds_only_modules_of_the_product(wheel: zipfile.ZipFile) -> None:
    files = [file for file in wheel.infolist() if ".dist-info/" not in file.filename]
    names = [file.filename for file in files]
    assert "admittance/cli/main.py" in names
    assert [name for name in names if not name.startswith("admittance/")] == []
    # Type checkers of programs read the annotations of a package with this file only.
    others = [name for name in names if not name.endswith(".py")]
    of_page = ("admittance/web/static/", "admittance/web/templates/")
    assert [name for name in others if not name.startswith(of_page)] == ["admittance/py.typed"]
    assert [name for name in names if OUTSIDE & {*Path(name).with_suffix("").parts}] == []
    assert sum(file.file_size for file in files) < SIZE_MAX


def test_the_wheel_holds_every_file_of_the_sources(wheel: zipfile.ZipFile) -> None:
    sources = {
        str(path.relative_to(base))
        for base in (ROOT / "libs", ROOT / "services")
        for path in (base / "admittance").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources - set(wheel.namelist()) == set()


def test_modules_of_the_wheel_need_only_its_dependencies(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path)
    needed = needed_distributions(PROJECT["dependencies"])
    absent = [
        name
        for name, distributions in packages_distributions().items()
        if name != "admittance" and not needed & set(map(canonicalize_name, distributions))
    ]
    assert "boto3" in absent
    assert "nats" not in absent
    library = sysconfig.get_path("purelib")
    imported = subprocess.run(
        [sys.executable, "-IS", "-c", IMPORT_ALL, str(tmp_path), library, *absent],
        capture_output=True,
        text=True,
        check=False,
    )
    assert imported.returncode == 0, imported.stderr
    assert len(imported.stdout.splitlines()) > 300


def test_the_wheel_names_its_command_extras_and_pythons(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    assert "admit = admittance.cli.main:main" in wheel.read(entry_points).decode()
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    lines = wheel.read(metadata).decode().partition("\n\n")[0].splitlines()
    extras = PROJECT["optional-dependencies"]
    named = {"aws", "docker", "executor", "kubernetes", "nvidia", "otel", "web"}
    assert set(extras) == {*named, "all"}
    assert extras["all"] == [f"admittance[{','.join(name for name in extras if name != 'all')}]"]
    for name, requirements in extras.items():
        assert f"Provides-Extra: {name}" in lines
        assert requirements, f"the extra {name} needs no package"
        assert all(Requirement(requirement).name for requirement in requirements)
    for version in ("3.11", "3.12", "3.13"):
        assert f"Classifier: Programming Language :: Python :: {version}" in lines
