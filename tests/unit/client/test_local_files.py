"""The files of a submission: which files of this machine it names, and where the job finds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from admittance.client.errors import BadInput
from admittance.client.requests.files import wanted_files


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "data/b.csv", "run.sh"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("a.csv")
    os.mkfifo(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a.csv", "a.csv"),
        ("./a.csv", "a.csv"),
        ("data/b.csv", "data/b.csv"),
        ("data/../a.csv", "a.csv"),
        ("{here}/data/b.csv", "b.csv"),
        ("../{folder}/a.csv", "a.csv"),
        ("link", "link"),
    ],
)
def test_an_input_keeps_its_relative_path_or_its_name(
    given: str, name: str, tmp_path: Path
) -> None:
    wanted = wanted_files([given.format(here=tmp_path, folder=tmp_path.name)], ["./out/x"])
    assert wanted is not None
    assert [file.name for file in wanted.inputs] == [name]
    assert wanted.outputs == ("out/x",)


def test_a_program_stays_a_program() -> None:
    wanted = wanted_files([Path("run.sh"), "a.csv"], [])
    assert wanted is not None
    assert [file.executable for file in wanted.inputs] == [True, False]
    assert wanted.size == len("run.sh") + len("a.csv")
    assert wanted_files([], []) is None


@pytest.mark.parametrize(
    ("inputs", "outputs", "says"),
    [
        (["gone"], [], "inputs gone: No such file or directory"),
        (["data"], [], "inputs data: is not a file"),
        (["pipe"], [], "inputs pipe: is not a file"),
        (["a.csv", "./a.csv"], [], "'a.csv' would be there twice"),
        ([], ["../x"], "outputs '../x' has a part"),
        ([], ["/x"], "outputs '/x' must be relative"),
        ([], [""], "outputs is empty"),
        ([], ["a", "a/b"], "'a/b' would be there twice"),
        ([], [f"f{number}" for number in range(101)], "101 files, at most 100"),
    ],
)
def test_a_file_that_cannot_be_brought_is_refused(
    inputs: list[str], outputs: list[str], says: str
) -> None:
    with pytest.raises(BadInput) as caught:
        wanted_files(inputs, outputs)
    [line] = caught.value.lines
    assert says in line
