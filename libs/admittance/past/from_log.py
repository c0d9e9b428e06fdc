"""The state of a moment before the history of the bucket begins, made again from a checkpoint and
the facts of the log."""

from __future__ import annotations

from typing import Final

from admittance.events.requests.past import Moment
from admittance.past.moments import NoMoment
from admittance.past.revisions import PastState
from admittance.past.rows import RowMaker
from admittance.replay.bucket_rebuild import CannotRebuild
from admittance.replay.past_inputs import NoDecision, bucket_at, facts_before
from admittance.runtime.bus.bus import Bus
from admittance.scheduling.state.config import Config

FACTS_MAX: Final = 500_000
"""The most messages of the log from which a state is made: they take a minute and more."""


async def messages_of(bus: Bus, moment: Moment) -> int:
    """How many messages of the log the state of the moment is made from, at least 1. Raises
    NoMoment if that cannot be done, BusRefused and BusUnavailable."""
    assert moment.revision is not None
    try:
        count = await facts_before(bus, moment.revision, moment.sequence)
    except CannotRebuild as error:
        raise _impossible(error) from None
    if count > FACTS_MAX:
        raise NoMoment(
            f"the history of the bucket begins later, and the moment is {count:,} messages of the "
            f"log after a checkpoint, more than {FACTS_MAX:,}"
        )
    return max(1, count)


async def state_from_log(bus: Bus, config: Config, moment: Moment) -> PastState:
    """The state of the moment. Raises as `messages_of` does."""
    assert moment.revision is not None
    try:
        past = await bucket_at(bus, moment.revision, moment.sequence)
    except (CannotRebuild, NoDecision) as error:
        raise _impossible(error) from None
    maker = RowMaker(config)
    values = {entry.key: entry.value for entry in past.entries if entry.value is not None}
    rows = {
        entry.key: maker.row(entry.key, entry.value, entry.revision, 0, moment.time)
        for entry in past.entries
        if entry.value is not None
    }
    return PastState(rows, len(past.unknown), values, past.finished)


def _impossible(error: Exception) -> NoMoment:
    return NoMoment(f"the moment cannot be made from the log: {error}")
