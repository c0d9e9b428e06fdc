"""Scripts as jobs: ``admit submit train.sh`` with lines ``#ADMIT --gpu 1`` in the script's head.

The text of the script is a word of the job's command, so that the job runs what was submitted, also
if the file is changed later, with any runner and in the folder where other commands start.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from admittance.cli.commands.declare import WORDS
from admittance.client.errors import BadInput

MARK: Final = "#ADMIT"
MARKED: Final = re.compile(r"#ADMIT(?=\s|$)|# ADMIT(?=\s+-)")
"""The mark, also as formatters of Python write it: they put a space after each ``#``."""
SCRIPT_BYTES_MAX: Final = 131_071
"""The most bytes of a script: Linux starts no program with a longer argument."""
DEFAULT_SHEBANG: Final = "#!/bin/sh"
SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"})
SUFFIXES: Final = frozenset({".sh", ".bash", ".sbatch", ".slurm"})
BY_KEY: Final = frozenset({"env", "label"})
"""Options of which the script and the command line count together, each key once."""
SAME: Final = (frozenset({"priority", "priority_class"}), frozenset({"limit", "max_time"}))
"""Options that exclude each other: one of the command line goes before the other in the script."""
FROM_A_FILE: Final = (
    'f=$(mktemp) && printf %s "$1" >"$f" && exec 3<"$f" && rm -f "$f" && shift || exit 126; '
    'exec {} /dev/fd/3 "$@"'
)
"""The shell program that runs another interpreter with the script, which has no file at the end."""


class Line(NamedTuple):
    """A line ``#ADMIT`` of a script. ``number``: from 1. ``words``: after the mark."""

    number: int
    words: tuple[str, ...]


class Script(NamedTuple):
    """A script. ``named``: as the user typed it. ``lines``: the lines ``#ADMIT`` of its head.
    ``late``: the numbers of such lines after the first command, which have no effect."""

    named: str
    text: str
    lines: tuple[Line, ...]
    late: tuple[int, ...]

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command that runs the script with these arguments."""
        words = interpreter(self.text)
        if _is_shell(words):
            return [*words, "-c", self.text, self.named, *arguments]
        program = FROM_A_FILE.format(shlex.join(words))
        return ["/bin/sh", "-c", program, self.named, self.text, *arguments]


def read_script(named: str) -> Script | None:
    """The script of a file; None if the file is a program, or if there is no such file. Raises
    BadInput for a script that cannot run."""
    path = Path(named)
    if not path.is_file():
        if path.suffix in SUFFIXES:
            raise BadInput(
                f"{named}: there is no such script; a command of another machine stands after --"
            )
        return None
    try:
        with path.open("rb") as opened:
            data = opened.read(SCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(f"cannot read {named}: {error.strerror or error}") from None
    return script_of(named, data)


def script_of(named: str, data: bytes) -> Script | None:
    """The script with this content; None if the content is that of a program. Raises BadInput."""
    if b"\0" in data:
        return None
    if not data.strip():
        raise BadInput(f"{named} is empty")
    if len(data) > SCRIPT_BYTES_MAX:
        raise BadInput(
            f"{named}: a script has at most {SCRIPT_BYTES_MAX:,} bytes; bring data with --input"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{named} is no text in UTF-8, at byte {error.start + 1}") from None
    if "\r\n" in text:
        number = text[: text.index("\r\n")].count("\n") + 1
        raise BadInput(f"{named}:{number}: the line ends as on Windows (CRLF), which no shell runs")
    return Script(named, text, *_marked(named, text))


def _marked(named: str, text: str) -> tuple[tuple[Line, ...], tuple[int, ...]]:
    """The lines ``#ADMIT`` before the first command, and the numbers of those after it."""
    lines: list[Line] = []
    late: list[int] = []
    is_head = True
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            is_head = False
        mark = MARKED.match(line)
        if mark is None:
            continue
        if not is_head:
            late.append(number)
            continue
        try:
            words = shlex.split(line[mark.end() :])
        except ValueError as error:
            problem = str(error).lower().removesuffix(".")
            raise BadInput(f"{named}:{number}: {problem}") from None
        comment = next((n for n, word in enumerate(words) if word.startswith("#")), len(words))
        lines.append(Line(number, tuple(words[:comment])))
    return tuple(lines), tuple(late)


