"""The sums of used quota, compared with a plain sum over all runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.events.shapes import Admission, PodSetAssignment
from admittance.usage import summary as summaries
from admittance.usage.fold import WINDOW, UsageFold
from admittance.usage.periods import DAY_SECONDS, DAYS_MAX, parts
from admittance.usage.report import BY, UsageReport
from admittance.usage.runs import OTHERS, Run, amounts_of
from admittance.usage.summary import (
    Counts,
    RowKey,
    Summary,
    SummaryKey,
    decode_summary,
    encode_summary,
    key_of,
)
from support.examples import examples

MONTH_END = int(datetime(2026, 10, 31, 23, 0, tzinfo=UTC).timestamp())


class Store:
    """The stream of summaries, in memory: what a leader stores, and what the next one loads."""

    def __init__(self) -> None:
        self.messages: dict[SummaryKey, bytes] = {}
        self.through = 0
        self.again = 0

    def leader(self, log: Sequence[Run]) -> UsageFold:
        fold = UsageFold(self.through)
        for run in log:
            if self.again < run.sequence <= self.through:
                fold.recall(run)
        return fold

    def fold(self, fold: UsageFold, runs: Sequence[Run], *, writes: int | None = None) -> None:
        """Folds and stores. ``writes``: the leader ends after so many writes."""
        for about in fold.needed(runs):
            data = self.messages.get(about)
            fold.summaries[about] = Summary() if data is None else decode_summary(data, 1)
        fold.fold(runs)
        for about in sorted(fold.dirty)[:writes]:
            self.messages[about] = encode_summary(fold.summaries[about], fold.position)
            fold.stored(about, 1)
        if writes is None:
            self.through, self.again = fold.position, fold.again()

    def rows(self, span: str) -> dict[tuple[SummaryKey, RowKey], Counts]:
        return {
            (about, row): counts
            for about, data in self.messages.items()
            for row, counts in decode_summary(data, 1).rows.items()
            if about.period.span == span
        }


def totals(runs: Iterable[Run]) -> Counter[tuple[str, ...]]:
    """The plain sum over runs, of which the last report of each admission counts."""
    totals_found: Counter[tuple[str, ...]] = Counter()
    for run in {run.key: run for run in runs}.values():
        owner = (run.cluster_queue, run.namespace, run.queue, run.user)
        totals_found[(*owner, "", run.outcome)] += 1
        totals_found[(*owner, "", "waited")] += run.waited_seconds
        for flavor, resource, booked in run.amounts:
            totals_found[(*owner, flavor, resource)] += booked * (run.until - run.since)
    return +totals_found


def summed(rows: dict[tuple[SummaryKey, RowKey], Counts]) -> Counter[tuple[str, ...]]:
    sums: Counter[tuple[str, ...]] = Counter()
    for (about, row), counts in rows.items():
        owner = (about.cluster_queue, about.namespace, row.queue, row.user)
        for resource, used in counts.amounts.items():
            sums[(*owner, row.flavor, resource)] += used
        if not row.flavor:
            for outcome in ("finished", "failed", "evicted"):
                sums[(*owner, "", outcome)] += getattr(counts, outcome)
            sums[(*owner, "", "waited")] += counts.wait_seconds
    return +sums


names = st.sampled_from(["a", "b"])


@st.composite
def logs(draw: st.DrawFn) -> list[Run]:
    """Runs in the order of the log, some reported twice, with the same or with another end."""
    log: list[Run] = []
    sequence = 0
    for number in range(draw(st.integers(1, 12))):
        since = MONTH_END + draw(st.integers(-3 * DAY_SECONDS, 2 * DAY_SECONDS))
        until = since + draw(st.sampled_from([0, 1, 59, 3600, DAY_SECONDS, 40 * DAY_SECONDS]))
        sequence += draw(st.integers(1, 9))
        run = Run(
            uid=f"uid-{number}",
            since=since,
            until=until,
            cluster_queue=draw(names),
            namespace=draw(names),
            queue=draw(names),
            user=draw(names),
            amounts=(("f", "cpu", draw(st.integers(1, 2**62))), ("g", "gpu", 1)),
            admitted=True,
            outcome=draw(st.sampled_from(["finished", "failed", "evicted"])),
            waited_seconds=draw(st.integers(0, 9)),
            sequence=sequence,
            cause=sequence,
        )
        log.append(run)
        if draw(st.booleans()):
            twice = draw(st.sampled_from(log))
            sequence += 1
            longer = twice.until + draw(st.sampled_from([0, 7]))
            log.append(twice._replace(until=longer, sequence=sequence))
    return log


@settings(max_examples=examples(100))
@given(log=logs(), data=st.data())
def test_sums_equal_a_plain_sum_in_any_batches_and_after_any_crash(
    log: list[Run], data: st.DataObject
) -> None:
    store = Store()
    fold = store.leader(log)
    while store.through < log[-1].sequence:
        size = data.draw(st.integers(1, len(log)), "batch")
        # A batch may begin with facts that were read before.
        start = data.draw(st.sampled_from([0, store.through]), "start")
        batch = [run for run in log if run.sequence > start][: size + len(log) * (start == 0)]
        if data.draw(st.booleans(), "crash"):
            store.fold(fold, batch, writes=data.draw(st.integers(0, 4), "writes"))
            fold = store.leader(log)
            batch = [run for run in log if run.sequence > store.through]
        store.fold(fold, batch)
    expected = totals(log)
    for span in ("day", "month"):
        assert summed(store.rows(span)) == expected


def test_a_report_after_a_restart_replaces_the_earlier_one() -> None:
    store = Store()
    first = _run("w", MONTH_END, MONTH_END + 10, sequence=5)
    again = first._replace(until=MONTH_END + 12, sequence=WINDOW)
    store.fold(store.leader([]), [first])
    store.fold(store.leader([first]), [again])
    assert summed(store.rows("month")) == totals([again])


@pytest.mark.parametrize(
    ("since", "until", "folded"),
    [
        pytest.param(0, 60, [("1970-01-01", 60, True), ("1970-01", 60, True)], id="one day"),
        pytest.param(
            MONTH_END,
            MONTH_END + 7200,
            [
                ("2026-10-31", 3600, False),
                ("2026-10", 3600, False),
                ("2026-11-01", 3600, True),
                ("2026-11", 3600, True),
            ],
            id="over the end of a month",
        ),
        pytest.param(
            MONTH_END,
            MONTH_END + 3600,
            [("2026-10-31", 3600, True), ("2026-10", 3600, True)],
            id="to midnight",
        ),
        pytest.param(
            MONTH_END + 3600,
            MONTH_END + 3600,
            [("2026-11-01", 0, True), ("2026-11", 0, True)],
            id="no second, at midnight",
        ),
        pytest.param(
            MONTH_END - DAY_SECONDS,
            MONTH_END - DAY_SECONDS + 3601,
            [
                ("2026-10-30", 3600, False),
                ("2026-10-31", 1, True),
                ("2026-10", 3601, True),
            ],
            id="a second over midnight",
        ),
    ],
)
def test_a_run_is_split_at_midnight(
    since: int, until: int, folded: list[tuple[str, int, bool]]
) -> None:
    assert [(part.period.name, part.seconds, part.last) for part in parts(since, until)] == folded


def test_the_last_ten_years_of_a_run_are_counted() -> None:
    found = [part for part in parts(0, MONTH_END + 3600) if part.period.span == "day"]
    assert len(found) == DAYS_MAX == 3660
    assert (found[0].period.name, found[-1].period.name) == ("2016-10-24", "2026-10-31")


def test_a_full_summary_counts_further_users_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "ROWS_MAX", 2)
    store = Store()
    runs = [
        _run(f"w{number}", MONTH_END, MONTH_END + 10, user=f"user-{number}", sequence=number + 1)
        for number in range(4)
    ]
    store.fold(store.leader([]), runs)
    rows = store.rows("day")
    assert {row.user for _, row in rows} == {"user-0", OTHERS}
    report = UsageReport([])
    for about, row in rows:
        report.add(about, [(row, rows[about, row])])
    assert report.result() == [((), Counts(runs=4, finished=4, amounts={"cpu": 4 * 10_000}))]


def test_a_report_counts_runs_once_and_amounts_by_flavor() -> None:
    store = Store()
    run = _run("w", MONTH_END, MONTH_END + 10, sequence=1)
    store.fold(store.leader([]), [run._replace(amounts=(("f", "cpu", 1), ("g", "gpu", 2)))])
    groups = {}
    for by in BY:
        report = UsageReport([by])
        for (about, row), counts in store.rows("day").items():
            report.add(about, [(row, counts)])
        groups[by] = [
            (group, counts.runs, dict(sorted(counts.amounts.items())))
            for group, counts in report.result()
        ]
    assert groups == {
        "cluster-queue": [(("cq",), 1, {"cpu": 10, "gpu": 20})],
        "namespace": [(("ns.x",), 1, {"cpu": 10, "gpu": 20})],
        "queue": [(("ns.x/lq",), 1, {"cpu": 10, "gpu": 20})],
        "user": [(("ada",), 1, {"cpu": 10, "gpu": 20})],
        "flavor": [(("f",), 1, {"cpu": 10}), (("g",), 1, {"gpu": 20})],
        "day": [(("2026-10-31",), 1, {"cpu": 10, "gpu": 20})],
        "month": [(("2026-10",), 1, {"cpu": 10, "gpu": 20})],
    }


def test_the_subject_of_a_summary_names_what_it_is_about() -> None:
    store = Store()
    store.fold(store.leader([]), [_run("w", MONTH_END, MONTH_END, sequence=1)])
    assert [key_of(about.subject) for about in store.messages] == list(store.messages)


def _run(uid: str, since: int, until: int, *, user: str = "ada", sequence: int) -> Run:
    return Run(
        uid=uid,
        since=since,
        until=until,
        cluster_queue="cq",
        namespace="ns.x",
        queue="lq",
        user=user,
        amounts=(("f", "cpu", 1000),),
        admitted=True,
        outcome="finished",
        sequence=sequence,
        cause=sequence,
    )


def test_runs_up_to_the_position_are_folded_already() -> None:
    assert UsageFold().position == 0
    fold = UsageFold(5)
    runs = [_run(f"u{sequence}", 0, 10, sequence=sequence) for sequence in (4, 5, 6)]
    for about in fold.needed(runs):
        fold.summaries[about] = Summary()
    fold.fold(runs)
    assert (fold.position, fold.again(), fold.again(6 + WINDOW)) == (6, 5, 6)
    counted = {c.runs for each in fold.summaries.values() for c in each.rows.values()}
    assert counted == {1}, "of the three runs only the last"


def test_the_summaries_that_were_loaded_first_are_forgotten_when_stored() -> None:
    fold = UsageFold()
    runs = [_run(f"u{day}", 0, day * DAY_SECONDS + 10, sequence=day + 1) for day in range(3)]
    for about in sorted(fold.needed(runs)):
        fold.summaries[about] = Summary()
    every = list(fold.summaries)
    fold.fold(runs)
    assert fold.dirty == set(every)
    fold.forget(0)
    assert list(fold.summaries) == every, "none is stored"
    for about in every[:3]:
        fold.stored(about, 1)
    fold.forget(len(every) - 2)
    assert list(fold.summaries) == every[2:]
    fold.forget(0)
    assert list(fold.summaries) == every[3:]


def test_booked_amounts_are_summed_by_flavor_and_resource() -> None:
    pod_sets = (
        PodSetAssignment(
            name="a", flavors={"cpu": "f", "gpu": "g"}, resource_usage={"cpu": "1500m", "gpu": "2"}
        ),
        PodSetAssignment(
            name="b", flavors={"cpu": "f", "memory": "f"}, resource_usage={"cpu": "2"}
        ),
        PodSetAssignment(name="c", flavors={"cpu": "spot"}, resource_usage={"cpu": "1"}),
    )
    booked = amounts_of(Admission(cluster_queue="cq", pod_set_assignments=pod_sets))
    assert booked == (
        ("f", "cpu", 3500),
        ("g", "gpu", 2),
        ("f", "memory", 0),
        ("spot", "cpu", 1000),
    )
    assert amounts_of(Admission(cluster_queue="cq")) == ()


def test_sums_of_nothing_take_no_room_in_a_summary() -> None:
    assert msgspec.json.encode(Counts()) == b"{}"
    assert msgspec.json.encode(Counts(runs=2, wait_seconds=3)) == b'{"runs":2,"waitSeconds":3}'
