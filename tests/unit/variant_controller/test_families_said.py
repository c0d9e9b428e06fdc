"""What was said is not said again while it is on its way, and is not forgotten either."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from admittance.variants.core import AGAIN, BEHIND_MAX, PATIENCE, PATIENCE_MAX, Families
from admittance.workload.stored import LogPosition
from family_table import NS, FamilyTable, a_family, condition

from builders import NOON


def test_what_is_on_its_way_is_not_said_again() -> None:
    table = FamilyTable().offer("a").workload()
    assert table.orders() == ["submitted j-variant-a"]
    table.status("j", condition("QuotaReserved", False, "Other"))
    assert table.orders() == []
    assert table.core.pending == 1


def test_what_had_no_effect_is_said_again_ever_less_often() -> None:
    table = FamilyTable().offer("a").workload()
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


def test_what_the_writer_has_not_come_to_is_not_said_again_before_it_has() -> None:
    table = FamilyTable().offer("a").workload()
    table.orders()
    table.core.stated(table.log[0], 70)
    table.later(PATIENCE.total_seconds())
    table.status("j", log=LogPosition(fact=69))  # it writes, and is behind
    assert table.orders() == []
    table.later(PATIENCE.total_seconds())
    table.status("j", log=LogPosition(fact=70))
    assert table.orders() == ["submitted j-variant-a"]


def test_a_writer_that_goes_on_may_take_as_long_as_it_likes() -> None:
    table = FamilyTable().offer("a").workload()
    table.orders()
    table.core.stated(table.log[0], 7000)
    for step in range(100):
        assert table.later(PATIENCE.total_seconds() / 2).orders() == []
        table.status("j", log=LogPosition(fact=step + 1))
    assert table.later(PATIENCE.total_seconds() / 2).orders() == []
    assert table.later(PATIENCE.total_seconds()).orders() == ["submitted j-variant-a"]


def test_what_the_writer_never_comes_to_is_said_again_all_the_same() -> None:
    table = FamilyTable().offer("a").workload()
    table.orders()
    table.core.stated(table.log[0], 70)
    assert table.later(BEHIND_MAX.total_seconds() - 1).orders() == []
    assert table.core.wake() == NOON + BEHIND_MAX
    assert table.later(1).orders() == ["submitted j-variant-a"]


def test_what_could_not_be_said_is_said_a_little_later() -> None:
    table = FamilyTable().offer("a").workload()
    table.orders()
    table.core.failed(table.log.pop(), table.now)
    assert table.orders() == []
    assert table.core.wake() == NOON + AGAIN
    table.now += AGAIN
    assert table.orders() == ["submitted j-variant-a"]


def test_what_is_wanted_anew_is_said_at_once() -> None:
    table = a_family("a", "b")
    table.admit("a").follow()
    table.spec("j-variant-b", active=True)
    assert table.orders()[:1] == ["deactivated j-variant-b lowerThanAdmitted"]
    table.spec("j-variant-b", active=False).orders()
    table.spec("j-variant-b", active=True)
    assert table.orders()[:1] == ["deactivated j-variant-b lowerThanAdmitted"]


def test_a_namesake_is_told_on_its_own_account() -> None:
    table = a_family("a")
    table.put("j", None)
    assert table.orders() == ["deleted j-variant-a"]
    table.meta("j-variant-a", uid="another")
    assert table.orders() == ["deleted j-variant-a"]


def test_a_clock_that_is_set_back_keeps_nobody_waiting_for_long() -> None:
    table = FamilyTable().offer("a").workload()
    table.orders()
    table.now -= timedelta(hours=1)
    table.status("j", condition("QuotaReserved", False, "Other"))
    assert table.orders() == ["submitted j-variant-a"]


def test_rows_that_are_written_otherwise_are_not_asked_for_without_end() -> None:
    table = a_family("a")
    table.later(1).status("j-variant-a", condition("QuotaReserved", False, "WaitingForQuota"))
    said = 0
    for _ in range(100):
        said += len(table.orders())
        # Whoever writes the parent makes no rows of it.
        table.log.clear()
        table.status("j", condition("Admitted", False, f"Write{table.revision}"))
        table.later(0.2)
    assert said <= 4


def test_a_crowd_is_taken_in_parts_and_no_family_is_torn_apart() -> None:
    table = FamilyTable().offer("a", "b", "c")
    for number in range(50):
        table.workload(f"j{number}")
    sizes = []
    while found := table.core.orders(table.now, 20):
        sizes.append(len(found))
    assert sum(sizes) == 150
    assert all(size == 21 for size in sizes[:-1])


def test_what_moves_nobody_is_not_looked_at() -> None:
    table = FamilyTable().offer("a", "b")
    for number in range(200):
        table.workload(f"j{number}")
    table.follow()
    looked: list[str] = []
    acts_of = Families._acts_of

    class Counting(Families):
        def _acts_of(self, family, now):  # type: ignore[no-untyped-def]
            looked.append(family.name.name)
            return acts_of(self, family, now)

    table.core.__class__ = Counting
    table.workload("regular", role="regular").offer("a", "b", quota=99)
    table.status("j7-variant-a", condition("QuotaReserved", False, "WaitingForQuota"))
    table.orders()
    assert looked == ["j7"]


def test_who_takes_over_goes_on_from_what_is_stored() -> None:
    table = FamilyTable().offer("a", "b", "c").workload()
    table.orders()
    table.obey(table.log[0])
    after = FamilyTable().offer("a", "b", "c")
    for revision, (name, one) in enumerate(table.stored.items(), 1):
        after.core.apply(f"workload.{NS}.{name}", one, revision, after.now)
    assert after.orders() == [
        "submitted j-variant-b",
        "submitted j-variant-c",
        "aggregated j",
    ]


def test_a_parent_that_became_a_regular_workload_is_a_parent_no_more() -> None:
    table = a_family("a")
    table.core.regular("workload.ns.j")
    assert table.orders() == ["deleted j-variant-a"]
    assert len(table.core) == 0
    table.workload("k")
    table.core.regular("workload.ns.k-variant-a")
    assert table.orders()[0].startswith("submitted k-variant-a-")


def test_a_parent_that_nobody_can_read_keeps_no_other_from_what_it_lacks() -> None:
    table = FamilyTable().offer("a").workload("strange", frobs=1).workload()
    assert table.orders() == ["submitted j-variant-a"]
    assert list(table.core.unreadable) == [(NS, "strange")]
    table.put("strange", None).orders()
    assert not table.core.unreadable


def test_nothing_is_kept_of_a_family_that_is_gone() -> None:
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
