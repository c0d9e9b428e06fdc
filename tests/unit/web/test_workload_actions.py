"""The actions of a workload, and what each prints for a terminal and for a program."""

from __future__ import annotations

import pytest

from admittance.client.calls import Login
from admittance.web.views.actions import Ask, actions
from admittance.workload.phase import Phase
from support.printed_actions import arguments_of_call, parameters_of_command

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
    given = parameters_of_command(ask)
    values = [value if isinstance(value, tuple) else (value,) for value in given.values()]
    assert any("w'1" in several for several in values)
    assert given["namespace"] == "team a"


@pytest.mark.parametrize("ask", every().values(), ids=list(every()))
def test_the_printed_line_of_python_calls_the_client(ask: Ask) -> None:
    assert arguments_of_call(ask)["namespace"] == "team a"


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        (Login("ada", "owner"), "priority hold stop resubmit delete"),
        (Login("bob", "owner"), "resubmit"),
        (Login("bob", "user"), "priority hold stop resubmit delete"),
        (ADMIN, "priority hold stop finish resubmit delete"),
    ],
    ids=[
        "the owner of the workload",
        "another owner",
        "a user, of any workload",
        "an admin",
    ],
)
def test_actions_are_those_of_the_role_and_the_submitter(login: Login, expected: str) -> None:
    asks = actions("ns", "w", Phase.PENDING, login, priority=5, held=False, submitted_by="ada")
    assert verbs(asks) == expected.split()


@pytest.mark.parametrize(
    ("phase", "expected"),
    [(Phase.RUNNING, ["stop"]), (Phase.DEACTIVATED, ["activate"]), (Phase.FINISHED, [])],
)
def test_a_variant_is_only_stopped_and_activated(phase: Phase, expected: list[str]) -> None:
    asks = actions("ns", "w", phase, ADMIN, priority=5, held=False, is_variant=True)
    assert verbs(asks) == expected
