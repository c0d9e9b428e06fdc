"""Turns a batch of facts into a commit. Pure: no bus, no clock, no randomness.

The service reads a batch, calls `Controller.fold`, performs the commit in its order, and reports
the result: `committed` for every put that was stored; `load` for every key that had another
revision.
"""

from __future__ import annotations

from datetime import datetime

from admittance.control.commit import Commit, LogMessage, Message, Put
from admittance.control.controller_state import ControllerState
from admittance.control.fold import VALUE_MAX, BatchFold
from admittance.control.known import VersionedWorkload
from admittance.events.reading import reason_of


class Controller(ControllerState):
    """The workload-controller's core: its state, and the commit that follows from facts."""

    def fold(self, batch: list[LogMessage], now: datetime) -> Commit:
        """Folds a batch into a commit. Facts about one workload become one put. If a workload's
        outbox holds an entry for a service, the next fact that would move it ends the commit: it
        and the facts
        after it are returned as ``rest``."""
        careful: frozenset[str] = frozenset()
        while True:
            commit = self._fold(BatchFold(self, now, careful), batch)
            long = {put.key for put in commit.puts if put.value and len(put.value) > VALUE_MAX}
            if long <= careful:
                return commit
            # Fold again and measure after each fact, to find the fact that makes the object too
            # long.
            careful |= long

    def _fold(self, folding: BatchFold, batch: list[LogMessage]) -> Commit:
        for index, heard in enumerate(batch):
            if not folding.take(heard):
                return folding.commit(batch[index:], batch[index - 1].sequence)
        return folding.commit([], batch[-1].sequence if batch else self.read)

    def committed(self, put: Put, revision: int, now: datetime) -> list[Message]:
        """Records a stored put; returns the messages to publish."""
        if put.value is None:
            self.workloads.keep(put.key, VersionedWorkload(None, revision, put.fact))
            return []
        self.workloads.keep(put.key, VersionedWorkload(put.workload, revision, put.fact, put.trace))
        return self.outbox(put.key, now)

    def outbox(self, key: str, now: datetime) -> list[Message]:
        """The messages of the outbox of the workload at key."""
        known = self.workloads.get(key)
        if known.workload is None:
            return []
        try:
            return list(
                self.message_builder.messages(known.workload, known.revision, now, known.trace)
            )
        except AssertionError:
            raise
        except Exception as error:
            # The outbox was written by another program; it must not stop the leader.
            self.unreadable[key] = f"status.log.says: {reason_of(error)}"
            return []

    def said(self, key: str) -> None:
        """The bus has acknowledged the outbox of the workload at key."""
        self.workloads.let_go(key)

    def acknowledged(self, through: int) -> None:
        """Every fact up to ``through`` is applied and acknowledged."""
        self.read = max(self.read, through)
