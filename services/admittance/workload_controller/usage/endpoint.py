"""Answers ``admit.api.usage`` from the stored summaries, and from what the workloads hold now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Final, TypeAlias

import msgspec

from admittance.control.controller import Controller
from admittance.events.names import token
from admittance.events.reader import Unreadable
from admittance.events.requests.reading import Usage, UsageCheck, UsageReply
from admittance.events.subjects import SUMMARIES, SUMMARY, namespace_of_request
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import read_messages
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.nats import micro
from admittance.usage.periods import DAY_SECONDS, Period, day_of, first_second
from admittance.usage.report import (
    Group,
    UsageReport,
    grouping,
    label_keys,
    periods_of,
    span_of,
    sum_of,
)
from admittance.usage.runs import Run, amounts_of, labels_of, whole_seconds
from admittance.usage.summary import (
    Counts,
    Summary,
    SummaryKey,
    decode_summary,
    key_of,
    shares_of,
)
from admittance.workload.phase import holds_quota
from admittance.workload.quota_release import reserved_at
from admittance.workload.stored import PARENT, StoredWorkload, head
from admittance.workload_controller.usage.summarizer import UsageSummarizer

PAGE: Final = 200
LIMIT_MAX: Final = 1_000
BETWEEN: Final = 500
"""After so many workloads other tasks run."""
ASKED_AT_ONCE: Final = 8
YEARS_MAX: Final = 20
Summaries: TypeAlias = dict[SummaryKey, Summary]


class UsageEndpoint:
    """The endpoint of one leader."""

    def __init__(self, bus: Bus, controller: Controller, summarizer: UsageSummarizer) -> None:
        self._bus = bus
        self._controller = controller
        self._summarizer = summarizer

    def endpoints(self) -> Mapping[str, micro.Handler]:
        """The handler of each subject."""
        return micro.in_turns({"admit.api.usage": self._usage, "admit.api.usage.*": self._usage})

    async def _usage(self, data: bytes, subject: str) -> UsageReply:
        request = msgspec.json.decode(data, type=Usage)
        namespace = namespace_of_request(subject)
        now = clock.now()
        try:
            by = grouping(request.by)
            if label_keys(by) and not request.running_only:
                raise ValueError("labels are not summed: only what runs now is known by label")
            first, last = _days(request, now)
            if request.check and namespace:
                raise ValueError("the sums of all namespaces are checked together: ask about all")
        except ValueError as error:
            return UsageReply(error=str(error))
        if request.check:
            return UsageReply(checked=await self._checked())
        report = UsageReport(by)
        where = token(namespace) if namespace else "*"
        if not request.running_only:
            await self._add_ended(report, namespace, where, periods_of(by, first, last))
        running = await self._add_running(report, namespace, (first, last), now, by)
        sums = [
            sum_of(group, counts, running.get(group, 0))
            for group, counts in _with_groups(report, running)
        ]
        after = max(0, request.after)
        limit = max(1, min(request.limit, LIMIT_MAX))
        return UsageReply(
            since=first.isoformat(),
            until=last.isoformat(),
            begins=await self._begins(where),
            sums=tuple(sums[after : after + limit]),
            more=len(sums) > after + limit,
        )

    async def _checked(self) -> UsageCheck:
        try:
            return await self._summarizer.check()
        except BusRefused as error:
            raise BusUnavailable(f"the usage is not compared: {error}") from None

    async def _add_ended(
        self, report: UsageReport, namespace: str, where: str, periods: Sequence[Period]
    ) -> None:
        """Adds the stored summaries of these periods, once they have all facts of the log."""
        try:
            await self._summarizer.fold_now()
        except BusRefused as error:
            raise BusUnavailable(f"the usage is not summed: {error}") from None
        kept = self._kept(namespace)
        for start in range(0, len(periods), ASKED_AT_ONCE):
            part = periods[start : start + ASKED_AT_ONCE]
            pages = await asyncio.gather(*(self._stored(one, where) for one in part))
            for period, stored in zip(part, pages, strict=True):
                for about, summary in _newest(stored, kept.get(period, {})).items():
                    report.add(about, summary.rows.items())
            await asyncio.sleep(0)

    async def _stored(self, period: Period, where: str) -> Summaries:
        """The summaries of a period, in one namespace or in all (``*``), from any replica."""
        pattern = f"{SUMMARY}{period.span}.{period.name}.*.{where}"
        summaries: Summaries = {}
        after = 0
        while page := await read_messages(
            self._bus, [pattern], after=after, limit=PAGE, stream=SUMMARIES
        ):
            after = page[-1].sequence
            # The leader reports a summary that cannot be read when it loads it.
            for message in page:
                with suppress(Unreadable):
                    about = key_of(message.subject)
                    summaries[about] = decode_summary(message.data, message.sequence)
        return summaries

    def _kept(self, namespace: str) -> dict[Period, Summaries]:
        """The summaries in memory, by period, since a replica that lags lacks the newest ones."""
        by_period: dict[Period, Summaries] = {}
        for about, summary in self._summarizer.kept.items():
            if not namespace or about.namespace == namespace:
                by_period.setdefault(about.period, {})[about] = summary
        return by_period

    async def _begins(self, where: str) -> str:
        """The first month with a summary; "": there is none."""
        month = f"{SUMMARY}month.*.*.{where}"
        oldest = await read_messages(self._bus, [month], limit=1, stream=SUMMARIES)
        return key_of(oldest[0].subject).period.name if oldest else ""

    async def _add_running(
        self,
        report: UsageReport,
        namespace: str,
        days: tuple[date, date],
        now: datetime,
        by: Sequence[str],
    ) -> dict[Group, int]:
        """Adds the quota that workloads hold now; returns how many of each group hold some.
        ``by``: the words of the report."""
        keys, span = label_keys(by), span_of(by)
        begin, present = first_second(days[0]), whole_seconds(now)
        end = min(present, first_second(days[1]) + DAY_SECONDS)
        running: dict[Group, int] = {}
        for number, (_, known) in enumerate(list(self._controller.workloads.items())):
            if number % BETWEEN == BETWEEN - 1:
                await asyncio.sleep(0)
            workload = known.workload
            if workload is None or (namespace and workload.metadata.namespace != namespace):
                continue
            run = _open_run(workload, begin, end, keys)
            if run is None:
                continue
            groups: set[Group] = set()
            for about, rows in shares_of(run):
                if about.period.span == span:
                    # The last part is the present one.
                    groups = report.add(about, rows)
            # Of days that are over nothing is running.
            for group in groups if end == present else ():
                running[group] = running.get(group, 0) + 1
        return running


def _newest(stored: Summaries, kept: Summaries) -> Summaries:
    """Of each summary the newer one of two."""
    newer = {
        about: summary
        for about, summary in kept.items()
        if about not in stored or stored[about].revision <= summary.revision
    }
    return stored | newer


def _open_run(workload: StoredWorkload, begin: int, end: int, keys: Sequence[str]) -> Run | None:
    """The part of a workload's present admission from ``begin`` to ``end``; None: it has none."""
    admission = workload.status.admission
    if admission is None or not holds_quota(workload) or head(workload).role == PARENT:
        return None
    reserved = reserved_at(workload)
    since = max(begin, whole_seconds(reserved)) if reserved is not None else end
    if since > end:
        return None
    return Run(
        uid=workload.metadata.uid,
        since=since,
        until=end,
        cluster_queue=admission.cluster_queue,
        namespace=workload.metadata.namespace,
        queue=head(workload).queue_name,
        user=workload.status.submitted_by,
        amounts=amounts_of(admission),
        admitted=False,
        labels=labels_of(workload.metadata.labels, keys),
    )


def _with_groups(
    report: UsageReport, running: Mapping[Group, int]
) -> Iterator[tuple[Group, Counts]]:
    groups = dict(report.result())
    for group in running:
        groups.setdefault(group, Counts())
    yield from sorted(groups.items(), key=lambda group: group[0])


def _days(request: Usage, now: datetime) -> tuple[date, date]:
    today = day_of(now)
    last = _day(request.until) if request.until else today
    first = _day(request.since) if request.since else last.replace(day=1)
    if first > today:
        raise ValueError(f"the first day {first} has not begun: in UTC it is {today}")
    if first > last:
        raise ValueError(f"the first day {first} is after the last day {last}")
    if last.year - first.year > YEARS_MAX:
        raise ValueError(f"from {first} to {last} are more than {YEARS_MAX} years")
    return first, min(last, today)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a day like 2026-11-26') from None
