"""`admit submit train.sh`: options in the head of a script, and the command that runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from admittance.cli.commands import program
from admittance.cli.workloads.job_scripts import (
    SCRIPT_BYTES_MAX,
    interpreter,
    merged,
    read_script,
    script_of,
    with_script,
)
from admittance.cli.workloads.submit import submit
from admittance.client.errors import BadInput
from support.processes.in_process import Admit

HEAD = "#!/bin/sh\n"


@pytest.mark.parametrize(
    ("text", "lines", "late"),
    [
        (HEAD + "#ADMIT --gpu 1\necho", [(2, ("--gpu", "1"))], ()),
        ("#ADMIT --gpu 1", [(1, ("--gpu", "1"))], ()),
        (HEAD + "\n# why\n  \n#ADMIT\t-q 'a b'\n", [(5, ("-q", "a b"))], ()),
        (HEAD + "#ADMIT --gpu 1 # two\n", [(2, ("--gpu", "1"))], ()),
        (HEAD + "#ADMIT -l a=b#c\n", [(2, ("-l", "a=b#c"))], ()),
        (HEAD + "#ADMIT\necho\n", [(2, ())], ()),
        (HEAD + "##ADMIT --gpu 1\n# ADMIT needs it\n#ADMITS --gpu 1\n", [], ()),
        (HEAD + "# ADMIT --gpu 1\n#  ADMIT --gpu 2\n", [(2, ("--gpu", "1"))], ()),
        (HEAD + "echo\n#ADMIT --gpu 1\n", [], (3,)),
        (HEAD + " #ADMIT --gpu 1\n#ADMIT --cpu 1\n", [], (3,)),
    ],
)
def test_options_stand_before_the_first_command(
    text: str, lines: list[tuple[int, tuple[str, ...]]], late: tuple[int, ...]
) -> None:
    script = script_of("s.sh", text.encode())
    assert script is not None
    assert ([tuple(line) for line in script.lines], script.late) == (lines, late)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("echo hi", ["/bin/sh"]),
        ("#!", ["/bin/sh"]),
        ("#!/bin/bash", ["/bin/bash"]),
        ("#! /bin/bash -l -x ", ["/bin/bash", "-l -x"]),
        ("#!/usr/bin/env python3", ["/usr/bin/env", "python3"]),
        ("#!/usr/bin/env -S bash -e -u", ["/usr/bin/env", "bash", "-e", "-u"]),
    ],
)
def test_the_first_line_names_the_interpreter(first: str, words: list[str]) -> None:
    assert interpreter(f"{first}\n#!/not/this\n") == words


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ('echo "$0 $1 $#"\n', "dir/s.sh -- 2"),
        (
            '#!/usr/bin/env -S bash -u\nset "$(PATH=x; echo a)"; echo $1 ${BASH_VERSION:+bash}\n',
            "a bash",
        ),
        (
            "#!/usr/bin/env python3\nimport sys\nprint(sys.argv[1:], '$(HOME) $$')\n",
            "['--', 'b c'] $(HOME) $$",
        ),
    ],
)
def test_a_script_runs_as_written_with_its_arguments(text: str, output: str) -> None:
    script = script_of("dir/s.sh", text.encode())
    assert script is not None
    words = script.command(["--", "b c"])
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.strip() == output, done.stderr


@pytest.mark.parametrize(
    ("typed", "written", "is_typed", "values"),
    [
        ({"gpu": None}, {"gpu": "1"}, set(), {"gpu": "1"}),
        ({"gpu": "2"}, {"gpu": "1"}, {"gpu"}, {"gpu": "2"}),
        ({"count": 1}, {"count": 3}, set(), {"count": 3}),
        ({"flavor": ("a",)}, {"flavor": ("b",)}, {"flavor"}, {"flavor": ("a",)}),
        ({"env": ("A=1",)}, {"env": ("A=2", "B=2")}, {"env"}, {"env": ("B=2", "A=1")}),
        ({"priority_class": "x"}, {"priority": 1}, {"priority_class"}, {"priority_class": "x"}),
        (
            {"limit": None, "max_time": "1h"},
            {"limit": "2h"},
            {"max_time"},
            {"limit": None, "max_time": "1h"},
        ),
    ],
)
def test_the_command_line_wins_over_the_script(
    typed: dict[str, object],
    written: dict[str, object],
    is_typed: set[str],
    values: dict[str, object],
) -> None:
    assert merged(typed, written, frozenset(is_typed)) == values


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "s.sh is empty"),
        (b"#" * (SCRIPT_BYTES_MAX + 1), "s.sh: a script has at most 131,071 bytes"),
        (b"echo \xff", "s.sh is no text in UTF-8, at byte 6"),
        (b"#!/bin/sh\necho\r\n", "s.sh:2: the line ends as on Windows"),
        (b"#ADMIT -e 'a", "s.sh:1: no closing quotation"),
        (b"\n#ADMIT --gpus 1", "s.sh:2: No such option '--gpus'"),
        (b"#ADMIT --count 0", 's.sh:1: --count "0" must be a whole number, at least 1'),
        (b"#ADMIT --gpu", "s.sh:1: Option '--gpu' requires an argument"),
        (b"#ADMIT -o xml", "s.sh:1: Invalid value for '-o': 'xml' is not one of"),
        (b"#ADMIT gpu", 's.sh:1: "gpu" is no option'),
        (b"#ADMIT -f x.yaml", "s.sh:1: a script has no --file"),
        (b"#ADMIT --help", "s.sh:1: a script has no --help"),
        (b"#ADMIT --gpu 0.5", '--gpu "0.5" is not a multiple of 1'),
        (None, "s.sh: there is no such script"),
    ],
)
def test_a_wrong_script_is_one_line(
    content: bytes | None,
    said: str,
    admit: Admit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("s.sh").write_bytes(content)
    err = admit.err(2, "submit", "s.sh")
    assert err.startswith(f"error: {said}") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("s.sh a", {"gpu": "1", "namespace": "lab", "command": "a"}),
        ("--gpu 2 s.sh -- --gpu 3", {"gpu": "2", "command": "--gpu 3"}),
        ("s.sh --gpu 2 -n b", {"gpu": "2", "namespace": "b"}),
        ("-- s.sh", {"gpu": None, "namespace": None, "command": "s.sh", "name": None}),
        ("--gpu 2 -- s.sh", {"gpu": "2", "command": "s.sh"}),
        ("true", {"command": "true", "gpu": None}),
        ("prog", {"command": "prog"}),
    ],
)
def test_a_script_is_a_word_before_the_dashes(
    typed: str, values: dict[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.sh").write_text("#ADMIT --gpu 1 -n lab\necho\n")
    Path("prog").write_bytes(b"\x7fELF\0")
    with program.program().make_context("admit", ["submit"]) as root:
        root.obj = None
        with submit.make_context("submit", typed.split(), parent=root) as ctx:
            with_script(ctx)
            found = dict(ctx.params)
    command = list(found["command"])
    if command[0] == "/bin/sh":
        assert found["name"].startswith("s-")
        command = command[command.index("s.sh") + 1 :]
    found["command"] = " ".join(command)
    assert {name: found[name] for name in values} == values


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert read_script(str(tmp_path)) is None
    with pytest.raises(BadInput, match="there is no such script"):
        read_script(str(tmp_path / "x.slurm"))
