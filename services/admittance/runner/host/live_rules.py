"""The rules of a runner while it runs: the file of rules is read again when it changes, and members
of Unix groups are looked up again from time to time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import structlog
from msgspec.structs import replace

from admittance.events.shapes import Finding
from admittance.job_rules.options import (
    ONLY_ROOT,
    check_unix_users,
    is_own,
    members_of,
    parse_run_as,
    unix_users,
)
from admittance.job_rules.rules import NO_RULES, JobRules, UnixUser, UnixUsers
from admittance.job_rules.rules_file import read_trusted, rules_in
from admittance.runtime.errors import SetupError
from admittance.runtime.telemetry import findings

LOOK_SECONDS: Final = 0.3
"""Seconds between two looks at the file of rules."""
GROUPS_EVERY: Final = 30
"""After so many looks, the members of Unix groups are looked up again."""
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
            status, folder = file.lstat(), file.parent.stat()
        except OSError:
            return ()
        return (
            *(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns),
            *(folder.st_mode, folder.st_uid),
        )
