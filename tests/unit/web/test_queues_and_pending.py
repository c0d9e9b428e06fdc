"""The pages of queues and of pending workloads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from admittance.events.requests.forecast import StartForecast
from admittance.events.requests.queues import (
    FlavorUsage,
    NodeStatus,
    NodeUsage,
    PendingReply,
    PendingRow,
    QueueStatus,
)
from admittance.web.views import pending, queues
from admittance.web.views.queues import Cell, QueuesView

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def queue(name: str, used: int, nominal: int, **given: object) -> QueueStatus:
    usage = FlavorUsage(
        flavor="f",
        resource=GPU,
        nominal=nominal,
        reserved=used,
        admitted=used,
        borrowed=max(0, used - nominal),
    )
    return QueueStatus(name=name, usage=(usage,), **given)  # type: ignore[arg-type]


def node(name: str, depth: int, kind: str = "ClusterQueue", **given: object) -> NodeStatus:
    return NodeStatus(name=name, kind=kind, depth=depth, **given)  # type: ignore[arg-type]


def cells(view: QueuesView) -> dict[str, Cell | None]:
    return {row.name: row.cells[0] for row in view.rows}


@pytest.mark.parametrize(
    ("used", "nominal", "own", "borrowed", "overflow"),
    [
        pytest.param(0, 16, 0, 0, False, id="nothing is used"),
        pytest.param(8, 16, 28, 0, False, id="half of the nominal quota is used"),
        pytest.param(24, 16, 56, 28, False, id="what is right of the nominal quota is borrowed"),
        pytest.param(64, 16, 56, 36, True, id="a bar ends at 164 % of the nominal quota"),
        pytest.param(8, 0, 0, 92, False, id="all that a queue without quota uses is borrowed"),
        pytest.param(0, 0, 0, 0, False, id="no quota and no use is an empty bar"),
    ],
)
def test_the_nominal_quota_stands_at_one_place(
    used: int, nominal: int, own: float, borrowed: float, overflow: bool
) -> None:
    cell = cells(queues.build([queue("q", used, nominal)], []))["q"]
    assert cell is not None
    assert (cell.own, cell.borrowed, cell.overflow) == (own, borrowed, overflow)


def test_a_cohort_has_the_sum_of_the_queues_below_it() -> None:
    a = queue("a", 24, 16, cohort="inner", pending=2, admitted=3)
    b = queue("b", 0, 16, cohort="outer", pending=1)
    lent = NodeUsage(flavor="f", resource=GPU, nominal=16, usage=0, available=8)
    own = NodeUsage(flavor="f", resource=GPU, nominal=8)
    tree = [
        node("outer", 0, "Cohort", usage=(own,)),
        node("inner", 1, "Cohort"),
        node("a", 2, share=250),
        node("b", 1, usage=(lent,)),
    ]
    view = queues.build([a, b, queue("alone", 0, 4)], [tree])
    assert [(row.name, row.depth, row.waiting, row.running) for row in view.rows] == [
        ("outer", 0, 3, 3),
        ("inner", 1, 2, 3),
        ("a", 2, 2, 3),
        ("b", 1, 1, 0),
        ("alone", 0, 0, 0),
    ]
    outer, inner, lender = (cells(view)[name] for name in ("outer", "inner", "b"))
    assert outer is not None and inner is not None and lender is not None
    assert (outer.used, outer.nominal) == ("24", "40")
    assert (inner.used, inner.nominal, inner.more) == ("24", "16", "+8")
    assert (lender.lent, lender.more) == (28, "8 lent")
    assert [row.share for row in view.rows if row.name == "a"] == ["0.25"]


def test_a_queue_without_the_flavor_has_no_cell_and_a_stopped_one_says_why() -> None:
    other = FlavorUsage(flavor="g", resource=GPU, nominal=4)
    stopped = QueueStatus(name="g", usage=(other,), active=False, message="it is stopped")
    view = queues.build([queue("q", 0, 4), stopped], [])
    assert view.flavors == ("f", "g")
    assert [[cell is not None for cell in row.cells] for row in view.rows] == [
        [True, False],
        [False, True],
    ]
    assert view.rows[1].trouble == "it is stopped"


def test_the_sentence_names_full_flavors_and_what_is_idle() -> None:
    view = queues.build([queue("q", 4, 4, pending=1, admitted=2)], [])
    assert view.say == "f is full. Idle: 0 GPUs. 1 workload waits, 2 are admitted."
    assert queues.build([], []).say == "There is no quota yet: apply a ClusterQueue."


def test_a_resource_can_be_chosen() -> None:
    cpu = FlavorUsage(flavor="f", resource="cpu", nominal=4000, reserved=1000)
    both = QueueStatus(name="q", usage=(cpu, *queue("q", 1, 2).usage))
    assert queues.build([both], []).unit == "GPUs"
    chosen = queues.build([both], [], "cpu")
    assert [link.href for link in chosen.resources] == [
        "/queues?resource=cpu",
        "/queues?resource=nvidia.com%2Fgpu",
    ]
    cell = cells(chosen)["q"]
    assert cell is not None and (cell.used, cell.nominal) == ("1", "4")
    assert queues.build([both], [], "<nonsense>").unit == "GPUs"


def row(name: str, position: int, **given: object) -> PendingRow:
    values: dict[str, object] = {
        "namespace": "ns",
        "cluster_queue": "q",
        "local_queue": "l",
        **given,
    }
    return PendingRow(name=name, position=position, **values)  # type: ignore[arg-type]


def test_pending_workloads_stand_by_queue_in_their_order() -> None:
    rows = (row("a", 1), row("b", 2), row("c", 1, cluster_queue="r"), row("d", 0, cluster_queue=""))
    view = pending.build(PendingReply(rows=rows, total=4), {}, NOW)
    assert [(group.queue, [each.name for each in group.rows]) for group in view.groups] == [
        ("q", ["a", "b"]),
        ("r", ["c"]),
        ("", ["d"]),
    ]
    assert view.say == "4 workloads wait."
    assert (view.earlier, view.later) == (None, None)


def test_a_row_says_why_since_when_and_when_next() -> None:
    waits = row(
        "a",
        1,
        message="16 short",
        waiting_since=NOW - timedelta(minutes=48),
        requests={GPU: 16},
    )
    starts = {"ns/a": StartForecast(p50=NOW + timedelta(hours=2), basis="from 34 runs")}
    view = pending.build(PendingReply(rows=(waits,), total=1), starts, NOW)
    [shown] = view.groups[0].rows
    assert (shown.why, shown.waiting, shown.asks) == ("16 short", "48 min", "16 GPUs")
    assert (shown.chance, shown.basis) == ("about 14:00", "from 34 runs")


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (None, "no time known"),
        (StartForecast(unknown="no run has ended yet"), "no time known"),
        (StartForecast(p50=NOW - timedelta(seconds=1)), "any moment"),
    ],
)
def test_a_time_is_shown_only_where_one_is_known(start: StartForecast | None, text: str) -> None:
    starts = {"ns/a": start} if start is not None else {}
    view = pending.build(PendingReply(rows=(row("a", 1),), total=1), starts, NOW)
    assert view.groups[0].rows[0].chance == text


def test_a_workload_of_another_namespace_is_no_link() -> None:
    other = row("hidden", 1, namespace="", message="")
    view = pending.build(PendingReply(rows=(other,), total=1), {}, NOW)
    [shown] = view.groups[0].rows
    assert (shown.link, shown.why) == (None, "")


def test_many_pending_workloads_are_on_several_pages() -> None:
    reply = PendingReply(rows=tuple(row(f"w{n}", n) for n in range(200)), total=100_000)
    view = pending.build(reply, {}, NOW, skip=200, queue="q")
    assert view.say == "100,000 workloads wait in queue q; these are 201 to 400."
    assert view.earlier is not None and view.later is not None
    assert (view.earlier.href, view.later.href) == ("/pending?queue=q", "/pending?queue=q&skip=400")


def test_an_empty_queue_says_so() -> None:
    assert pending.build(PendingReply(), {}, NOW, queue="q").say == "No workload waits in queue q."
