"""Folds one batch of facts into a commit. A fact with an error is set aside, and all others are
applied."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from admittance.control.commit import Commit, LogMessage
from admittance.control.controller import Controller
from admittance.control.fold import VALUE_MAX, BatchFold, NotFolded
from admittance.control.user_requests.people import fact_of
from admittance.events.codec import Undecodable
from admittance.events.facts import Decision
from admittance.events.reader import reason_of
from admittance.events.subjects import workload_key
from admittance.events.system import DeadLetterReason
from admittance.object_errors import ObjectError

STEP: Final = "apply a fact"


def fold(
    controller: Controller,
    batch: list[LogMessage],
    now: datetime,
    errors: list[ObjectError] | None = None,
) -> Commit:
    """Folds a batch into a commit. Facts about one workload become one put. If a workload's outbox
    holds an entry for a service, the next fact that would change the workload ends the commit: that
    fact and the facts after it are returned as ``rest``.

    The caller performs the steps of the commit in the order of `Commit`, and reports
    `Controller.committed` for every put that was stored, and `Controller.load` for every key that
    had another revision.

    ``errors``: gets the exceptions by bugs; a fact that raises one becomes a dead letter. None:
    such an exception is raised."""
    measured: frozenset[str] = frozenset()
    aside: dict[int, Exception] = {}
    while True:
        folding = (
            BatchFold(controller, now, measured)
            if errors is None
            else GuardedFold(controller, now, measured, aside)
        )
        try:
            commit = _fold(folding, batch, controller.read)
        except NotFolded as error:
            # The fact has changed a part of what the batch has folded so far, so the batch is
            # folded again without this fact.
            folding.undo()
            if errors is None or error.sequence in aside:
                raise error.reason from None
            aside[error.sequence] = error.reason
            continue
        long = {put.key for put in commit.puts if put.value and len(put.value) > VALUE_MAX}
        if long <= measured:
            if errors is not None:
                errors += _errors(batch, commit, aside)
            return commit
        # Fold again and measure each object after each fact, to find the fact that makes it too
        # long.
        folding.undo()
        measured |= long


class GuardedFold(BatchFold):
    """Sets facts aside that raise an exception. ``aside``: the exceptions, by the sequence of the
    fact."""

    def __init__(
        self,
        state: Controller,
        now: datetime,
        measured: frozenset[str],
        aside: dict[int, Exception],
    ) -> None:
        super().__init__(state, now, measured)
        self._aside = aside

    def take(self, logged: LogMessage) -> bool:
        """Folds one message, as `BatchFold.take` does, or sets it aside. Raises NotFolded."""
        if logged.sequence in self._aside:
            self._set_aside(logged, self._aside[logged.sequence])
            return True
        notes, dead, echoes = len(self._notes), len(self._dead), len(self._echoes)
        applied = self._applied
        try:
            return super().take(logged)
        except Exception as error:
            if self._applied != applied:
                raise NotFolded(logged.sequence, error) from error
            del self._notes[notes:], self._dead[dead:], self._echoes[echoes:]
            self._aside[logged.sequence] = error
            self._set_aside(logged, error)
            return True

    def _set_aside(self, logged: LogMessage, error: Exception) -> None:
        why = f"it cannot be applied: {type(error).__name__}: {reason_of(error)}"
        self._bury(logged, why, DeadLetterReason.LEADS_TO_NOTHING)
        try:
            fact = fact_of(logged)
        except Undecodable:
            return
        key = workload_key(fact.namespace, fact.name)
        known = self._known(key)
        if isinstance(fact, Decision) and logged.sequence > known.fact and known.workload:
            self._write_unchanged(key, known, logged)


def _fold(folding: BatchFold, batch: list[LogMessage], read: int) -> Commit:
    for index, logged in enumerate(batch):
        if not folding.take(logged):
            return folding.commit(batch[index:], batch[index - 1].sequence)
    return folding.commit([], batch[-1].sequence if batch else read)


def _errors(
    batch: list[LogMessage], commit: Commit, aside: dict[int, Exception]
) -> list[ObjectError]:
    """The errors of the facts that the commit leaves out."""
    return [
        ObjectError(STEP, f"fact {logged.sequence} {logged.subject}", aside[logged.sequence])
        for logged in batch
        if logged.sequence in aside and logged.sequence <= commit.through
    ]
