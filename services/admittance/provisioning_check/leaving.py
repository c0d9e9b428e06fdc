"""What cannot be done for one slot: it is said where people look, and is in nobody's way. Pure.

Whatever a workload, a provider or somebody's hand in the bucket makes of one request: all others
go on. That one is looked at again when something about it has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from admittance.provisioning_check.acts import Slot, Step
from admittance.provisioning_check.memory import Aside, Memory
from admittance.provisioning_check.slots import Slots


class LeavingAside:
    """``troubled``: as of `Capacity`."""

    def __init__(
        self, slots: Slots, memory: Memory, troubled: Callable[[Slot, Exception], None] | None
    ) -> None:
        self._slots = slots
        self._memory = memory
        self._troubled = troubled

    def step(self, slot: Slot, now: datetime) -> Step | None:
        """The next step of the slot; None: there is none, or it is left aside."""
        aside = self._memory.aside
        try:
            if slot in aside and not aside[slot].told:
                note = self._slots.note(slot, aside[slot].why, now)
                aside[slot] = aside[slot]._replace(told=True, note=note)
                if note is not None:
                    return note
            step = self._slots.step(slot, now)
            if slot not in aside:
                return step
            if step is None or step == aside[slot].step:
                return None
        except Exception as error:
            if self._troubled is None:
                raise
            return self._undecided(slot, error, now)
        del aside[slot]
        return step

    def cannot(self, step: Step, error: Exception) -> None:
        """That step cannot be done."""
        known = self._memory.aside.get(step.slot)
        if known is None or known.note is not step:
            # Else there is nowhere to say it.
            self._memory.aside[step.slot] = Aside(step, sentence_of(error))

    def _undecided(self, slot: Slot, error: Exception, now: datetime) -> Step | None:
        aside, why = self._memory.aside, sentence_of(error)
        known = aside.get(slot)
        if known is not None and known.told and known.why == why:
            return None
        if self._troubled is not None:
            self._troubled(slot, error)
        try:
            note = self._slots.note(slot, why, now)
        except Exception as worse:  # Nor can anybody say so.
            if self._troubled is not None:
                self._troubled(slot, worse)
            note = None
        aside[slot] = Aside(None, why, told=True, note=note)
        return note


def sentence_of(error: Exception) -> str:
    """What is wrong, for people."""
    return f"left aside, since it cannot be done: {error or type(error).__name__}"
