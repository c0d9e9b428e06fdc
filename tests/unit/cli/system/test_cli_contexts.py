"""Which server commands use while several `admit up` of one Unix user run."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from admittance.cli.support.link import with_running_server
from admittance.cli.support.options import outer_call
from admittance.cli.up.own_context import write_own_context
from admittance.runtime.nats import contexts
from admittance.runtime.nats.contexts import Context

FIRST, SECOND, THIRD = "first", "second", "third"


class Machine:
    """A Unix user's contexts, and servers that listen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"XDG_CONFIG_HOME": str(folder / "configuration")}
        self.servers: dict[str, socket.socket] = {}
        self.ports: dict[str, int] = {}

    def up(self, name: str, *, use: bool = False) -> None:
        """Starts `admit up` with the data folder ``name``, at the same port each time."""
        server = socket.create_server(("127.0.0.1", self.ports.get(name, 0)), reuse_port=True)
        self.servers[name] = server
        self.ports[name] = server.getsockname()[1]
        creds = self.folder / f"{name}.creds"
        creds.touch()
        url = f"nats://127.0.0.1:{self.ports[name]}"
        write_own_context(url, str(creds), self.folder / name, self.env, use=use)

    def down(self, name: str) -> None:
        self.servers.pop(name).close()

    def used(self) -> str:
        """The data folder of the server that a command uses."""
        call = with_running_server(outer_call(None, None, None, environ=self.env))
        [name] = [name for name, port in self.ports.items() if call.url.endswith(f":{port}")]
        assert call.connection.creds == str(self.folder / f"{name}.creds")
        return name

    def choose(self, name: str) -> None:
        contexts.use(self.env, f"local-{self.ports[name]}")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    with ExitStack() as stack:
        for server in machine.servers.values():
            stack.enter_context(server)


COMMANDS_CASES: dict[str, tuple[str, str, str]] = {
    "one server": ("up first", FIRST, ""),
    "a second one starts": ("up first, up second", FIRST, "2 servers run"),
    "the second one ends": ("up first, up second, down second", FIRST, ""),
    "the first one ends": ("up first, up second, down first", SECOND, "is gone"),
    "one after the other": ("up first, down first, up second", SECOND, ""),
    "the second one starts with --use": ("up first, use second", SECOND, ""),
    "the user chooses the second": ("up first, up second, choose second", SECOND, ""),
    "the choice stays": ("up first, up second, choose first, up third", FIRST, ""),
    "the chosen one ends before the third starts": (
        "up first, up second, choose first, down first, up third",
        THIRD,
        "2 servers run",
    ),
    "a restart": ("up first, up second, down first, up first", FIRST, "2 servers run"),
}


@pytest.mark.parametrize("case", COMMANDS_CASES)
def test_commands_use_the_current_server_while_it_runs(
    case: str, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    story, used, expected = COMMANDS_CASES[case]
    for step in story.split(", "):
        what, name = step.split()
        match what:
            case "up":
                machine.up(name)
            case "use":
                machine.up(name, use=True)
            case "down":
                machine.down(name)
            case "choose":
                machine.choose(name)
    capsys.readouterr()
    assert machine.used() == used
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (1 if expected else 0)
    for line in lines:
        assert f"data folder {machine.folder / used}" in line
        assert expected in line


def test_a_second_server_says_which_one_commands_use(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.up(FIRST)
    assert capsys.readouterr().err == ""
    machine.up(SECOND)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"commands still use the context local-{machine.ports[FIRST]}" in line
    assert f"`admit context use local-{machine.ports[SECOND]}`" in line


def test_a_server_that_was_chosen_and_is_gone_is_not_replaced(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.up(FIRST)
    machine.up(SECOND)
    machine.choose(FIRST)
    machine.down(FIRST)
    capsys.readouterr()
    assert machine.used() == FIRST
    assert capsys.readouterr().err == ""


def test_a_context_of_another_machine_is_not_looked_at(machine: Machine) -> None:
    machine.up(FIRST)
    contexts.write(machine.env, Context(name="work", url="nats://192.0.2.1:4222"))
    call = outer_call(None, None, None, environ=machine.env)
    assert with_running_server(call) is call
