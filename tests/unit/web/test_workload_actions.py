"""The actions of a workload, and what each prints for a terminal and for a program."""

from __future__ import annotations

import ast
import inspect
import shlex

import click
import pytest

from admittance.cli.table import LazyCommands
from admittance.client import Client
from admittance.client.calls import Login
from admittance.web.views.actions import Ask, actions
from admittance.workload.phase import Phase

ADMIN = Login("root", "admin")


def of(phase: Phase, login: Login = ADMIN, *, held: bool = False) -> tuple[Ask, ...]:
    return actions("team a", "w'1", phase, login, priority=5, held=held, approvals=("money",))


def verbs(asks: tuple[Ask, ...]) -> list[str]:
    return [ask.verb for ask in asks]


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.PENDING, "priority hold stop finish resubmit delete"),
        (Phase.RUNNING, "priority stop finish resubmit delete"),
        (Phase.DEACTIVATED, "priority activate finish resubmit delete"),
        (Phase.FINISHED, "resubmit delete"),
    ],
)
def test_a_phase_has_its_actions(phase: Phase, expected: str) -> None:
    assert verbs(of(phase)) == ["approve:money", "deny:money", *expected.split()]


def test_a_held_workload_can_be_released() -> None:
    assert "release" in verbs(of(Phase.PENDING, held=True))
    assert "hold" not in verbs(of(Phase.PENDING, held=True))


@pytest.mark.parametrize(
    ("role", "expected"), [("viewer", []), ("approver", ["approve:money", "deny:money"])]
)
def test_what_a_role_may_not_do_is_not_shown(role: str, expected: list[str]) -> None:
    assert verbs(of(Phase.PENDING, Login("eve", role))) == expected


def test_what_ends_work_asks_first() -> None:
    asks = of(Phase.RUNNING)
    assert [ask.verb for ask in asks if ask.confirm] == ["deny:money", "stop", "finish", "delete"]
    assert all(ask.danger == bool(ask.confirm) for ask in asks)


def every() -> dict[str, Ask]:
    shown = [*of(Phase.PENDING), *of(Phase.PENDING, held=True), *of(Phase.DEACTIVATED)]
    return {ask.verb: ask for ask in shown}


@pytest.mark.parametrize("ask", every().values(), ids=list(every()))
def test_the_printed_command_is_one_of_admit(ask: Ask) -> None:
    words = shlex.split(ask.command.replace("{}", "7"))
    group = LazyCommands("admit")
    command = group.get_command(click.Context(group), words[1])
    assert command is not None
    context = command.make_context(words[1], words[2:])
    values = [value if isinstance(value, tuple) else (value,) for value in context.params.values()]
    assert any("w'1" in several for several in values)
    assert context.params["namespace"] == "team a"


@pytest.mark.parametrize("ask", every().values(), ids=list(every()))
def test_the_printed_line_of_python_calls_the_client(ask: Ask) -> None:
    [call] = [
        node
        for node in ast.walk(ast.parse(ask.python.replace("{}", "7")))
        if isinstance(node, ast.Call)
    ]
    assert isinstance(call.func, ast.Attribute)
    method = getattr(Client, call.func.attr)
    given = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    places = [ast.literal_eval(word) for word in call.args]
    inspect.signature(method).bind(None, *places, **given)
    assert given["namespace"] == "team a"
