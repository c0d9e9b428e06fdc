"""Reads the rules of a runner from options and ``ADMIT_*`` variables."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from admittance.api.fields.names import label_error
from admittance.job_rules.hooks import HookTexts, hooks_of
from admittance.job_rules.limits import LimitTexts, limits_of
from admittance.job_rules.rules import EVERY, UNKNOWN, JobRules, UnixUser, UnixUsers
from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import text_list

VARIABLES: Final[Mapping[str, str]] = {
    "run_as": "ADMIT_RUN_AS",
    "file": "ADMIT_RUN_AS_FILE",
    "namespaces": "ADMIT_JOB_NAMESPACES",
    "images": "ADMIT_JOB_IMAGES",
    "folders": "ADMIT_JOB_FOLDERS",
    "host_paths": "ADMIT_ALLOW_HOST_PATHS",
    "env_files": "ADMIT_ENV_FILES",
    "shared_folders": "ADMIT_SHARED_FOLDERS",
    "checkpoint_folder": "ADMIT_CHECKPOINT_FOLDER",
}
"""For each field of `RuleTexts` the environment variable that has the field's values, separated by
commas."""
OPTIONS: Final[Mapping[str, str]] = {
    "run_as": "--run-as",
    "file": "--run-as-file",
    "namespaces": "--job-namespace",
    "images": "--job-image",
    "folders": "--job-folder",
    "host_paths": "--allow-host-path",
    "env_files": "--env-files",
    "shared_folders": "--shared-folder",
    "checkpoint_folder": "--checkpoint-folder",
}


EXECUTORS: Final = ("local", "docker")
"""How a runner can start jobs: as processes, or as containers of an engine."""


class RuleTexts(NamedTuple):
    """The rules of a runner as texts of options; for the meaning of the fields see `JobRules`.
    ``run_as``: texts ``KEY=UNIX_USER`` or ``@GROUP``. ``file`` and folders of one path: at most
    one path. ``limits``, ``hooks``: the texts of limits and of what runs before and after
    each job."""

    run_as: tuple[str, ...] = ()
    file: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    host_paths: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    shared_folders: tuple[str, ...] = ()
    checkpoint_folder: tuple[str, ...] = ()
    limits: LimitTexts = LimitTexts()
    hooks: HookTexts = HookTexts()


def rules_of(texts: RuleTexts, env: Mapping[str, str], *, executor: str) -> JobRules:
    """The rules that the options set; a rule without an option comes from its environment variable.
    Raises SetupError for a wrong value."""
    given = {name: getattr(texts, name) or text_list(env, VARIABLES[name]) for name in VARIABLES}
    for name, other in (("images", "docker"), ("folders", "local"), ("shared_folders", "local")):
        if given[name] and executor != other:
            raise SetupError(
                f"{_shown(name)} has no effect with --executor {executor}, only with {other}"
            )
    for namespace in given["namespaces"]:
        if wrong := label_error(namespace):
            raise SetupError(f"{_shown('namespaces')}: {wrong}")
    where = _shown("run_as")
    run_as = parse_run_as(given["run_as"], where)
    host_paths = tuple(_folder(path, "host_paths") for path in given["host_paths"])
    if executor == "docker":
        _check_apart(host_paths)
    return JobRules(
        namespaces=tuple(sorted(set(given["namespaces"]))),
        run_as={key: unix_users(text, where) for key, text in run_as.users.items()},
        groups=run_as.groups,
        file=_file(given["file"]),
        images=given["images"],
        folders=tuple(_folder(path, "folders") for path in given["folders"]),
        host_paths=host_paths,
        env_files=_env_files(given["env_files"], host_paths),
        checkpoint_folder=_one_folder(given["checkpoint_folder"], "checkpoint_folder"),
        shared_folders=tuple(map(_shared_folder, given["shared_folders"])),
        limits=limits_of(texts.limits, env),
        hooks=hooks_of(texts.hooks, env),
    )


class RunAs(NamedTuple):
    """The texts of Unix users in rules ``KEY=UNIX_USER`` by their keys, and the groups of the rules
    ``@GROUP``."""

    users: dict[str, str]
    groups: tuple[str, ...]


def key_of(text: str) -> str:
    """What a rule is about: the rule ``@GROUP`` itself, or the key of ``KEY=UNIX_USER``."""
    return text if text.startswith("@") else text.rpartition("=")[0]


def parse_run_as(texts: Iterable[str], where: str) -> RunAs:
    """The rules in the texts. ``where``: the option or the file with the rules, for messages.
    Raises SetupError."""
    users: dict[str, str] = {}
    groups: list[str] = []
    for text in texts:
        key = key_of(text)
        kind, colon, name = key.partition(":")
        named = kind in ("user", "namespace") and bool(colon and name)
        if not (named or key in (EVERY, UNKNOWN) or (len(key) > 1 and key.startswith("@"))):
            raise SetupError(
                f"{where} {text}: it must be user:NAME=UNIX_USER, namespace:NAME=UNIX_USER, "
                "unknown=UNIX_USER, *=UNIX_USER or @GROUP"
            )
        if key in users or key[1:] in groups:
            raise SetupError(f"{where}: {key} is given twice")
        if key.startswith("@"):
            groups.append(key[1:])
        else:
            users[key] = text.rpartition("=")[2]
    return RunAs(users, tuple(groups))


def unix_users(text: str, where: str) -> UnixUser | UnixUsers:
    """The Unix user or the range of Unix users in the text. Raises SetupError."""
    return _range(text, where) or unix_user(text, where)


def _range(text: str, where: str) -> UnixUsers | None:
    """The range of Unix users ``LOW-HIGH``; None for any other text. Raises SetupError."""
    low, dash, high = text.partition("-")
    if not (dash and low.isdecimal() and high.isdecimal()):
        return None
    if not 0 < int(low) < int(high) < 2**32 - 1:
        raise SetupError(f"{where}: {text} is not a range of Unix users without root, LOW-HIGH")
    return UnixUsers(low=int(low), high=int(high))


def unix_user(text: str, where: str = "--run-as") -> UnixUser:
    """The Unix user with the name, ``UID`` or ``UID:GID`` in ``text``. Raises SetupError."""
    uid, _, gid = text.partition(":")
    if uid.isdecimal() and (not gid or gid.isdecimal()):
        number = int(uid)
        if max(number, int(gid or 0)) >= 2**32 - 1:
            raise SetupError(f"{where}: {text} is not the number of a Unix user")
        if gid:
            return UnixUser(uid=number, gid=int(gid), groups=(int(gid),))
        try:
            return _known(pwd.getpwuid(number))
        except KeyError:
            return UnixUser(uid=number, gid=number, groups=(number,))
    try:
        return _known(pwd.getpwnam(text))
    except KeyError:
        raise SetupError(f"{where}: there is no Unix user {text!r}") from None


def _known(entry: pwd.struct_passwd) -> UnixUser:
    named = {group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem}
    return UnixUser(
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(sorted({entry.pw_gid, *named})),
        name=entry.pw_name,
        home=entry.pw_dir,
        shell=entry.pw_shell,
    )


def own_unix_user(environ: Mapping[str, str]) -> UnixUser:
    """The Unix user of this process, without its groups. ``environ``: has the home folder of a user
    that the machine does not know, as in containers."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return UnixUser(uid=uid, gid=gid, home=environ.get("HOME", "/"))
    return UnixUser(uid=uid, gid=gid, name=entry.pw_name, home=entry.pw_dir, shell=entry.pw_shell)


