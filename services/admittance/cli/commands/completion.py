"""Completes words for shells: the scripts of `admit completion`, and the answers that they ask for.

A script calls `admit` with the variable ``_ADMIT_COMPLETE``, which names the shell. The variables
keep the names that scripts of earlier versions use.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from admittance.client.errors import BadInput

BASH: Final = """\
_admit_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \\
                   COMP_CWORD=$COMP_CWORD \\
                   _ADMIT_COMPLETE=complete_bash $1 ) )
    return 0
}

complete -o default -F _admit_completion admit"""
ZSH: Final = """\
#compdef admit

_admit_completion() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _ADMIT_COMPLETE=complete_zsh admit)
}

compdef _admit_completion admit"""
_FISH_ASKS: Final = (
    "env _ADMIT_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION={} "
    "_TYPER_COMPLETE_ARGS=(commandline -cp) admit"
)
FISH: Final = (
    f'complete --command admit --no-files --arguments "({_FISH_ASKS.format("get-args")})" '
    f'--condition "{_FISH_ASKS.format("is-args")}"'
)
POWERSHELL: Final = """\
Import-Module PSReadLine
Set-PSReadLineKeyHandler -Chord Tab -Function MenuComplete
$scriptblock = {
    param($wordToComplete, $commandAst, $cursorPosition)
    $Env:_ADMIT_COMPLETE = "complete_powershell"
    $Env:_TYPER_COMPLETE_ARGS = $commandAst.ToString()
    $Env:_TYPER_COMPLETE_WORD_TO_COMPLETE = $wordToComplete
    admit | ForEach-Object {
        $commandArray = $_ -Split ":::"
        $command = $commandArray[0]
        $helpString = $commandArray[1]
        [System.Management.Automation.CompletionResult]::new(
            $command, $command, 'ParameterValue', $helpString)
    }
    $Env:_ADMIT_COMPLETE = ""
    $Env:_TYPER_COMPLETE_ARGS = ""
    $Env:_TYPER_COMPLETE_WORD_TO_COMPLETE = ""
}
Register-ArgumentCompleter -Native -CommandName admit -ScriptBlock $scriptblock"""

SCRIPTS: Final = {
    "bash": BASH,
    "zsh": ZSH,
    "fish": FISH,
    "powershell": POWERSHELL,
    "pwsh": POWERSHELL,
}
"""The completion script of each shell."""


def answer(program: click.Command, instruction: str) -> int:
    """Prints the words that may come next; returns the exit status. ``instruction``: what the
    script asks for, such as ``complete_bash``."""
    what, _, shell = instruction.partition("_")
    if what != "complete" or shell not in SCRIPTS:
        sys.stderr.write(f'error: completion "{instruction}" is not supported\n')
        return 1
    words, start = _typed(shell)
    items = ShellComplete(program, {}, "admit", "").get_completions(words, start)
    if shell == "zsh":
        texts = "\n".join(_zsh(item) for item in items)
        sys.stdout.write(f"_arguments '*: :(({texts}))'\n" if items else "_files\n")
        return 0
    if shell == "fish" and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 0 if items else 1
    for item in items:
        about = " ".join((item.help or "").split())
        if shell == "fish" and about:
            sys.stdout.write(f"{item.value}\t{about}\n")
        elif shell in ("powershell", "pwsh"):
            sys.stdout.write(f"{item.value}:::{about or ' '}\n")
        else:
            sys.stdout.write(f"{item.value}\n")
    return 0


def _typed(shell: str) -> tuple[list[str], str]:
    """The words before the cursor, and the begin of the word at the cursor. Raises BadInput."""
    if shell == "bash":
        words = split_arg_string(os.environ.get("COMP_WORDS", ""))
        try:
            place = int(os.environ.get("COMP_CWORD", ""))
        except ValueError:
            raise BadInput(
                "COMP_CWORD must be the number of the word at the cursor: completion is for the "
                "script that `admit completion bash` prints"
            ) from None
        return words[1:place], words[place] if place < len(words) else ""
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = split_arg_string(line)[1:]
    if shell in ("powershell", "pwsh"):
        start = os.environ.get("_TYPER_COMPLETE_WORD_TO_COMPLETE", "")
        return words[:-1] if start else words, start
    if words and not line.endswith(" "):
        return words[:-1], words[-1]
    return words, ""


def _zsh(item: CompletionItem) -> str:
    value, about = (
        re.sub(r"[$`]", r"\\\g<0>", text.replace('"', '""').replace("'", "''")).replace(":", r"\\:")
        for text in (item.value, " ".join((item.help or "").split()))
    )
    return f'"{value}":"{about}"' if about else f'"{value}"'
