"""The pages of queues and of pending workloads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from admittance.client.calls import Login
from admittance.client.requests.queues.overview import QueueOverview, RunningRow, WaitingRow
from admittance.events.requests.forecast import StartForecast
from admittance.events.requests.queues import (
    FlavorUsage,
    NodeStatus,
    NodeUsage,
    PendingCount,
    PendingReply,
    PendingRow,
    QueueStatus,
    RowShortfall,
)
from admittance.web.views import past, pending, queues
from admittance.web.views.merging import merged_overviews, merged_pending
from admittance.web.views.pending import Chosen
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


def a_tree() -> tuple[list[QueueStatus], list[NodeStatus]]:
    a = queue("a", 24, 16, cohort="inner", pending=2, admitted=3)
    b = queue("b", 0, 16, cohort="outer", pending=1)
    lent = NodeUsage(flavor="f", resource=GPU, nominal=16, lent=8)
    outer = NodeUsage(flavor="f", resource=GPU, total=40, used=24, admitted=20, lent=8)
    inner = NodeUsage(flavor="f", resource=GPU, total=16, used=24, admitted=24)
    tree = [
        node("outer", 0, "Cohort", usage=(outer,), pending=3, running=3),
        node("inner", 1, "Cohort", usage=(inner,), pending=2, running=3),
        node("a", 2, share=250),
        node("b", 1, usage=(lent,)),
    ]
    return [a, b, queue("alone", 0, 4)], tree


def test_a_cohort_has_the_sum_of_the_queues_below_it() -> None:
    statuses, tree = a_tree()
    view = queues.build(statuses, [tree])
    assert [(row.name, row.depth, row.waiting, row.running) for row in view.rows] == [
        ("outer", 0, 3, 3),
        ("inner", 1, 2, 3),
        ("a", 2, 2, 3),
        ("b", 1, 1, 0),
        ("alone", 0, 0, 0),
    ]
    outer, inner, lender = (cells(view)[name] for name in ("outer", "inner", "b"))
    assert outer is not None and inner is not None and lender is not None
    assert (outer.used, outer.nominal, outer.more) == ("24", "40", "4 resv. · 8 lent")
    assert (inner.used, inner.nominal, inner.more) == ("24", "16", "+8")
    assert (lender.lent, lender.more) == (28, "8 lent")
    assert [row.share for row in view.rows if row.name == "a"] == ["0.25"]


def test_a_folded_cohort_hides_what_is_below_it() -> None:
    statuses, tree = a_tree()
    view = queues.build(statuses, [tree], folded=frozenset({"inner"}))
    assert [row.name for row in view.rows] == ["outer", "inner", "b", "alone"]
    outer, inner, *_ = view.rows
    assert outer.fold is not None and inner.fold is not None
    gpu = "resource=nvidia.com%2Fgpu"
    assert (outer.fold.text, outer.fold.href) == (
        "Fold outer",
        f"/queues?{gpu}&fold=inner%2Couter",
    )
    assert (inner.fold.text, inner.fold.href) == ("Unfold inner", f"/queues?{gpu}")
    assert (outer.folded, inner.folded) == (False, True)


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


def test_a_resource_without_quota_is_not_shown_first() -> None:
    cpu = FlavorUsage(flavor="f", resource="cpu", nominal=4000)
    gpu = FlavorUsage(flavor="f", resource=GPU)
    view = queues.build([QueueStatus(name="q", usage=(gpu, cpu))], [])
    assert (view.resource, [link.text for link in view.resources]) == ("cpu", [GPU, "cpu"])


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
    counts = (count("Pending", "R", 4), count("QuotaReserved", "C", 2), count("Held", "OnHold", 1))
    view = pending.build(PendingReply(rows=rows, total=4, counts=counts), {}, NOW)
    assert [(group.queue, [each.name for each in group.rows]) for group in view.groups] == [
        ("q", ["a", "b"]),
        ("r", ["c"]),
        ("", ["d"]),
    ]
    assert view.say == "4 workloads wait, 2 have quota and wait for a check, 1 is held."
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
    other = row("hidden", 1, local_queue="", message="")
    view = pending.build(PendingReply(rows=(other,), total=1), {}, NOW)
    [shown] = view.groups[0].rows
    assert (shown.link, shown.why) == (None, "")


def test_many_pending_workloads_are_on_several_pages() -> None:
    reply = PendingReply(rows=tuple(row(f"w{n}", n) for n in range(200)), total=100_000)
    view = pending.build(reply, {}, NOW, Chosen(queue="q"), skip=200, with_others=True)
    assert view.say == "100,000 workloads wait in queue q. These are 201 to 400 of 100,000."
    assert view.earlier is not None and view.later is not None
    assert (view.earlier.href, view.later.href) == ("/pending?queue=q", "/pending?queue=q&skip=400")
    merged = pending.build(reply, {}, NOW, skip=1_800, rows_max=2_000)
    assert merged.later is None
    assert merged.bound == (
        "The pages of several namespaces end after 2,000 rows: choose a namespace."
    )


def test_an_empty_queue_says_so() -> None:
    view = pending.build(PendingReply(), {}, NOW, Chosen(queue="q"))
    assert view.say == "No workload waits in queue q."


def test_chips_choose_a_reason_or_a_state_in_the_address() -> None:
    counts = (count("Pending", "WaitingForQuota", 9_000), count("Held", "OnHold", 1))
    chosen = Chosen(queue="a b", reason="WaitingForQuota", of_queue=True)
    view = pending.build(PendingReply(counts=counts), {}, NOW, chosen)
    assert [(chip.text, chip.count, chip.href, chip.on) for chip in view.chips] == [
        ("All", "9,001", "/queues/a%20b", False),
        (
            "WaitingForQuota",
            "9,000",
            "/queues/a%20b?state=Pending&reason=WaitingForQuota",
            True,
        ),
        ("Pending", "9,000", "/queues/a%20b?state=Pending", False),
        ("Held", "1", "/queues/a%20b?state=Held", False),
    ]


def lacks(flavor: str, requested: int, available: int, resource: str = GPU) -> RowShortfall:
    return RowShortfall(flavor=flavor, resource=resource, requested=requested, available=available)


@pytest.mark.parametrize(
    ("shortfalls", "shown"),
    [
        pytest.param([], None, id="nothing is short"),
        pytest.param([lacks("f", 16, 0), lacks("g", 16, 12)], ("4", "16 GPUs", "g"), id="least"),
        pytest.param(
            [lacks("f", 16, 12), lacks("f", 4000, 1, "cpu")], ("3.999", "4 cpu", "f"), id="worst"
        ),
        pytest.param([lacks("f", 16, -3)], ("16", "16 GPUs", "f"), id="more is used than there is"),
    ],
)
def test_the_least_shortfall_is_shown(
    shortfalls: list[RowShortfall], shown: tuple[str, str, str] | None
) -> None:
    found = pending.short(shortfalls)
    assert (found and (found.amount, found.of, found.flavor)) == shown


def test_a_row_in_backoff_has_the_end_and_a_held_one_no_time() -> None:
    waits = row("a", 1, requeue_at=NOW + timedelta(minutes=5))
    held = row("b", 0, state="Held", created=NOW - timedelta(hours=1))
    view = pending.build(PendingReply(rows=(waits, held), total=2), {}, NOW)
    first, second = view.groups[0].rows
    assert (first.chance, first.word.text) == ("12:05:00, in 5 min", "Pending")
    assert (second.chance, second.waiting, second.word.text) == ("", "", "Held")
    assert (first.in_backoff, second.in_backoff, second.release) == (True, False, None)


@pytest.mark.parametrize(
    ("role", "user", "may"),
    [
        ("admin", "ada", True),
        ("owner", "ada", True),
        ("owner", "bob", False),
        ("viewer", "v", False),
    ],
)
def test_a_held_workload_has_a_button_for_those_that_may_release_it(
    role: str, user: str, may: bool
) -> None:
    rows = row("w", 1), row("held", 0, state="Held", user="ada")
    login = Login(user=user, role=role, namespaces=(), demanded=True)
    view = pending.build(PendingReply(rows=rows, total=2), {}, NOW, login=login)
    waits, held = view.groups[0].rows
    assert waits.release is None
    assert (held.release is not None) is may
    assert held.release is None or held.release.path == "/workloads/ns/held/release"


def test_the_page_of_a_queue_has_its_quota_and_its_trouble() -> None:
    stopped = queue("q", 3, 2, active=False, message="it is stopped")
    view = pending.build(PendingReply(), {}, NOW, Chosen(queue="q", of_queue=True), status=stopped)
    assert (view.heading, view.trouble) == ("q", "it is stopped")
    [quota] = view.quota
    [cell] = quota.cells
    assert (view.flavors, quota.resource) == (("f",), GPU)
    assert cell is not None and (cell.used, cell.nominal, cell.more) == ("3", "2", "+1")


def count(state: str, reason: str, many: int) -> PendingCount:
    return PendingCount(state=state, reason=reason, count=many)


def test_rows_of_several_namespaces_are_one_list_in_order() -> None:
    mine = PendingReply(
        rows=(row("a", 2), row("h", 0, state="Held")), total=2, counts=(count("Pending", "R", 1),)
    )
    ours = PendingReply(
        rows=(row("b", 1, namespace="us"), row("c", 1, cluster_queue="p", namespace="us")),
        total=2,
        counts=(count("Pending", "R", 2),),
    )
    merged = merged_pending([mine, ours], skip=0, limit=9, of_queue=False)
    assert [each.name for each in merged.rows] == ["c", "b", "a", "h"]
    assert (merged.total, merged.counts) == (4, (count("Pending", "R", 3),))
    page = merged_pending([mine, ours], skip=1, limit=2, of_queue=False)
    assert [each.name for each in page.rows] == ["b", "a"]


def test_the_rows_of_one_queue_are_merged_with_what_each_namespace_may_read() -> None:
    mine = PendingReply(rows=(row("a", 1), row("b", 2, namespace="us", local_queue="")), total=2)
    ours = PendingReply(rows=(row("a", 1, local_queue=""), row("b", 2, namespace="us")), total=2)
    merged = merged_pending([mine, ours], skip=0, limit=9, of_queue=True)
    assert [(each.name, each.local_queue) for each in merged.rows] == [("a", "l"), ("b", "l")]
    assert merged.total == 2


def test_overviews_of_several_namespaces_are_one() -> None:
    def overview(space: str, position: int, hour: int) -> QueueOverview:
        runs = RunningRow(
            namespace=space,
            name=f"r{hour}",
            queue="l",
            cluster_queue="q",
            phase="Running",
            started=NOW - timedelta(hours=hour),
        )
        waits = WaitingRow(
            namespace=space, name=f"w{position}", queue="l", cluster_queue="q", position=position
        )
        return QueueOverview(
            queues=(queue("q", 1, 2),),
            running=(runs,),
            running_total=5,
            waiting=(waits,),
            waiting_total=7,
        )

    merged = merged_overviews([overview("a", 2, 1), overview("b", 1, 3)], 9)
    assert [each.name for each in merged.running] == ["r3", "r1"]
    assert [each.name for each in merged.waiting] == ["w1", "w2"]
    assert (merged.running_total, merged.waiting_total, len(merged.queues)) == (10, 14, 1)


def test_all_links_of_past_queues_lead_to_the_same_moment() -> None:
    tree = [node("lab", 0, "Cohort"), node("a", 1)]
    view = past.queues_at(queues.build([queue("a", 1, 2, cohort="lab")], [tree], GPU), 7)
    links = [*view.resources, *(row.fold for row in view.rows), *(row.link for row in view.rows)]
    assert [link.href for link in links if link] == [
        "/queues?resource=nvidia.com%2Fgpu&at=7",
        "/queues?resource=nvidia.com%2Fgpu&fold=lab&at=7",
        "/queues/a?at=7",
    ]
