"""What `admit top` asks: the overview of queues, explanations, and the end of a workload."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from admittance.cli.show import explanations
from admittance.cli.top.lines import Row
from admittance.client import requests
from admittance.client.requests.link import Link
from admittance.client.requests.queues.overview import QueueOverview
from admittance.runtime import clock


class Question(NamedTuple):
    """What the screen shows. ``queue``: None: all queues of the namespace, which is None for all
    namespaces."""

    queue: str | None
    namespace: str | None
    mine: bool
    limit: int


class Answers:
    """Answers over one connection. Each method raises errors of `admittance.client.errors`."""

    def __init__(self, link: Link, question: Question) -> None:
        self._link = link
        self.question = question

    @property
    def place(self) -> str:
        """Where the answers come from, for the head of the screen."""
        question = self.question
        space = "all namespaces" if question.namespace is None else question.namespace
        return " ".join(filter(None, (self._link.shown_url, space, question.queue)))

    async def read(self) -> QueueOverview:
        """The queues now."""
        question = self.question
        return await requests.overview.overview(
            self._link,
            question.queue,
            question.namespace,
            mine=question.mine,
            limit=question.limit,
        )

    async def explain(self, row: Row) -> str:
        """Why the workload waits or runs, as `admit explain` prints it."""
        answer = await requests.explanation.explanation(self._link, row.name, row.namespace)
        waits = await explanations.capacity_waits(self._link, answer, clock.now())
        printed = io.StringIO()
        # Nothing else runs in between: printing the explanation awaits nothing.
        with redirect_stdout(printed), redirect_stderr(printed):
            explanations.show(answer, waits)
        return printed.getvalue()

    async def cancel(self, row: Row) -> str:
        """Stops the workload, or all elements of an array. Returns a sentence about the outcome."""
        changed = await requests.changes.change(
            self._link,
            requests.changes.STOP,
            row.name,
            row.namespace,
            spelled="`admit cancel`",
            instead="`admit cancel workload {}`",
        )
        if changed.reply.outcome == "ignored":
            return f"{row.name} is stopped already"
        return f"{row.name} is stopped; `admit activate workload {row.name}` puts it back"
