"""A whole trial: the program, perhaps started for it; all cases; and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from admittance.conformance.cases import Kit, Trial
from admittance.conformance.program import START_SECONDS, Program, how_it_ended
from admittance.conformance.report import Outcome
from admittance.conformance.stand import Stand
from admittance.runtime import clock

A = TypeVar("A")
T = TypeVar("T")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """How to try it; a kit adds what. ``timeout``: seconds that an answer may take. ``command``:
    how to start it, with ADMIT_NATS_URL set; empty: it runs already, or is started within
    ``patience`` seconds. ``only``: those cases; empty: all."""

    timeout: float
    patience: float
    command: Sequence[str] = ()
    only: Collection[str] = ()


class Tried(NamedTuple):
    """What came out, for the report."""

    outcomes: tuple[Outcome, ...]
    usual: str
    seconds: float


async def tried(
    kit: Kit,
    stand: Stand[A, T],
    trial_of: Callable[[Program | None, float], Trial[A, T]],
    wanted: Wanted,
    url: str,
    *,
    tell: Callable[[str], None],
    ready: Callable[[], None],
) -> Tried:
    """Everything about one program. ``trial_of`` makes the trial, of the program, if we start it,
    and of the seconds to wait for its first answer. ``ready`` is called when the program may be
    started, ``tell`` hears what is tried. Raises SetupError."""
    began = clock.monotonic()
    await stand.start()
    outcomes: list[Outcome] = []
    try:
        ready()
        program = Program(wanted.command, url) if wanted.command else None
        if program is not None:
            await program.start()
        try:
            patience = wanted.timeout + START_SECONDS if program else wanted.patience
            trial = trial_of(program, patience)
            outcomes += await trial.run(tell)
            await trial.leave()
        finally:
            if program is not None or not wanted.only:
                outcomes.append(await how_it_ended(kit, program))
    finally:
        await stand.leave()
    return Tried(tuple(outcomes), trial.usual, round(clock.monotonic() - began, 1))
