"""Filters and order of lists, and tables that fit a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.cli.objects.get import selection
from admittance.cli.show import tables
from admittance.cli.show.pending import narrowed, pending_table
from admittance.cli.support.output import TITLE_MIN, cut, cut_middle, fitted, fitted_table
from admittance.client import kinds
from admittance.client.requests.objects import BucketObject
from admittance.client.requests.selection import Selection, select
from admittance.events.requests.queues import PendingRow

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def workload_object(
    name: str,
    minutes: int,
    *true: str,
    queue: str = "main",
    priority: int = 0,
    labels: dict[str, str] | None = None,
    reason: str = "Succeeded",
    owner: str = "",
) -> BucketObject:
    """A workload that was created ``minutes`` minutes before noon, with these conditions."""
    created = (NOON - timedelta(minutes=minutes)).isoformat()
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": created}
        for kind in true
    ]
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    meta |= {"creationTimestamp": created, "labels": labels or {}}
    spec: dict[str, Any] = {"queueName": queue, "priority": priority}
    if owner:
        meta["ownerReferences"] = [{"kind": "Workload", "name": owner, "uid": f"uid-{owner}"}]
        spec["role"] = "variant"
    status: dict[str, Any] = {"conditions": conditions}
    if true:
        status["admission"] = {"clusterQueue": "cq", "podSetAssignments": []}
    value = {"apiVersion": "v", "kind": "Workload", "metadata": meta}
    value |= {"spec": spec, "status": status}
    return BucketObject(f"workload.ns.{name}", json.dumps(value).encode(), 1)


RUNS = ("QuotaReserved", "Admitted", "PodsReady")
ALL = [
    workload_object("done", 1, *RUNS, "Finished", labels={"team": "a"}),
    workload_object("failed", 2, *RUNS, "Finished", reason="Failed"),
    workload_object("newest", 3, priority=5, labels={"team": "b"}),
    workload_object("old", 60, queue="other"),
    workload_object("runs", 30, *RUNS, labels={"team": "a", "x": "1"}),
]


def names(chosen: Selection, rows: list[BucketObject] = ALL) -> list[str]:
    return [row.name for row in select(kinds.WORKLOAD, rows, chosen, NOON)[0]]


def typed(**options: Any) -> Selection:
    said: dict[str, Any] = {"labels": (), "states": (), "since": None, "sort_by": None}
    return selection(kinds.WORKLOAD, **{**said, "limit": None, "now": NOON, **options})


def test_running_workloads_are_listed_before_pending_ones_newest_first() -> None:
    assert names(Selection()) == ["runs", "newest", "old", "done", "failed"]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        pytest.param({"states": ["running"]}, ["runs"], id="one phase"),
        pytest.param({"states": ["Running,Failed"]}, ["runs", "failed"], id="a phase or an end"),
        pytest.param({"states": ["pending", "succeeded"]}, ["newest", "old", "done"], id="several"),
        pytest.param({"labels": ["team=a"]}, ["runs", "done"], id="a label"),
        pytest.param({"labels": ["team=a,!x"]}, ["done"], id="a label without another"),
        pytest.param({"labels": ["team", "team!=a"]}, ["newest"], id="another value"),
        pytest.param({"since": "10m"}, ["newest", "done", "failed"], id="not older"),
        pytest.param({"limit": 2}, ["runs", "newest"], id="so many"),
        pytest.param(
            {"sort_by": "name"}, ["done", "failed", "newest", "old", "runs"], id="by name"
        ),
        pytest.param({"sort_by": "-name", "limit": 1}, ["runs"], id="by name, turned around"),
        pytest.param({"sort_by": "priority", "limit": 1}, ["newest"], id="greatest first"),
        pytest.param({"sort_by": "duration", "limit": 1}, ["runs"], id="longest first"),
        pytest.param(
            {"sort_by": "-created"}, ["old", "runs", "newest", "failed", "done"], id="oldest first"
        ),
    ],
)
def test_a_list_is_filtered_and_sorted(options: dict[str, Any], shown: list[str]) -> None:
    assert names(typed(**options)) == shown


def test_workloads_are_chosen_by_queue() -> None:
    assert names(Selection(queues=frozenset({("ns", "other")}))) == ["old"]
    assert names(Selection(queues=frozenset({("elsewhere", "other")}))) == []


def test_variants_stay_with_their_parent_under_all_filters() -> None:
    rows = [
        workload_object("p", 5),
        workload_object("p-variant-spot", 4, *RUNS, owner="p"),
        workload_object("q", 1, *RUNS),
    ]
    assert names(Selection(), rows) == ["q", "p", "p-variant-spot"]
    assert names(typed(states=["pending"]), rows) == ["p", "p-variant-spot"]
    assert names(typed(limit=1), rows) == ["q"]
    alone = [workload_object("p-variant-spot", 4, owner="p")]
    assert names(Selection(), alone) == ["p-variant-spot"]


def test_a_limit_shows_how_many_more_there_are() -> None:
    assert select(kinds.WORKLOAD, ALL, typed(limit=2), NOON)[1] == 3
    assert select(kinds.WORKLOAD, ALL, typed(), NOON)[1] == 0


def test_start_and_duration_are_those_of_the_run() -> None:
    table = tables.table(kinds.WORKLOAD, ALL, NOON, {}).narrowed(wide=False)
    titles = [column.title for column in table.columns]
    assert titles[-4:] == ["AGE", "STARTED", "DURATION", "REASON"]
    shown = {row[0]: row[-4:-1] for row in table.rows}
    assert shown["runs"] == ("30m", "30m", "30m") or shown["runs"] == ["30m", "30m", "30m"]
    assert list(shown["done"]) == ["1m", "1m", "0s"]
    assert list(shown["old"]) == ["1h", "-", "-"]


@pytest.mark.parametrize("room", [80, 120])
def test_a_table_of_workloads_fits_the_terminal_and_keeps_short_names(room: int) -> None:
    long = workload_object(
        "train-resnet-with-a-very-long-name-" + "x" * 60, 3, queue="a-queue-" + "q" * 40
    )
    table = tables.table(kinds.WORKLOAD, [*ALL, long], NOON, {}).narrowed(wide=False)
    titles = [column.title for column in table.columns]
    widths, gap = fitted(titles, table.rows, room)
    assert sum(widths) + gap * (len(widths) - 1) <= room
    assert widths[0] >= 14
    phase = titles.index("PHASE")
    assert widths[phase] >= len("Finished")


tables_of_text = st.integers(1, 8).flatmap(
    lambda count: st.lists(
        st.lists(st.text("ab", max_size=90), min_size=count, max_size=count), max_size=4
    )
)


@given(rows=tables_of_text, room=st.integers(40, 130))
def test_every_table_fits_where_each_column_may_have_four_characters(
    rows: list[list[str]], room: int
) -> None:
    titles = [f"TITLE {at}" for at in range(len(rows[0]))] if rows else ["NAME"]
    widths, gap = fitted(titles, rows, room)
    assert sum(widths) + gap * (len(widths) - 1) <= room
    assert all(width >= TITLE_MIN for width in widths)
    for row in rows:
        for cell, width in zip(row, widths, strict=True):
            short = cut(cell, width)
            assert len(short) <= width
            assert short == cell or short.endswith("…")
            middle = cut_middle(cell, width)
            assert len(middle) <= width
            assert middle == cell or middle.endswith(cell[-1])


def test_a_long_name_keeps_its_end() -> None:
    assert cut_middle("train-resnet-lr-0.01-seed-7", 16) == "train-r…1-seed-7"
    assert cut_middle("short", 16) == "short"


def pending_row(name: str, minutes: int, **fields: Any) -> PendingRow:
    return PendingRow(
        namespace="ns",
        name=name,
        cluster_queue="cluster-queue-of-a-team",
        local_queue="main",
        position=1,
        created=NOON - timedelta(minutes=minutes),
        reason="WaitingForQuota",
        message="cpu: 2 short in flavor on-demand, which has 4 and lends nothing",
        **fields,
    )


def test_pending_workloads_are_filtered_and_keep_their_order() -> None:
    rows = [pending_row(name, 1) for name in ("old", "newest")]
    assert [row.name for row in narrowed(rows, ALL, typed(labels=["team=b"]), NOON)] == ["newest"]
    assert [row.name for row in narrowed(rows, ALL, typed(since="2h"), NOON)] == ["old", "newest"]
    by_name = narrowed(rows, ALL, typed(sort_by="name"), NOON)
    assert [row.name for row in by_name] == ["newest", "old"]


def test_a_narrow_pending_table_shows_whole_names_and_no_messages() -> None:
    name = "train-resnet-0.01-seed-7"
    table = pending_table([pending_row(name, 5)], NOON, all_namespaces=False).narrowed(False)
    shown, widths, _ = fitted_table(table, 80)
    titles = [column.title for column in shown.columns]
    assert "MESSAGE" not in titles
    assert widths[titles.index("NAME")] >= len(name)
    wide, _, _ = fitted_table(table, 200)
    assert "MESSAGE" in [column.title for column in wide.columns]


def test_a_table_that_fits_is_not_cut() -> None:
    assert fitted(["NAME", "AGE"], [["a", "long enough"]], 80) == ([4, 11], 3)
