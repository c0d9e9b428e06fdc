"""``admit token`` and ``admit completion``: for scripts and shells."""

from __future__ import annotations

import os
from pathlib import Path

from admittance.cli.commands.declare import argument, command
from admittance.cli.support import output
from admittance.client.errors import BadInput


@command(())
@argument("NAME...", "Names to escape.", name="names")
def token(names: tuple[str, ...]) -> None:
    """Print the escaped form of a name, as used in subjects, bucket keys and durables."""
    from admittance.events import names as object_names

    for name in names:
        if not name:
            raise BadInput("an empty name has no token")
        output.say(object_names.token(name))


@command(())
@argument("[SHELL]", "bash, zsh, fish or powershell.")
def completion(shell: str | None) -> None:
    """Print the shell's completion script: `source <(admit completion bash)`."""
    from admittance.cli.commands.completion import SCRIPTS

    chosen = shell or Path(os.environ.get("SHELL", "bash")).name
    if chosen not in SCRIPTS:
        raise BadInput(f'no completion for the shell "{chosen}"; there are {", ".join(SCRIPTS)}')
    output.say(SCRIPTS[chosen])
