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
        """What the batch leads to. Facts about one workload fold into one put, up to the first
        that would move a workload which still has something to say to machines: from there on the
        batch is handed back as ``rest``."""
        careful: frozenset[str] = frozenset()
        while True:
            commit = self._fold(BatchFold(self, now, careful), batch)
            long = {put.key for put in commit.puts if put.value and len(put.value) > VALUE_MAX}
            if long <= careful:
                return commit
            # Once more, to find out which fact is too much. It is measured here because the bytes
            # are here anyway.
            careful |= long

    def _fold(self, folding: BatchFold, batch: list[LogMessage]) -> Commit:
        for index, heard in enumerate(batch):
            if not folding.take(heard):
                return folding.commit(batch[index:], batch[index - 1].sequence)
        return folding.commit([], batch[-1].sequence if batch else self.read)

    def committed(self, put: Put, revision: int, now: datetime) -> list[Message]:
        """The put went through: what it has to say."""
        if put.value is None:
            self.workloads.keep(put.key, VersionedWorkload(None, revision, put.fact))
            return []
        self.workloads.keep(put.key, VersionedWorkload(put.workload, revision, put.fact, put.trace))
        return self.outbox(put.key, now)

    def outbox(self, key: str, now: datetime) -> list[Message]:
        """What the workload at key had to say with its last write."""
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
            # Another hand wrote what it has to say; it must not keep a leader from its work.
            self.unreadable[key] = f"status.log.says: {reason_of(error)}"
            return []

    def said(self, key: str) -> None:
        """All of it is acknowledged by the bus."""
        self.workloads.let_go(key)

    def acknowledged(self, through: int) -> None:
        """Every fact up to through is dealt with, for good."""
        self.read = max(self.read, through)
