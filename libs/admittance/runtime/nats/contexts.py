"""Contexts: the servers that a person uses, each with its credentials file and TLS.

Contexts are files in the folder of the user's configuration.

``contexts/NAME.json`` is one context, and the file ``current`` holds the name of the context that
commands use without options; the file ``chosen`` holds the same name if the user chose it. Only the
owner of the context files may read them. This module imports no client library, because short
commands look for their server with it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from admittance.runtime.nats.server_url import BadUrl, is_loopback, read_urls

VERSION: Final = 1
PROBE_SECONDS: Final = 0.2
BYTES_MAX: Final = 1 << 20
"""The most bytes of a context file."""
_NAME: Final = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_LOOPBACK: Final = re.compile(r"//(localhost|\[::1\])(?=:|$)")


class BadContext(ValueError):
    """A context that is missing, damaged, or readable for other users. The text is one line."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """A server and how to log in there. The fields from ``creds`` on are those of
    `ConnectionOptions`.
    """

    name: str
    url: str
    data_dir: str | None = None
    """The data folder of the `admit up` that runs the server; None: it is another server."""
    creds: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_first: bool = False

    @property
    def access(self) -> dict[str, Any]:
        """Login and TLS, by field of `ConnectionOptions`; without fields that are not set."""
        values = asdict(self)
        about = ("name", "url", "data_dir")
        return {name: value for name, value in values.items() if value and name not in about}


def folder_of(env: Mapping[str, str]) -> Path | None:
    """The folder of the user's configuration; None if the user has no home folder."""
    chosen = env.get("XDG_CONFIG_HOME", "")
    # The XDG rules: a relative path is invalid and counts as not set.
    if chosen.startswith("/"):
        return Path(chosen) / "admittance"
    home = env.get("HOME", "")
    return Path(home) / ".config" / "admittance" if home.startswith("/") else None


def current_name(env: Mapping[str, str]) -> str | None:
    """The name of the user's current context of `admit context`; None if no context is current.
    Raises BadContext."""
    folder = folder_of(env)
    text = None if folder is None else _read(folder / "current")
    if text is None:
        return None
    name = text.strip()
    if not _NAME.match(name):
        raise BadContext(
            f"{folder}/current is damaged: choose a context with `admit context use NAME`"
        )
    return name


def current(env: Mapping[str, str]) -> Context | None:
    """The context that commands use without options; None if no context is current. Raises
    BadContext.
    """
    name = current_name(env)
    return None if name is None else context_named(env, name)


def context_named(env: Mapping[str, str], name: str) -> Context:
    """The context of that name. Raises BadContext if the context is missing or damaged."""
    folder = folder_of(env)
    path = None if folder is None else folder / "contexts" / f"{name}.json"
    text = _read(path) if path is not None and _NAME.match(name) else None
    if path is None or text is None:
        raise BadContext(
            f'there is no context "{name}": `admit context list` shows the contexts, and '
            "`admit context use NAME` chooses one"
        )
    return _parsed(path, name, text)


def local_name(url: str) -> str:
    """The name of the context that `admit up` writes for its server at this address."""
    return f"local-{url.rpartition(':')[2]}"


def context_of(env: Mapping[str, str], url: str) -> Context | None:
    """The context of the servers of ``url``: the current one if it has all of them, else the first
    by name. None if no context has these servers. A damaged context counts as absent; raises
    BadContext if the damaged context has the name that `admit up` gives the server.
    """
    known = names(env)
    if not known:
        return None
    with suppress(BadContext):
        first = current_name(env)
        known.sort(key=lambda name: name != first)
    try:
        wanted = _addresses(url)
    except BadUrl:
        return None
    own = {local_name(each) for each in wanted if each.startswith("nats://127.0.0.1:")}
    for name in known:
        try:
            context = context_named(env, name)
        except BadContext:
            if name in own:
                raise
            continue
        if wanted <= _addresses(context.url):
            return context
    return None


def write(env: Mapping[str, str], context: Context, *, current: bool = True) -> Path:
    """Writes the context, and makes it the current one if ``current``; returns its file. Raises
    BadContext."""
    folder = folder_of(env)
    if folder is None:
        raise BadContext("there is no folder for contexts: set HOME or XDG_CONFIG_HOME")
    import json

    path = folder / "contexts" / f"{context.name}.json"
    kept = {name: value for name, value in asdict(context).items() if value}
    _write(path, json.dumps({"version": VERSION, **kept}, indent=2))
    if current:
        _write(folder / "current", context.name)
    return path


