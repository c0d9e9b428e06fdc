"""Options and arguments that several commands share, and the words that shells complete for them.

Constants of modules that take long to import are read when a help or a completion needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

import click

from admittance.cli.commands.declare import (
    PLACE,
    Command,
    Complete,
    F,
    argument,
    command,
    option,
    stacked,
)
from admittance.cli.support.options import Call, Output, outer_call
from admittance.client.errors import BadInput


def ends() -> tuple[str, ...]:
    """The phases of workloads, and the results that `admit wait` accepts besides them."""
    from admittance.phases import End, Phase

    return (*Phase, *End)


def phases(_ctx: click.Context, _start: str) -> Sequence[str]:
    return ends()


def kinds(_ctx: click.Context, _start: str) -> list[str]:
    from admittance.client.kinds import KINDS

    return [kind.plural for kind in KINDS]


def kinds_and_pending(ctx: click.Context, start: str) -> list[str]:
    return [*kinds(ctx, start), "pending"]


def typed_call(ctx: click.Context) -> Call:
    """The call of a command line that is being completed. Raises BadInput."""
    given = {name: value for name, value in ctx.params.items() if value is not None}
    typed = {**ctx.find_root().params, **given}
    return outer_call(typed.get("nats"), typed.get("namespace"), None, given=typed)


def names_of(kind: str = "") -> Complete:
    """Completes the names of existing objects of the kind; "": of the kind in the command line."""

    def complete(ctx: click.Context, start: str) -> list[str]:
        from admittance.client.kinds import kind_named
        from admittance.client.quick_names import names

        wanted = kind or str(ctx.params.get("kind") or "pending")
        if wanted.lower() == "pending":
            return []
        try:
            call = typed_call(ctx)
            return names(call.url, kind_named(wanted), call.namespace, start, call.connection)
        except BadInput:
            return []

    return complete


queues: Final = names_of("localqueues")

KIND_HELP: Final = "Plural, singular or short name."
optional_name = argument("[NAME]", "Name of one object.", complete=names_of())
all_namespaces = option("--all-namespaces -A", "In all namespaces.")
follow = option("--follow -f -F", "Follow until interrupted.")
timeout = option("--timeout SPAN", "Give up after this time (90, 90s, 5m, 1h30m) with status 1.")
file_option = option("--file -f FILE|DIR|-", "Manifests; may be repeated.", many=True)


def workload_words(word: str, name: str) -> Callable[[F], F]:
    """The two arguments ``workload NAME``, or ``workload/NAME``, as ``kind`` and ``name``; with a
    ``word`` in brackets they may be left out."""
    return stacked(
        argument(
            word,
            "The word workload (or wl), or workload/NAME.",
            name="kind",
            complete=lambda _ctx, _start: ["workload"],
        ),
        argument(name, "The name of the workload.", required=False, complete=names_of("workloads")),
    )


def workload_command(
    takes: Sequence[str] = PLACE, *, without: Sequence[Output] = ()
) -> Callable[[Callable[..., Any]], Command]:
    """As `command`, for a command on one workload: ``workload NAME`` or ``workload/NAME``. The
    function gets the name as its second parameter."""

    def make(function: Callable[..., Any]) -> Command:
        @wraps(function)
        def named(call: Call, kind: str, name: str | None, **values: Any) -> Any:
            from admittance.client.kinds import workload_target

            return function(call, workload_target(kind, name), **values)

        return command(takes, without=without)(workload_words("workload", "NAME")(named))

    return make