def interpreter(text: str) -> list[str]:
    """The words that run a script: those of its first line, else /bin/sh."""
    first = text.split("\n", 1)[0]
    if not first.startswith("#!") or not first[2:].strip():
        first = DEFAULT_SHEBANG
    program, _, rest = first[2:].strip().partition(" ")
    rest = rest.strip()
    if PurePath(program).name == "env" and rest.startswith("-S"):
        return [program, *shlex.split(rest[2:])]
    # Linux gives the interpreter all that follows as one argument.
    return [program, rest] if rest else [program]


def _is_shell(words: Sequence[str]) -> bool:
    if PurePath(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return bool(words) and PurePath(words[0]).name in SHELLS


def merged(
    typed: Mapping[str, Any], written: Mapping[str, Any], is_typed: frozenset[str]
) -> dict[str, Any]:
    """The values of options from the command line and from a script. ``is_typed``: the names of
    the options that stand on the command line, which win."""
    values = dict(typed)
    for name, value in written.items():
        if name in BY_KEY and name in is_typed:
            keys = {word.partition("=")[0] for word in typed[name]}
            kept = (word for word in value if word.partition("=")[0] not in keys)
            values[name] = (*kept, *typed[name])
            continue
        excluding = next((group for group in SAME if name in group), frozenset({name}))
        if not excluding & is_typed:
            values[name] = value
    return values


def written_options(ctx: click.Context, script: Script) -> dict[str, Any]:
    """The values of the options in a script, by the names of the parameters of the command. Raises
    BadInput with the file and the line."""
    parameters = {param.name: param for param in ctx.command.get_params(ctx)}
    values: dict[str, Any] = {}
    for line in script.lines:
        place = f"{script.named}:{line.number}"
        try:
            found, _, order = ctx.command.make_parser(ctx).parse_args(list(line.words))
            if words := _words(found):
                raise BadInput(f'"{words[0]}" is no option')
            for param in dict.fromkeys(order):
                if not isinstance(param, click.Option):
                    continue
                name = param.name or ""
                if param.is_eager or name == "file":
                    raise BadInput(f"a script has no {max(param.opts, key=len)}")
                value = parameters[name].process_value(ctx, found[name])
                values[name] = (*values.get(name, ()), *value) if param.multiple else value
        except click.ClickException as error:
            raise BadInput(f"{place}: {error.format_message()}") from None
        except BadInput as error:
            raise BadInput(*(f"{place}: {problem}" for problem in error.lines)) from None
    return values


def _words(found: Mapping[str, Any]) -> Sequence[str]:
    """The words of a parsed line that are no options."""
    words = found.get("command")
    return words if isinstance(words, tuple | list) else ()


def named_script(ctx: click.Context) -> Script | None:
    """The script that the command line names before ``--``; None: it names none, or the words are
    a command. Raises BadInput."""
    words = list(ctx.meta[WORDS])
    if not ctx.params["command"] or ctx.params["file"]:
        return None
    if "--" in words:
        before = words[: words.index("--")]
        if not _words(ctx.command.make_parser(ctx).parse_args(before)[0]):
            return None
    return read_script(ctx.params["command"][0])


def with_script(ctx: click.Context) -> None:
    """If the command line names a script, gives the call the options and the command of the
    script. Raises BadInput."""
    from admittance.cli.support import output
    from admittance.client.requests.submissions.names import stem, suffix

    script = named_script(ctx)
    if script is None:
        return
    for number in script.late:
        output.warn(
            f"{script.named}:{number}: {MARK} has no effect here: it stands after the first command"
        )
    is_typed = frozenset(
        name
        for name in ctx.params
        for context in (ctx, ctx.find_root())
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )
    values = merged(ctx.params, written_options(ctx, script), is_typed)
    values["command"] = tuple(script.command(ctx.params["command"][1:]))
    if values["name"] is None:
        values["name"] = f"{stem([PurePath(script.named).stem])}-{suffix()}"
    ctx.params.update(values)
