"""What a person may do to a workload: each action with its command and its line of Python."""

from __future__ import annotations

import shlex
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from admittance.client.calls import Login
from admittance.workload.phase import Phase


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """An action. ``verb``: its name in the path; ``field``: the name of a value that it takes, ""
    without one; ``value``: the value before; ``confirm``: the question before it is done, ""
    without one; ``command``, ``python``: the same for a terminal and for a program, with ``{}``
    where the value stands."""

    label: str
    verb: str
    command: str
    python: str
    field: str = ""
    value: str = ""
    confirm: str = ""
    danger: bool = False


WAITS: Final = frozenset({Phase.PENDING, Phase.BACKOFF})
OVER: Final = frozenset({Phase.FINISHED})
FINISHES: Final = frozenset({"", "admin"})
"""The roles that declare a workload finished."""
OFF: Final = frozenset({Phase.DEACTIVATED, Phase.REJECTED})
CHANGES: Final = frozenset({"", "admin", "user", "owner"})
"""The roles that change workloads; "": the server has no users."""
APPROVES: Final = frozenset({"", "admin", "approver"})


def verdicts(
    namespace: str, name: str, approvals: tuple[str, ...], login: Login
) -> tuple[Ask, ...]:
    """The verdicts that a person may give on a workload: on each of the checks ``approvals``, which
    wait for the verdict of a person. () for a role that gives none."""
    asks: list[Ask] = []
    for check in approvals if login.role in APPROVES else ():
        words = f" --check {shlex.quote(check)}"
        given = f"({name!r}, check={check!r}"
        approve = f"approve:{check}"
        asks.append(_ask(namespace, name, f"Approve {check}", approve, f"approve{given}", words))
        confirm = f"Deny {name}? It is not admitted again until it is activated."
        call = f"deny{given}"
        deny = _ask(namespace, name, f"Deny {check}…", f"deny:{check}", call, words)
        asks.append(replace(deny, confirm=confirm, danger=True))
    return tuple(asks)


def release(namespace: str, name: str, login: Login, *, submitted_by: str) -> Ask | None:
    """The action that releases a held workload; None for a role that may not. ``submitted_by``: as
    for `actions`."""
    is_other = login.role == "owner" and login.user != submitted_by
    if login.role not in CHANGES or is_other:
        return None
    return _releasing(namespace, name)


def _releasing(namespace: str, name: str) -> Ask:
    return _ask(namespace, name, "Release", "release", f"release({name!r}", "")


def _ask(
    namespace: str, name: str, label: str, verb: str, call: str, words: str, **given: Any
) -> Ask:
    command = f"admit {verb.partition(':')[0]} workload {shlex.quote(name)}{words}"
    return Ask(
        label=label,
        verb=verb,
        command=f"{command} -n {shlex.quote(namespace)}",
        python=f"await client.{call}, namespace={namespace!r})",
        **given,
    )


def actions(
    namespace: str,
    name: str,
    phase: Phase,
    login: Login,
    *,
    priority: int,
    held: bool,
    approvals: tuple[str, ...] = (),
    submitted_by: str = "",
    is_variant: bool = False,
) -> tuple[Ask, ...]:
    """The actions that the phase allows and the role may ask for. nats-server decides about each of
    them again. ``approvals``: checks that wait for the verdict of a person. ``submitted_by``: an
    owner changes only own workloads. ``is_variant``: only stopped and activated by people."""

    def ask(label: str, verb: str, call: str, words: str = "", **given: Any) -> Ask:
        return _ask(namespace, name, label, verb, call, words, **given)

    asks = list(verdicts(namespace, name, approvals, login))
    if login.role not in CHANGES:
        return tuple(asks)
    again = ask("Submit again", "resubmit", f"resubmit({name!r}")
    if login.role == "owner" and login.user != submitted_by:
        return (*asks, *(() if is_variant else (again,)))
    confirm = f"Stop {name}? Its job ends, and it is not admitted again until it is activated."
    stop = ask("Stop…", "stop", f"stop({name!r}", confirm=confirm, danger=True)
    off = ask("Activate", "activate", f"activate({name!r}") if phase in OFF else stop
    if is_variant:
        return tuple(asks) if phase in OVER else (*asks, off)
    delete = ask("Delete…", "delete", f"delete('workload', {name!r}", danger=True)
    delete = replace(delete, confirm=f"Delete {name}? Its job ends.")
    if phase in OVER:
        return (*asks, again, delete)
    call = f"set_priority({name!r}, {{}}"
    given = {"field": "priority", "value": str(priority)}
    asks.append(ask("Set priority", "priority", call, " {}", **given))
    if held:
        asks.append(_releasing(namespace, name))
    elif phase in WAITS:
        asks.append(ask("Hold", "hold", f"hold({name!r}"))
    asks.append(off)
    if login.role in FINISHES:
        confirm = f"Declare {name} finished? Its quota is free at once."
        asks.append(ask("Finish…", "finish", f"finish({name!r}", confirm=confirm, danger=True))
    return (*asks, again, delete)
