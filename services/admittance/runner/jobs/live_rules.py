"""The rules of a runner while it runs: the file of rules is read again when it changes, and members
of Unix groups are looked up again from time to time."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import structlog
from msgspec.structs import replace

from admittance.events.shapes import Finding
from admittance.runner.jobs.job_rules import NO_RULES, JobRules, UnixUser, UnixUsers
from admittance.runner.jobs.rule_options import (
    ONLY_ROOT,
    check_unix_users,
    is_own,
    key_of,
    members_of,
    parse_run_as,
    unix_users,
)
from admittance.runtime.errors import SetupError
from admittance.runtime.telemetry import findings

LOOK_SECONDS: Final = 0.3
"""Seconds between two looks at the file of rules."""
GROUPS_EVERY: Final = 30
"""After so many looks, the members of Unix groups are looked up again."""
BYTES_MAX: Final = 1 << 20
"""The most bytes of a file of rules."""

log = structlog.get_logger(service="runner")


class LiveRules:
    """The current rules of a runner. ``local``: whether jobs are local processes, so that only root
    can start them as other Unix users. Methods read files and the directory of Unix users, so they
    may block.

    Invariant: a file of rules that cannot be trusted or read never changes the current rules.
    """

    def __init__(self, given: JobRules = NO_RULES, *, local: bool = True) -> None:
        self._given = given
        self._local = local
        self._seen: tuple[int, ...] = ()
        self._looked: tuple[int, ...] = ()
        self._looks = 0
        self._problem = ""
        self.current = given

    @property
    def can_change(self) -> bool:
        """Whether the rules can change while the runner runs."""
        return bool(self._given.file or self._given.groups)

    def load(self) -> None:
        """Reads the file and the groups. Raises SetupError for a file that cannot be trusted or
        read, and for options that this process cannot follow. A rule in the file that the process
        cannot follow refuses its jobs only."""
        if self._local:
            check_unix_users(self._given)
        if self.can_change:
            self._read()

    def refresh(self) -> bool:
        """Reads the file again if it has changed and was the same at the last look, and the groups
        if it is time; returns whether the rules are new. While a file cannot be trusted or read,
        the rules stay, and the log and `admit doctor` say why."""
        self._looks += 1
        found, before_look = self._signature(), self._looked
        self._looked = found
        if found != before_look:
            return False  # an editor may still be writing the file
        if found == self._seen and self._looks % GROUPS_EVERY:
            return False
        before = self.current
        try:
            self._read()
        except SetupError as error:
            self._note(str(error))
            return False
        return self.current != before

    def findings(self) -> list[Finding]:
        """The finding about rules that the runner does not follow."""
        if not self._problem:
            return []
        what = "rules of the runner"
        return [Finding(state=findings.WRONG, what=what, found=self._problem)]

    def _read(self) -> None:
        self._seen = self._looked = self._signature()
        where = self._given.file
        text = read_trusted(Path(where)) if where else ""
        found = parse_run_as(rules_in(text), where)
        users: dict[str, UnixUser | UnixUsers] = {}
        broken: dict[str, str] = {}
        for key, name in found.users.items():
            try:
                users[key] = self._usable(name, where)
            except SetupError as error:
                broken[key] = str(error)
        members: dict[str, UnixUser] = {}
        groups = tuple(dict.fromkeys((*self._given.groups, *found.groups)))
        for group in groups:
            try:
                if self._local and os.geteuid() != 0:
                    raise SetupError(f"{where} @{group}: {ONLY_ROOT}")
                members |= members_of(group)
            except SetupError as error:
                broken[f"@{group}"] = str(error)
        given = {key: user for key, user in self._given.run_as.items() if key not in broken}
        self.current = replace(
            self._given,
            run_as={**given, **users},
            groups=groups,
            members=members,
            broken=broken,
        )
        self._note("; ".join(broken.values()))

    def _usable(self, text: str, where: str) -> UnixUser | UnixUsers:
        """The Unix user that a rule in the file names. Raises SetupError if jobs may not run as
        that Unix user because of a file."""
        user = unix_users(text, where)
        if os.geteuid() == 0 or not self._local:
            if isinstance(user, UnixUser) and user.uid == 0:
                raise SetupError(f"{where}: only the option --run-as lets jobs run as root")
        elif not is_own(user):
            raise SetupError(f"{where}: {ONLY_ROOT}")
        return user

    def _note(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("rules_not_followed", reason=problem)
        elif self._problem and not problem:
            log.info("rules_followed", file=self._given.file)
        self._problem = problem

    def _signature(self) -> tuple[int, ...]:
        if not self._given.file:
            return ()
        file = Path(self._given.file)
        try:
            found, folder = file.lstat(), file.parent.stat()
        except OSError:
            return ()
        return (
            *(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns),
            *(folder.st_mode, folder.st_uid),
        )


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
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise SetupError(f"{path} is not a file of rules")
        for what, one in ((path, found), (path.parent, path.parent.stat())):
            if one.st_uid not in (0, os.geteuid()):
                raise SetupError(f"{what} belongs to another Unix user (uid {one.st_uid})")
            if one.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
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
