"""The modules that short commands import: imports take most of their time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from admittance.cli.commands.declare import Command, Group
from admittance.cli.commands.program import invoke, program
from admittance.cli.table import MODULES

PROGRAM = """
import atexit, json, sys
atexit.register(lambda: sys.stderr.write("MODULES " + json.dumps(sorted(sys.modules))))
from admittance.cli.main import main
main()
"""

NEVER = (
    "pydantic",
    "structlog",
    "opentelemetry",
    "yaml",
    "uvloop",
    "psutil",
    "rich",
    "textual",
    "pygments",
)
SERVICES = ("scheduler", "workload_controller", "runner", "bench", "whatif", "replaying")
SELDOM = (
    *("admittance.cli.up.commands", "admittance.cli.auth.commands"),
    "admittance.cli.system.scripts",
)
HEAVY = {*NEVER, *SELDOM, *(f"admittance.{name}" for name in SERVICES)}
"""Libraries and packages that no short command needs."""


def imported(*arguments: str, **environ: str) -> set[str]:
    """The modules of a process that runs the command against a server that is not there."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "ADMIT_NATS_URL": "nats://127.0.0.1:1", **environ},
        check=False,
    )
    return set(json.loads(done.stderr.rpartition("MODULES ")[2]))


@pytest.mark.parametrize(
    ("words", "lazy"),
    [
        pytest.param(
            "get workloads",
            {
                *("admittance.api.reading.objects", "admittance.family"),
                *("admittance.provisioning", "admittance.cli.workloads.explain"),
            },
            id="get",
        ),
        pytest.param(
            "explain workload w",
            {
                *("admittance.api.reading.objects", "admittance.family"),
                "admittance.cli.objects.get",
            },
            id="explain",
        ),
        pytest.param("describe workload w", {"admittance.providers"}, id="describe"),
        pytest.param("submit -q x -- true", {"admittance.family"}, id="submit"),
        pytest.param(
            "wait workload w --for Finished", {"admittance.api.reading.objects"}, id="wait"
        ),
        pytest.param("stop workload w", {"admittance.api.reading.objects"}, id="stop"),
    ],
)
def test_a_short_command_imports_only_what_it_needs(words: str, lazy: set[str]) -> None:
    modules = imported(*words.split())
    assert "nats.aio.client" in modules, "it got as far as connecting"
    assert not modules & (HEAVY | lazy)


def test_each_module_of_the_table_declares_its_command() -> None:
    for name in MODULES:
        command = program().get_command(click.Context(program()), name)
        assert isinstance(command, Command | Group), name
        assert command.help, name
        assert isinstance(command, Group) or command.name == name


def every_command() -> Iterator[list[str]]:
    for name in MODULES:
        yield [name]
        command = program().get_command(click.Context(program()), name)
        for inner in command.commands if isinstance(command, Group) else ():
            yield [name, inner]


def test_each_command_has_a_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words in every_command():
        assert invoke([*words, "--help"]) == 0, words
        assert f"Usage: admit {' '.join(words)} " in capsys.readouterr().out


def test_help_imports_neither_the_client_nor_manifests() -> None:
    modules = imported("get", "--help")
    assert not modules & {
        "nats",
        "asyncio",
        "msgspec",
        "admittance.api.manifests",
        "structlog",
        "yaml",
    }


@pytest.mark.parametrize(
    "line",
    ["admit get work", "admit explain workload w", "admit submit -q x", "admit serve sch"],
)
def test_completion_imports_neither_the_client_nor_a_renderer(line: str) -> None:
    modules = imported(
        _ADMIT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split()) - 1)
    )
    assert not modules & {"nats", "asyncio", "msgspec", "rich", "structlog", "yaml"}


INTERRUPTED_IMPORT = """
import os, signal, sys

MODULE, HOW = sys.argv[1:]
sys.argv = ["admit", "get", "workloads"]

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE and HOW == "signal":
            os.kill(os.getpid(), signal.SIGINT)
        elif name == MODULE:
            raise KeyboardInterrupt
        return None

sys.meta_path.insert(0, Interrupting())
from admittance.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("module", "how"),
    [
        ("click", "signal"),
        ("admittance.cli.commands.program", "signal"),
        ("nats", "signal"),
        ("click", "exception"),
        ("admittance.cli.objects.get", "exception"),
        ("nats", "exception"),
        ("asyncio", "exception"),
    ],
)
def test_an_interrupt_while_a_module_is_imported_ends_in_silence(module: str, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module, how],
        capture_output=True,
        text=True,
        env={**os.environ, "ADMIT_NATS_URL": "nats://127.0.0.1:1"},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
