"""Reads the rules of a runner from options and ``ADMIT_*`` variables."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from admittance.api.names import name_error
from admittance.runner.jobs.job_rules import EVERY, UNKNOWN, JobRules, UnixUser, UnixUsers
from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import text_list

VARIABLES: Final[Mapping[str, str]] = {
    "run_as": "ADMIT_RUN_AS",
    "namespaces": "ADMIT_JOB_NAMESPACES",
    "images": "ADMIT_JOB_IMAGES",
    "folders": "ADMIT_JOB_FOLDERS",
}
"""For each field of `RuleTexts` the environment variable that has the field's values, separated by
commas."""
OPTIONS: Final[Mapping[str, str]] = {
    "run_as": "--run-as",
    "namespaces": "--job-namespace",
    "images": "--job-image",
    "folders": "--job-folder",
}


class RuleTexts(NamedTuple):
    """The rules of a runner as texts of options; for the meaning of the fields see `JobRules`.
    ``run_as``: texts ``KEY=UNIX_USER``."""

    run_as: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def rules_of(texts: RuleTexts, env: Mapping[str, str], *, executor: str) -> JobRules:
    """The rules that the options set; a rule without an option comes from its environment variable.
    Raises SetupError for a wrong value."""
    given = {name: getattr(texts, name) or text_list(env, VARIABLES[name]) for name in VARIABLES}
    for name, other in (("images", "docker"), ("folders", "local")):
        if given[name] and executor != other:
            raise SetupError(
                f"{_shown(name)} has no effect with --executor {executor}, only with {other}"
            )
    for namespace in given["namespaces"]:
        if wrong := name_error(namespace):
            raise SetupError(f"{_shown('namespaces')}: {wrong}")
    return JobRules(
        namespaces=tuple(sorted(set(given["namespaces"]))),
        run_as=_run_as(given["run_as"]),
        images=given["images"],
        folders=tuple(_folder(one) for one in given["folders"]),
    )


def _run_as(texts: Iterable[str]) -> dict[str, UnixUser | UnixUsers]:
    found: dict[str, UnixUser | UnixUsers] = {}
    for text in texts:
        key, separator, user = text.rpartition("=")
        kind, colon, name = key.partition(":")
        named = kind in ("user", "namespace") and bool(colon and name)
        if not separator or not (named or key in (EVERY, UNKNOWN)):
            raise SetupError(
                f"{_shown('run_as')} {text}: it must be user:NAME=UNIX_USER, "
                "namespace:NAME=UNIX_USER, unknown=UNIX_USER or *=UNIX_USER"
            )
        if key in found:
            raise SetupError(f"{_shown('run_as')}: {key} is given twice")
        found[key] = _range(user) or unix_user(user)
    return found


def _range(text: str) -> UnixUsers | None:
    """The range of Unix users ``LOW-HIGH``; None for any other text. Raises SetupError."""
    low, dash, high = text.partition("-")
    if not (dash and low.isdecimal() and high.isdecimal()):
        return None
    if not 0 < int(low) < int(high) < 2**32 - 1:
        raise SetupError(
            f"{_shown('run_as')}: {text} is not a range of Unix users without root, LOW-HIGH"
        )
    return UnixUsers(low=int(low), high=int(high))


def unix_user(text: str) -> UnixUser:
    """The Unix user with the name, ``UID`` or ``UID:GID`` in ``text``. Raises SetupError."""
    uid, _, gid = text.partition(":")
    if uid.isdecimal() and (not gid or gid.isdecimal()):
        number = int(uid)
        if max(number, int(gid or 0)) >= 2**32 - 1:
            raise SetupError(f"{_shown('run_as')}: {text} is not the number of a Unix user")
        if gid:
            return UnixUser(uid=number, gid=int(gid), groups=(int(gid),))
        try:
            return _known(pwd.getpwuid(number))
        except KeyError:
            return UnixUser(uid=number, gid=number, groups=(number,))
    try:
        return _known(pwd.getpwnam(text))
    except KeyError:
        raise SetupError(f"{_shown('run_as')}: there is no Unix user {text!r}") from None


def _known(entry: pwd.struct_passwd) -> UnixUser:
    named = {one.gr_gid for one in grp.getgrall() if entry.pw_name in one.gr_mem}
    return UnixUser(
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(sorted({entry.pw_gid, *named})),
        name=entry.pw_name,
        home=entry.pw_dir,
    )


def check_unix_users(rules: JobRules) -> None:
    """Raises SetupError if this process cannot start jobs as the Unix users that the rules name, or
    if this process is root and the rules name no Unix user."""
    own = os.geteuid()
    if own == 0 and not rules.run_as:
        raise SetupError(
            "the runner is root: name the Unix user of its jobs with --run-as or ADMIT_RUN_AS, "
            "such as '*=nobody'"
        )
    others = [
        key
        for key, user in rules.run_as.items()
        if own != 0 and (isinstance(user, UnixUsers) or user.uid != own)
    ]
    if others:
        raise SetupError(
            f"--run-as {others[0]}: only a runner that is root can start jobs as other Unix users"
        )


def _folder(text: str) -> str:
    if not os.path.isabs(text):  # noqa: PTH117
        raise SetupError(f"{_shown('folders')}: the path {text} must be an absolute path")
    return os.path.realpath(text)


def _shown(name: str) -> str:
    return f"{OPTIONS[name]} ({VARIABLES[name]})"
