"""The context that `admit up` writes, so that commands of its Unix user find its server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from admittance.cli.support import output
from admittance.runtime.nats import contexts
from admittance.runtime.nats.contexts import BadContext, Context, local_name


def write_own_context(
    url: str,
    creds: str | None,
    data_dir: Path,
    env: Mapping[str, str] = os.environ,
    *,
    use: bool = False,
) -> None:
    """Writes the context of the embedded server, and removes contexts of earlier starts that lead
    to no server. Makes the context the current one with ``use``, or if the server of the current
    context is gone; else prints how to use the new one. If the context cannot be written, prints a
    warning that says what commands need instead.
    """
    own = Context(name=local_name(url), url=url, creds=creds, data_dir=os.path.realpath(data_dir))
    try:
        kept = None if use else _running_current(env, own)
        contexts.write(env, own, current=kept is None)
        if use:
            contexts.use(env, own.name)
        remove_stale(env, own)
    except BadContext as error:
        needed = f"--nats {url}" + (f" --creds {creds}" if creds else "")
        output.warn(f"{error}; without a context, commands need {needed}")
        return
    if kept is not None:
        output.note(
            f"note: commands still use the context {kept.name} ({kept.url}), whose server runs: "
            f"`admit context use {own.name}` chooses this server, as does `admit up --use`"
        )


def _running_current(env: Mapping[str, str], own: Context) -> Context | None:
    """The current context, if it is of another server than ``own`` and its server runs."""
    try:
        present = contexts.current(env)
    except BadContext:
        return None  # The damaged context is replaced.
    if present is None or present.name == own.name or _is_of_same_folder(present, own):
        return None
    return present if contexts.listens(present) else None


def _is_of_same_folder(context: Context, other: Context) -> bool:
    if context.data_dir is not None and other.data_dir is not None:
        return os.path.realpath(context.data_dir) == os.path.realpath(other.data_dir)
    return context.creds is not None and context.creds == other.creds


def remove_stale(env: Mapping[str, str], own: Context) -> None:
    """Removes contexts that earlier starts of `admit up` wrote: contexts with a missing credentials
    file, contexts of the data folder of ``own``, and contexts of open servers that do not run.
    """
    for name in contexts.names(env):
        if name == own.name:
            continue
        try:
            other = contexts.context_named(env, name)
        except BadContext:
            continue  # `admit context list` reports the damaged context.
        if not contexts.is_own(other):
            continue
        if other.creds is None:
            stale = _is_of_same_folder(other, own) or not contexts.listens(other)
        else:
            stale = _is_of_same_folder(other, own) or not Path(other.creds).exists()
        if stale:
            contexts.remove(env, name)