def members_of(name: str) -> dict[str, UnixUser]:
    """The members of a Unix group by name: the users that the group lists, and the users whose own
    group it is. Root is left out, and so is every other name of uid 0. Raises SetupError if the
    group does not exist."""
    try:
        group = grp.getgrnam(name)
    except KeyError:
        raise SetupError(f"--run-as @{name}: there is no Unix group {name!r}") from None
    primary = {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == group.gr_gid}
    members: dict[str, UnixUser] = {}
    for member in sorted({*group.gr_mem, *primary}):
        with suppress(KeyError):  # the group lists a user that does not exist
            entry = pwd.getpwnam(member)
            if entry.pw_uid:
                members[member] = _known(entry)
    return members


def check_unix_users(rules: JobRules) -> None:
    """Raises SetupError if this process cannot start jobs as the Unix users that the rules name, or
    if this process is root and the rules name no Unix user."""
    own = os.geteuid()
    if own == 0 and not rules.names_unix_users:
        raise SetupError(
            "the runner is root: name the Unix user of its jobs with --run-as or ADMIT_RUN_AS, "
            "such as '*=nobody'"
        )
    if own == 0:
        return
    others = [key for key, user in rules.run_as.items() if not is_own(user)]
    others += [f"@{group}" for group in rules.groups]
    if others:
        raise SetupError(f"--run-as {others[0]}: {ONLY_ROOT}")


