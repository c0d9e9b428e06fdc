"""The context that `admit up` writes, so that commands of its Unix user find its server."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from admittance.cli.support import output
from admittance.runtime import contexts
from admittance.runtime.contexts import BadContext, Context, local_name

PROBE_SECONDS: Final = 0.2
_LOCAL: Final = re.compile(r"\Alocal-(\d+)\Z")


def write_own_context(url: str, creds: str | None, env: Mapping[str, str] = os.environ) -> None:
    """Makes the embedded server the current context, and removes contexts of earlier starts that
    lead to no server. If the context cannot be written, prints a warning that says what commands
    need instead.
    """
    own = Context(name=local_name(url), url=url, creds=creds)
    try:
        contexts.write(env, own)
        remove_stale(env, own)
    except BadContext as error:
        needed = f"--nats {url}" + (f" --creds {creds}" if creds else "")
        output.warn(f"{error}; without a context, commands need {needed}")


def remove_stale(env: Mapping[str, str], own: Context) -> None:
    """Removes contexts that earlier starts of `admit up` wrote: contexts with a missing credentials
    file, contexts of the data folder of ``own``, and contexts of open servers that do not run.
    """
    for name in contexts.names(env):
        local = _LOCAL.match(name)
        if name == own.name or local is None:
            continue
        try:
            found = contexts.context_named(env, name)
        except BadContext:
            continue  # `admit context list` reports the damaged context.
        if found.creds is None:
            stale = not _listens(int(local[1]))
        else:
            stale = found.creds == own.creds or not Path(found.creds).exists()
        if stale:
            contexts.remove(env, name)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), PROBE_SECONDS):
            return True
    except (OSError, OverflowError):
        return False
