"""The file of rules that say which Unix user runs the jobs of which user: one rule in a line."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from admittance.job_rules.options import key_of
from admittance.runtime.errors import SetupError

BYTES_MAX: Final = 1 << 20
"""The most bytes of a file of rules."""


def rules_in(text: str) -> list[str]:
    """The rules in the text of a file: one in a line; ``#`` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def read_trusted(path: Path) -> str:
    """The text of a file that decides which rights jobs get; "": there is no such file. Raises
    SetupError unless the file and its folder belong to this Unix user or root, and no other Unix
    user may write them."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SetupError(f"cannot read the rules {path}: {error.strerror}") from None
    try:
        own_status = os.fstat(descriptor)
        if not stat.S_ISREG(own_status.st_mode):
            raise SetupError(f"{path} is not a file of rules")
        for what, status in ((path, own_status), (path.parent, path.parent.stat())):
            if status.st_uid not in (0, os.geteuid()):
                raise SetupError(f"{what} belongs to another Unix user (uid {status.st_uid})")
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise SetupError(f"other Unix users may write {what}: run `chmod go-w {what}`")
        data = os.read(descriptor, BYTES_MAX + 1)
    except OSError as error:
        raise SetupError(f"cannot read the rules {path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(data) > BYTES_MAX:
        raise SetupError(f"{path} is longer than {BYTES_MAX} bytes")
    return data.decode(errors="replace")


HEAD: Final = (
    "# Unix users of jobs, one rule in a line, as for --run-as; the runner reads this file again "
    "when\n# it changes.\n"
)


def with_rule(text: str, rule: str) -> str:
    """The text of a file of rules with the rule, in place of a rule with the same key."""
    lines = (text or HEAD).splitlines()
    at = _line_of(lines, key_of(rule))
    if at is None:
        lines.append(rule)
    else:
        lines[at] = rule
    return "".join(f"{line}\n" for line in lines)


def without_rule(text: str, key: str) -> str:
    """The text of a file of rules without the rule that has the key."""
    lines = text.splitlines()
    at = _line_of(lines, key)
    if at is not None:
        del lines[at]
    return "".join(f"{line}\n" for line in lines)


def rule_with(text: str, key: str) -> str:
    """The rule with the key in the text of a file of rules; "": there is none."""
    return next((rule for rule in rules_in(text) if key_of(rule) == key), "")


def _line_of(lines: list[str], key: str) -> int | None:
    for at, line in enumerate(lines):
        if any(key_of(rule) == key for rule in rules_in(line)):
            return at
    return None