ONLY_ROOT: Final = "only a runner that is root can start jobs as other Unix users"


def is_own(user: UnixUser | UnixUsers) -> bool:
    """Whether this process runs as the Unix user."""
    return isinstance(user, UnixUser) and user.uid == os.geteuid()


def _file(paths: tuple[str, ...]) -> str:
    if not paths:
        return ""
    path = Path(paths[-1]).absolute()
    if len(paths) > 1:
        raise SetupError(f"{_shown('file')}: {paths[0]} and {paths[1]} are given, name one file")
    if not path.is_file():
        raise SetupError(f"{_shown('file')}: there is no file {path}")
    return str(path)


def _shared_folder(text: str) -> str:
    # The path counts as it is written, since it is compared with those of other machines; the
    # folder is not looked at, since a file server that is away would hold up the runner.
    if not text.startswith("/"):
        raise SetupError(f"{_shown('shared_folders')}: the path {text} must be an absolute path")
    return os.path.normpath(text)


def _one_folder(paths: tuple[str, ...], name: str) -> str:
    if len(paths) > 1:
        raise SetupError(f"{_shown(name)}: {paths[0]} and {paths[1]} are given, name one folder")
    return _folder(paths[0], name) if paths else ""


def _folder(text: str, name: str) -> str:
    if not os.path.isabs(text):  # noqa: PTH117
        raise SetupError(f"{_shown(name)}: the path {text} must be an absolute path")
    return os.path.realpath(text)


def _check_apart(host_paths: tuple[str, ...]) -> None:
    """Raises SetupError if one folder lies in another one: a container with the outer one can put a
    link in place of the inner one, which the engine would follow as root."""
    for inner in host_paths:
        for outer in host_paths:
            if inner != outer and Path(inner).is_relative_to(outer):
                raise SetupError(
                    f"{_shown('host_paths')}: {inner} lies in {outer}, and a container could put "
                    f"a link in its place: name one of them"
                )


def _env_files(paths: tuple[str, ...], host_paths: tuple[str, ...]) -> str:
    """The folder of the values of ConfigMaps and Secrets, which no job may read by itself."""
    if not paths:
        return ""
    where = _shown("env_files")
    if len(paths) > 1:
        raise SetupError(f"{where}: {paths[0]} and {paths[1]} are given, name one folder")
    folder = Path(_folder(paths[0], "env_files"))
    try:
        status = folder.stat()
    except OSError as error:
        raise SetupError(f"{where}: {folder} cannot be read: {error.strerror}") from error
    if not folder.is_dir():
        raise SetupError(f"{where}: {folder} is not a folder")
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise SetupError(
            f"{where}: other Unix users may read {folder}: give it to the runner's Unix user and "
            f"close it with chmod 700 {folder}"
        )
    for path in host_paths:
        if folder.is_relative_to(path) or Path(path).is_relative_to(folder):
            raise SetupError(f"{where}: jobs may mount {path}, so they could read {folder}")
    return str(folder)


def check_env_files(rules: JobRules) -> None:
    """Raises SetupError if local processes of one namespace could read the values of another one:
    processes that run as the runner's own Unix user can read its files."""
    if not rules.env_files or len(rules.namespaces) == 1:
        return
    own = os.geteuid()
    if own or not rules.names_unix_users or any(map(is_own, rules.run_as.values())):
        raise SetupError(
            f"{_shown('env_files')}: jobs run as the Unix user of the runner, so those of every "
            "namespace could read all values: start the runner as root with --run-as for other "
            "users, serve one namespace with --job-namespace, or run containers with "
            "--executor docker"
        )


def _shown(name: str) -> str:
    return f"{OPTIONS[name]} ({VARIABLES[name]})"
