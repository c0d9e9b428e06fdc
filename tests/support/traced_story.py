"""One story of a workload with everything that a trace shows, played by the real cores: two checks,
a retry, a preemption, and an upgrade to a better flavor.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from admittance.cli.show.span_tree import trace_table, tree_of
from admittance.cli.support.output import Table, aligned, cut
from admittance.client.requests.workloads.traces import newest_trace
from admittance.control.commit import LogMessage, Message
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.requests.history import LogEntry
from admittance.events.subjects import subject_of, workload_key
from admittance.lease import Fence
from admittance.runtime.telemetry.tracing import follow
from admittance.traces.spans import LoggedFact, Span
from support.cores.families.family_cores import LOWER, FamilyCores
from support.cores.families.family_queues import family_policy


class LoggedCores(FamilyCores):
    """``log``: every message of the log so far, in order."""

    def __init__(self) -> None:
        self.log: list[LoggedFact] = []
        super().__init__()

    def logged(
        self,
        subject: str,
        data: bytes,
        fence: Fence | None = None,
        time: datetime | None = None,
        trace: str = "",
    ) -> LogMessage:
        message = super().logged(subject, data, fence, time, trace)
        self.log.append(LoggedFact(message.sequence, message.time, subject, data, trace))
        return message

    def reads(self, message: Message) -> None:
        self.sequence += 1
        self.log.append(
            LoggedFact(self.sequence, self.now, message.subject, message.data, message.trace)
        )
        super().reads(message)

    def apply_traced(self, fact: Fact, traceparent: str) -> None:
        """Publishes the fact with that header."""
        self.fold([self.logged(subject_of(fact), encode(fact), trace=traceparent)])

    def orders_of_families(self) -> bool:
        """The variant-controller gives its facts the trace of the family, as its service does."""
        orders = self.orders()
        for order in orders:
            family = order.name.partition("-variant-")[0]
            trace = self.controller.workloads.get(workload_key(order.namespace, family)).trace
            self.apply_traced(order, follow(trace))
        return bool(orders)

    def started(self, name: str) -> None:
        """Reports that the runner has started the job."""
        self.publish(facts.Started, name, revision=self.stored(name).status.admitted_revision)


def told_story() -> LoggedCores:
    """The story of the workload ``train``, to its end."""
    cores = LoggedCores()
    cores.offer(
        {"reserved": 4, "spot": 4},
        checks={"spot": ["budget", "license"], "reserved": ["license"]},
        preemption=LOWER,
    )
    cores.submit_regular("early", "reserved")
    cores.report("early", "license", "Ready")
    cores.edit_queue(concurrentAdmission=family_policy("UpgradeOnly", "", ()))
    cores.go()
    spot, reserved = "train-variant-spot", "train-variant-reserved"
    cores.slow_jobs.add("train")
    cores.job("train", priority=10)
    cores.at(3)
    cores.report(spot, "license", "Ready", message="2 seats")
    cores.at(5)
    cores.report(spot, "budget", "Retry", after=60, message="daily budget is spent")
    cores.at(70)
    cores.report(spot, "budget", "Ready")
    cores.at(72)
    cores.report(spot, "license", "Ready")
    cores.at(74)
    cores.started("train")
    cores.at(80)
    cores.ready("train")
    cores.at(200)
    cores.submit_regular("urgent", "spot", priority=1000)
    cores.at(205)
    cores.stop("train")
    cores.go()
    cores.at(210)
    for check in ("budget", "license"):
        cores.report("urgent", check, "Ready")
    cores.at(300)
    cores.done("urgent")
    cores.at(310)
    for check in ("budget", "license"):
        cores.report(spot, check, "Ready")
    cores.at(312)
    cores.started("train")
    cores.at(315)
    cores.ready("train")
    cores.slow_jobs.add("train")
    cores.at(400)
    cores.done("early")
    cores.at(420)
    cores.report(reserved, "license", "Ready")
    cores.at(425)
    cores.stop("train")
    cores.go()
    cores.at(427)
    cores.started("train")
    cores.at(430)
    cores.ready("train")
    cores.at(600)
    cores.done("train")
    return cores


BAR_WIDTH = 24
DETAIL_WIDTH = 46


def drawing(log: Sequence[LoggedFact], name: str) -> str:
    """The trace of the workload as `admit trace` shows it on a terminal of about 120 characters."""
    table = trace_table(tree_of(spans_shown(log, name)), log[-1].time, BAR_WIDTH).narrowed(False)
    rows = [[*row[:-1], cut(row[-1], DETAIL_WIDTH)] for row in table.rows]
    return "\n".join(aligned(Table(table.columns, rows)))


def spans_shown(log: Sequence[LoggedFact], name: str) -> list[Span]:
    """The spans that `admit trace` shows, from the facts that the history of the workload has."""
    about = (f".ns.{name}", f".ns.{name}-variant-")
    entries = [
        LogEntry(
            sequence=logged.sequence,
            time=logged.time,
            subject=logged.subject,
            data=msgspec.Raw(logged.data),
            trace=logged.traceparent,
        )
        for logged in log
        if logged.subject.endswith(about[0]) or about[1] in logged.subject
    ]
    return newest_trace(entries, "ns", name)
