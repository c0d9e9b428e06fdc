"""The page that tries a change: what would start, wait or be evicted beside today."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from admittance.client.calls import Login
from admittance.web.views.actions import CHANGES, Ask
from admittance.web.views.whatif.object_changes import ObjectChange
from admittance.web.views.whatif.result import WITH, Result

APPLIES: Final = frozenset({"", "admin"})
"""The roles that apply manifests of every kind; others submit workloads only."""


class Attempt(NamedTuple):
    """What the form asks to try. ``text``: manifests; ``workload`` (``namespace/name``),
    ``priority`` and ``queue``: a change of an existing workload; "": none."""

    text: str = ""
    workload: str = ""
    priority: str = ""
    queue: str = ""


class WhatIfView(msgspec.Struct, frozen=True, kw_only=True):
    """``attempt``: the fields of the form; ``result`` None: nothing was tried yet. ``apply``: the
    action that applies what was tried, None: there is none for the role, and ``instead`` says how
    it is done. ``seen``: the live objects that were compared, with their revisions. ``done``: what
    was applied; ``problems``: one line for each mistake."""

    title: str
    text: str = ""
    workload: str = ""
    priority: str = ""
    queue: str = ""
    result: Result | None = None
    changes: tuple[ObjectChange, ...] = ()
    command: str = ""
    python: str = ""
    apply: Ask | None = None
    instead: str = ""
    seen: str = ""
    done: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def build(
    attempt: Attempt,
    login: Login,
    *,
    result: Result | None = None,
    changes: tuple[ObjectChange, ...] = (),
    only_workloads: bool = False,
    seen: str = "",
    done: tuple[str, ...] = (),
    problems: Sequence[str] = (),
) -> WhatIfView:
    """The view. ``only_workloads``: the manifests are Workloads and Jobs."""
    title = "What if"
    if problems:
        title = "Refused"
    elif done:
        title = "Applied"
    elif result is not None:
        text = "".join(part.text for part in result.say)
        title = f"What if: {text.removeprefix(WITH).partition('.')[0]}"
    view = WhatIfView(title=title, **attempt._asdict(), done=done, problems=tuple(problems))
    if result is None:
        return view
    apply, instead = applying(attempt, login, only_workloads=only_workloads)
    return msgspec.structs.replace(
        view,
        result=result,
        changes=changes,
        command=f"admit simulate{_words(attempt)}",
        python=f"await client.simulate({_arguments(attempt)})",
        apply=apply,
        instead=instead,
        seen=seen,
    )


def _words(attempt: Attempt) -> str:
    """The options of ``admit simulate``."""
    namespace, _, name = attempt.workload.partition("/")
    words = " -f FILE" if attempt.text.strip() else ""
    for field, value in (("priority", attempt.priority), ("queue", attempt.queue)):
        if name and value:
            words += f" --set {shlex.quote(f'{name}:{field}={value}')}"
    return f"{words} -n {shlex.quote(namespace)}" if name else words


def _arguments(attempt: Attempt) -> str:
    namespace, _, name = attempt.workload.partition("/")
    given = ["open('FILE').read()"] if attempt.text.strip() else []
    if name:
        change = f"'workload': {name!r}"
        if attempt.priority:
            change += f", 'priority': {int(attempt.priority)}"
        if attempt.queue:
            change += f", 'queue': {attempt.queue!r}"
        given += [f"changes=[{{{change}}}]", f"namespace={namespace!r}"]
    return ", ".join(given)


def applying(attempt: Attempt, login: Login, *, only_workloads: bool) -> tuple[Ask | None, str]:
    """The action that applies what was tried, or None and how else it is done: "" for a role that
    may not."""
    namespace, _, name = attempt.workload.partition("/")
    text = bool(attempt.text.strip())
    if login.role not in (CHANGES if only_workloads or not text else APPLIES):
        return None, ""
    space = f" -n {shlex.quote(namespace)}"
    if attempt.queue:
        again = f"admit resubmit {shlex.quote(name)} --queue {shlex.quote(attempt.queue)}{space}"
        return None, (
            "A workload cannot change its queue. Submit it again there, and delete it here: "
            f"{again}; admit delete workload {shlex.quote(name)}{space}"
        )
    if text and name:
        return None, "Try the manifests, or the change of a workload, alone to apply them."
    if text:
        return Ask(
            label="Apply…",
            verb="apply",
            command="admit apply -f FILE",
            python="await client.apply(open('FILE').read())",
            confirm="Apply these manifests? Workloads may start, wait or be evicted as shown.",
        ), ""
    return Ask(
        label="Apply…",
        verb="apply",
        command=f"admit priority workload {shlex.quote(name)} {attempt.priority}{space}",
        python=f"await client.set_priority({name!r}, {attempt.priority}, namespace={namespace!r})",
        confirm=f"Give {name} the priority {attempt.priority}?",
    ), ""
