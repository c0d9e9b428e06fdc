"""``admit context list|use|show``: which server and credentials commands use without options."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import click

from admittance.cli.commands.declare import ALL, argument, command, group
from admittance.cli.support import output
from admittance.cli.support.options import Call, Output
from admittance.client.errors import RequestFailed
from admittance.runtime.nats import contexts
from admittance.runtime.nats.contexts import BadContext, Context
from admittance.runtime.nats.server_url import shown


def _names(_ctx: click.Context, _start: str) -> list[str]:
    return list(contexts.names(os.environ))


@command(ALL)
def list_(call: Call) -> None:
    """List the contexts; a star marks the current context."""
    current = None
    try:
        current = contexts.current_name(os.environ)
    except BadContext as error:
        output.warn(str(error))
    readable = []
    for name in contexts.names(os.environ):
        try:
            readable.append(contexts.context_named(os.environ, name))
        except BadContext as error:
            output.warn(str(error))
    if call.output is Output.NAME:
        for each in readable:
            output.say(each.name)
        return
    if output.show_value([_value(each, current) for each in readable], call.output):
        return
    if not readable:
        output.note("no contexts: `admit up` writes one")
        return
    columns = output.columns_of("CURRENT", "NAME", "SERVER", "CREDENTIALS")
    rows = [
        [
            "*" if each.name == current else "",
            each.name,
            shown(each.url),
            each.creds or output.NOTHING,
        ]
        for each in readable
    ]
    output.show_table(output.Table(columns, rows), wide=call.output is Output.WIDE)


@command(())
@argument("NAME", "A context.", complete=_names)
def use(name: str) -> None:
    """Make a context the current context."""
    try:
        used = contexts.use(os.environ, name)
    except BadContext as error:
        raise RequestFailed(str(error)) from None
    output.say(f"context {used.name}: {shown(used.url)}")


@command(without=[Output.NAME])
@argument("[NAME]", "Default: the current context.", complete=_names)
def show(call: Call, name: str | None) -> None:
    """Show the server, the credentials file and the TLS files of a context."""
    try:
        current = contexts.current_name(os.environ)
        chosen = name or current
        selected = None if chosen is None else contexts.context_named(os.environ, chosen)
    except BadContext as error:
        raise RequestFailed(str(error)) from None
    if selected is None:
        raise RequestFailed("there is no current context: `admit up` writes one")
    if output.show_value(_value(selected, current), call.output):
        return
    files = (
        ("TLS CA", selected.tls_ca),
        ("TLS cert", selected.tls_cert),
        ("TLS key", selected.tls_key),
    )
    output.facts(
        [
            ("Name", selected.name),
            ("Current", "yes" if selected.name == current else "no"),
            ("Server", shown(selected.url)),
            ("Credentials", selected.creds or output.NOTHING),
            *((title, file) for title, file in files if file),
            *([("TLS first", "yes")] if selected.tls_first else []),
        ]
    )


def _value(context: Context, current: str | None) -> dict[str, Any]:
    given = {name: value for name, value in asdict(context).items() if value}
    return {**given, "url": shown(context.url), "current": context.name == current}


context = group("Servers and credentials that commands use without options.", list_, use, show)
