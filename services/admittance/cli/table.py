"""Which module declares which command. A call imports only the module of its command, since all
modules together take longer than most commands run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

import click
from click.exceptions import NoSuchCommand

from admittance.cli.commands.declare import Group, summary

COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Objects": {
        "apply": "objects.apply",
        "get": "objects.get",
        "describe": "objects.describe",
        "delete": "objects.delete",
        "simulate": "objects.simulate",
    },
    "Workloads": {
        "submit": "workloads.submit",
        "resubmit": "workloads.resubmit",
        "hold-quota": "workloads.hold_quota",
        "wait": "workloads.wait",
        "explain": "workloads.explain",
        "events": "workloads.events",
        "trace": "workloads.trace",
        "logs": "workloads.logs",
        "fetch": "workloads.fetch",
        "queue": "workloads.queue",
        "top": "top.command",
        "history": "accounting.history",
        "usage": "accounting.usage",
        "stop": "workloads.lifecycle",
        "cancel": "workloads.lifecycle",
        "activate": "workloads.lifecycle",
        "hold": "workloads.lifecycle",
        "release": "workloads.lifecycle",
        "finish": "workloads.lifecycle",
        "approve": "workloads.lifecycle",
        "deny": "workloads.lifecycle",
        "priority": "workloads.lifecycle",
    },
    "Machines": {
        "cordon": "cordon",
        "uncordon": "cordon",
        "drain": "cordon",
        "undrain": "cordon",
    },
    "The system": {
        "up": "up.commands",
        "serve": "up.commands",
        "web": "system.web",
        "doctor": "system.doctor",
        "bench": "system.bench",
        "replay": "system.replay",
        "check-test": "system.conformance",
        "provider-test": "system.conformance",
        "token": "system.scripts",
        "completion": "system.scripts",
        "backup": "system.backup",
        "restore": "system.backup",
        "auth": "auth.commands",
        "context": "auth.contexts",
    },
}
"""For each section of the help its commands, each with its module in `admittance.cli`. The module
has the command under the name of the command, with underscores.
"""
MODULES: Final = {name: module for names in COMMANDS.values() for name, module in names.items()}


class LazyCommands(Group):
    """The commands of the table, imported when they are needed."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = MODULES.get(cmd_name)
        if module is None:
            return None
        command = getattr(import_module(f"admittance.cli.{module}"), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command), cmd_name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=MODULES, ctx=ctx) from None

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        for section, names in COMMANDS.items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            yield (
                section,
                [(name, summary(command)) for name, command in commands if command is not None],
            )