def use(env: Mapping[str, str], name: str) -> Context:
    """Makes the context of that name the current one, by the user's choice. Raises BadContext."""
    context = context_named(env, name)
    folder = folder_of(env)
    assert folder is not None
    _write(folder / "current", name)
    _write(folder / "chosen", name)
    return context


def is_chosen(env: Mapping[str, str]) -> bool:
    """Whether the user chose the current context. Raises BadContext."""
    folder = folder_of(env)
    text = None if folder is None else _read(folder / "chosen")
    return text is not None and text.strip() == current_name(env)


def listens(context: Context, seconds: float = PROBE_SECONDS) -> bool:
    """Whether a program listens at a server of the context."""
    import socket

    for server in read_urls(context.url):
        parts = urlsplit(server.address)
        place = parts.hostname or "", parts.port or (443 if parts.scheme == "wss" else 80)
        with suppress(OSError, OverflowError), socket.create_connection(place, seconds):
            return True
    return False


def running(env: Mapping[str, str]) -> list[Context]:
    """The contexts of `admit up` of this machine with a running server, sorted by name."""
    contexts = []
    for name in names(env):
        with suppress(BadContext):
            context = context_named(env, name)
            if is_own(context) and listens(context):
                contexts.append(context)
    return contexts


def is_own(context: Context) -> bool:
    """Whether an `admit up` of this machine wrote the context."""
    local = all(is_loopback(server.address) for server in read_urls(context.url))
    return local and context.name == local_name(context.url)


def remove(env: Mapping[str, str], name: str) -> None:
    """Removes the context of that name, if it exists. Raises BadContext."""
    folder = folder_of(env)
    assert folder is not None
    path = folder / "contexts" / f"{name}.json"
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise BadContext(f"cannot remove {path}: {error.strerror}") from None


def names(env: Mapping[str, str]) -> list[str]:
    """The names of all contexts, sorted."""
    folder = folder_of(env)
    try:
        files = list((folder / "contexts").iterdir()) if folder is not None else []
    except OSError:
        # A service may run as a Unix user that cannot read the home folder of its environment.
        return []
    return sorted(file.stem for file in files if file.suffix == ".json" and _NAME.match(file.stem))


def _addresses(url: str) -> frozenset[str]:
    """The servers of a URL without logins. All names of the loopback count as one."""
    return frozenset(_LOOPBACK.sub("//127.0.0.1", server.address) for server in read_urls(url))


def _read(path: Path) -> str | None:
    """The text of a file that only its owner may read; None if it does not exist."""
    try:
        # Without O_NONBLOCK a pipe would block the command until another program writes to it.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise BadContext(f"cannot read {path}: it is not a file")
            data = file.read(BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        if not os.access(path.parent, os.X_OK):
            return None
        raise BadContext(f"cannot read {path}: permission denied") from None
    except OSError as error:
        raise BadContext(f"cannot read {path}: {error.strerror}") from None
    if status.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
        raise BadContext(f"{path} belongs to another Unix user (uid {status.st_uid}): delete it")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadContext(f"other users may read {path}: run `chmod 600 {path}`")
    try:
        if len(data) > BYTES_MAX:
            raise ValueError("the file is too long")
        return data.decode()
    except ValueError:
        raise BadContext(f"{path} is damaged: delete it, and start `admit up` again") from None


def _parsed(path: Path, name: str, text: str) -> Context:
    import json

    damaged = f"{path} is damaged: delete it, and start `admit up` again"
    try:
        content = json.loads(text)
        version = content.pop("version")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadContext(damaged) from None
    if version != VERSION:
        raise BadContext(
            f"{path} has version {version!r}, and this `admit` reads version {VERSION}: use a "
            "newer `admit`"
        )
    known = {field.name for field in fields(Context)}
    kinds = {key: bool if key == "tls_first" else str for key in known}
    values = {key: value for key, value in content.items() if key in known}
    if {"name", "url"} - values.keys() or any(
        not isinstance(value, kinds[key]) for key, value in values.items()
    ):
        raise BadContext(damaged)
    try:
        _addresses(values["url"])
    except BadUrl:
        raise BadContext(damaged) from None
    return Context(**{**values, "name": name})


def _write(path: Path, text: str) -> None:
    """Replaces a file at once, readable for its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Root may write into the home of another Unix user; a symbolic link of that user must not
        # redirect the write to another file.
        draft.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, 0o600)
            file.write(f"{text}\n")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise BadContext(f"cannot write {path}: {error.strerror}") from None
