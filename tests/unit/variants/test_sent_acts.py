"""A published act is not published again while it takes effect, and is repeated if it has no
effect."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from admittance.variants.core import AGAIN, BEHIND_MAX, PATIENCE, PATIENCE_MAX, FamilyActs
from admittance.workload.stored import LogPosition
from support.builders import NOON, a_condition
from support.cores.stepped_variants import NS, SteppedVariants, a_family


def test_a_published_act_is_not_repeated_at_once() -> None:
    table = SteppedVariants().offer("a").workload()
    assert table.orders() == ["submitted j-variant-a"]
    table.status("j", a_condition("QuotaReserved", False, "Other"))
    assert table.orders() == []
    assert table.core.pending == 1


def test_an_act_without_effect_is_repeated_with_growing_delays() -> None:
    table = SteppedVariants().offer("a").workload()
    moments = []
    while table.now < NOON + timedelta(hours=1):
        if table.orders():
            moments.append(table.now)
        wake = table.core.wake()
        assert wake is not None
        table.now = max(table.now, wake)
    assert table.core.stuck == 1
    waits = [after - before for before, after in pairwise(moments)]
    assert waits[:3] == [PATIENCE, 2 * PATIENCE, 4 * PATIENCE]
    assert waits[-1] == PATIENCE_MAX


def test_an_act_that_is_not_processed_yet_is_not_repeated() -> None:
    table = SteppedVariants().offer("a").workload()
    table.orders()
    table.core.stated(table.log[0], 70)
    table.later(PATIENCE.total_seconds())
    table.status("j", log=LogPosition(fact=69))  # it writes, and is behind
    assert table.orders() == []
    table.later(PATIENCE.total_seconds())
    table.status("j", log=LogPosition(fact=70))
    assert table.orders() == ["submitted j-variant-a"]


def test_an_act_waits_while_the_workload_controller_progresses() -> None:
    table = SteppedVariants().offer("a").workload()
    table.orders()
    table.core.stated(table.log[0], 7000)
    for step in range(100):
        assert table.later(PATIENCE.total_seconds() / 2).orders() == []
        table.status("j", log=LogPosition(fact=step + 1))
    assert table.later(PATIENCE.total_seconds() / 2).orders() == []
    assert table.later(PATIENCE.total_seconds()).orders() == ["submitted j-variant-a"]


def test_an_act_that_is_never_processed_is_repeated() -> None:
    table = SteppedVariants().offer("a").workload()
    table.orders()
    table.core.stated(table.log[0], 70)
    assert table.later(BEHIND_MAX.total_seconds() - 1).orders() == []
    assert table.core.wake() == NOON + BEHIND_MAX
    assert table.later(1).orders() == ["submitted j-variant-a"]


def test_an_act_that_failed_to_publish_is_repeated_soon() -> None:
    table = SteppedVariants().offer("a").workload()
    table.orders()
    table.core.failed(table.log.pop(), table.now)
    assert table.orders() == []
    assert table.core.wake() == NOON + AGAIN
    table.now += AGAIN
    assert table.orders() == ["submitted j-variant-a"]


def test_an_act_with_a_new_goal_is_published_at_once() -> None:
    table = a_family("a", "b")
    table.admit("a").follow()
    table.spec("j-variant-b", active=True)
    assert table.orders()[:1] == ["deactivated j-variant-b lowerThanAdmitted"]
    table.spec("j-variant-b", active=False).orders()
    table.spec("j-variant-b", active=True)
    assert table.orders()[:1] == ["deactivated j-variant-b lowerThanAdmitted"]


def test_an_act_for_a_new_workload_of_the_same_name_is_a_new_act() -> None:
    table = a_family("a")
    table.put("j", None)
    assert table.orders() == ["deleted j-variant-a"]
    table.meta("j-variant-a", uid="another")
    assert table.orders() == ["deleted j-variant-a"]


def test_a_clock_that_is_set_back_delays_acts_only_briefly() -> None:
    table = SteppedVariants().offer("a").workload()
    table.orders()
    table.now -= timedelta(hours=1)
    table.status("j", a_condition("QuotaReserved", False, "Other"))
    assert table.orders() == ["submitted j-variant-a"]


def test_rows_that_differ_are_not_requested_without_end() -> None:
    table = a_family("a")
    table.later(1).status("j-variant-a", a_condition("QuotaReserved", False, "WaitingForQuota"))
    said = 0
    for _ in range(100):
        said += len(table.orders())
        # The writer of the parent adds no rows for it.
        table.log.clear()
        table.status("j", a_condition("Admitted", False, f"Write{table.revision}"))
        table.later(0.2)
    assert said <= 4


def test_many_acts_are_split_between_families_only() -> None:
    table = SteppedVariants().offer("a", "b", "c")
    for number in range(50):
        table.workload(f"j{number}")
    sizes = []
    while found := table.core.orders(table.now, 20):
        sizes.append(len(found))
    assert sum(sizes) == 150
    assert all(size == 21 for size in sizes[:-1])


def test_a_change_without_effect_computes_no_family() -> None:
    table = SteppedVariants().offer("a", "b")
    for number in range(200):
        table.workload(f"j{number}")
    table.follow()
    looked: list[str] = []
    acts_of = FamilyActs._acts_of

    class Counting(FamilyActs):
        def _acts_of(self, family, now):  # type: ignore[no-untyped-def]
            looked.append(family.name.name)
            return acts_of(self, family, now)

    table.core.__class__ = Counting
    table.workload("regular", role="regular").offer("a", "b", quota=99)
    table.status("j7-variant-a", a_condition("QuotaReserved", False, "WaitingForQuota"))
    table.orders()
    assert looked == ["j7"]


def test_a_new_leader_continues_from_stored_objects() -> None:
    table = SteppedVariants().offer("a", "b", "c").workload()
    table.orders()
    table.obey(table.log[0])
    after = SteppedVariants().offer("a", "b", "c")
    for revision, (name, one) in enumerate(table.stored.items(), 1):
        after.core.apply(f"workload.{NS}.{name}", one, revision, after.now)
    assert after.orders() == [
        "submitted j-variant-b",
        "submitted j-variant-c",
        "aggregated j",
    ]


def test_a_parent_that_became_regular_is_forgotten() -> None:
    table = a_family("a")
    table.core.regular("workload.ns.j")
    assert table.orders() == ["deleted j-variant-a"]
    assert len(table.core) == 0
    table.workload("k")
    table.core.regular("workload.ns.k-variant-a")
    assert table.orders()[0].startswith("submitted k-variant-a-")


def test_an_unreadable_parent_does_not_block_other_families() -> None:
    table = SteppedVariants().offer("a").workload("strange", frobs=1).workload()
    assert table.orders() == ["submitted j-variant-a"]
    assert list(table.core.unreadable) == [(NS, "strange")]
    table.put("strange", None).orders()
    assert not table.core.unreadable


def test_a_deleted_family_is_forgotten_completely() -> None:
    table = a_family("a", "b")
    for name in list(table.stored):
        table.put(name, None)
    table.orders()
    core = table.core
    for kept in (core._families, core._family_of, core._sent, core._times, core._names):
        assert not kept
    assert not core._sent._aggregated
    assert not core._queues._families
    assert core.wake() is None
