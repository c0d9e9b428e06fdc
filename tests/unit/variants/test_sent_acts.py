"""A published act is not published again while it takes effect, and is repeated if it has no
effect."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from admittance.acts import AGAIN, BEHIND_MAX, PATIENCE, PATIENCE_MAX
from admittance.variants.core import FamilyActs
from admittance.workload.stored import LogPosition
from support.builders import NOON, a_condition
from support.cores.families.stepped_variants import NS, SteppedVariants, a_family


def test_an_act_without_effect_is_repeated_with_growing_delays() -> None:
    table = SteppedVariants().offer("a").workload()
    moments = []
    while table.now < NOON + timedelta(hours=1):
        if table.ordered_now():
            moments.append(table.now)
        wake = table.families.wake()
        assert wake is not None
        table.now = max(table.now, wake)
    assert table.families.stuck == 1
    waits = [after - before for before, after in pairwise(moments)]
    assert waits[:3] == [PATIENCE, 2 * PATIENCE, 4 * PATIENCE]
    assert waits[-1] == PATIENCE_MAX


def test_an_act_that_is_not_processed_yet_is_not_repeated() -> None:
    table = SteppedVariants().offer("a").workload()
    table.ordered_now()
    table.families.stated(table.waiting[0], 70)
    table.later(PATIENCE.total_seconds())
    table.status("j", log=LogPosition(fact=69))  # it writes, and is behind
    assert table.ordered_now() == []
    table.later(PATIENCE.total_seconds())
    table.status("j", log=LogPosition(fact=70))
    assert table.ordered_now() == ["submitted j-variant-a"]


def test_an_act_waits_while_the_workload_controller_progresses() -> None:
    table = SteppedVariants().offer("a").workload()
    table.ordered_now()
    table.families.stated(table.waiting[0], 7000)
    for step in range(100):
        assert table.later(PATIENCE.total_seconds() / 2).ordered_now() == []
        table.status("j", log=LogPosition(fact=step + 1))
    assert table.later(PATIENCE.total_seconds() / 2).ordered_now() == []
    assert table.later(PATIENCE.total_seconds()).ordered_now() == ["submitted j-variant-a"]


def test_an_act_that_is_never_processed_is_repeated() -> None:
    table = SteppedVariants().offer("a").workload()
    table.ordered_now()
    table.families.stated(table.waiting[0], 70)
    assert table.later(BEHIND_MAX.total_seconds() - 1).ordered_now() == []
    assert table.families.wake() == NOON + BEHIND_MAX
    assert table.later(1).ordered_now() == ["submitted j-variant-a"]


def test_an_act_that_failed_to_publish_is_repeated_soon() -> None:
    table = SteppedVariants().offer("a").workload()
    table.ordered_now()
    table.families.failed(table.waiting.pop(), table.now)
    assert table.ordered_now() == []
    assert table.families.wake() == NOON + AGAIN
    table.now += AGAIN
    assert table.ordered_now() == ["submitted j-variant-a"]


def test_an_act_with_a_new_goal_is_published_at_once() -> None:
    table = a_family("a", "b")
    table.admit("a").follow()
    table.spec("j-variant-b", active=True)
    assert table.ordered_now()[:1] == ["deactivated j-variant-b lowerThanAdmitted"]
    table.spec("j-variant-b", active=False).ordered_now()
    table.spec("j-variant-b", active=True)
    assert table.ordered_now()[:1] == ["deactivated j-variant-b lowerThanAdmitted"]


def test_an_act_for_a_new_workload_of_the_same_name_is_a_new_act() -> None:
    table = a_family("a")
    table.put("j", None)
    assert table.ordered_now() == ["deleted j-variant-a"]
    table.meta("j-variant-a", uid="another")
    assert table.ordered_now() == ["deleted j-variant-a"]


def test_a_clock_that_is_set_back_delays_acts_only_briefly() -> None:
    table = SteppedVariants().offer("a").workload()
    table.ordered_now()
    table.now -= timedelta(hours=1)
    table.status("j", a_condition("QuotaReserved", False, "Other"))
    assert table.ordered_now() == ["submitted j-variant-a"]


def test_many_acts_are_split_between_families_only() -> None:
    table = SteppedVariants().offer("a", "b", "c")
    for number in range(50):
        table.workload(f"j{number}")
    sizes = []
    while acts := table.families.acts(table.now, 20):
        sizes.append(len(acts))
    assert sum(sizes) == 150
    assert all(size == 21 for size in sizes[:-1])


def test_a_change_without_effect_computes_no_family() -> None:
    table = SteppedVariants().offer("a", "b")
    for number in range(20):
        table.workload(f"j{number}")
    table.follow()
    looked: list[str] = []
    acts_of = FamilyActs._acts_of

    class Counting(FamilyActs):
        def _acts_of(self, name, now):  # type: ignore[no-untyped-def]
            looked.append(name.name)
            return acts_of(self, name, now)

    table.families.__class__ = Counting
    table.workload("regular", role="regular").offer("a", "b", quota=99)
    table.status("j7-variant-a", a_condition("QuotaReserved", False, "WaitingForQuota"))
    table.ordered_now()
    assert looked == ["j7"]


def test_a_parent_that_became_regular_is_forgotten() -> None:
    table = a_family("a")
    table.families.regular("workload.ns.j")
    assert table.ordered_now() == ["deleted j-variant-a"]
    assert len(table.families) == 0
    table.workload("k")
    table.families.regular("workload.ns.k-variant-a")
    assert table.ordered_now()[0].startswith("submitted k-variant-a-")


def test_an_unreadable_parent_does_not_block_other_families() -> None:
    table = SteppedVariants().offer("a").workload("strange", frobs=1).workload()
    assert table.ordered_now() == ["submitted j-variant-a"]
    assert list(table.families.unreadable) == [(NS, "strange")]
    table.put("strange", None).ordered_now()
    assert not table.families.unreadable


def test_a_deleted_family_is_forgotten_completely() -> None:
    table = a_family("a", "b")
    for name in list(table.stored):
        table.put(name, None)
    table.ordered_now()
    core = table.families
    for kept in (core._families, core._family_of, core._sent, core._times, core._names):
        assert not kept
    assert not core._sent._last_gathered
    assert not core._queues._families
    assert core.wake() is None


def test_a_published_act_is_not_repeated_at_once() -> None:
    table = SteppedVariants().offer("a").workload()
    assert table.ordered_now() == ["submitted j-variant-a"]
    table.status("j", a_condition("QuotaReserved", False, "Other"))
    assert table.ordered_now() == []
    assert table.families.pending == 1
