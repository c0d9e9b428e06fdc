"""The available quota near the limits of 64 bits: the fast function returns what the saturating
function returns."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from admittance.quota.cell import UNLIMITED, Quota, available, minus, plus
from admittance.quota.tree import Tree

CPU = ("default", "cpu")
amounts = st.one_of(
    st.integers(0, 10),
    st.integers(UNLIMITED // 4 - 5, UNLIMITED // 4 + 5),
    st.integers(UNLIMITED - 10, UNLIMITED),
)


@given(nominal=amounts, borrow=amounts, lend=st.none() | amounts, shared=amounts, used=amounts)
@example(nominal=0, borrow=UNLIMITED, lend=None, shared=UNLIMITED, used=10)
@example(nominal=5, borrow=UNLIMITED - 1, lend=None, shared=UNLIMITED, used=UNLIMITED)
def test_what_is_available_saturates(
    nominal: int, borrow: int, lend: int | None, shared: int, used: int
) -> None:
    tree = Tree()
    tree.set_cohort("team", "", {CPU: Quota(shared)})
    cell = tree.set_queue("cq", "team", {CPU: Quota(nominal, borrow, lend)}).cell(CPU)
    cell.charge(used)
    assert cell.parent is not None
    over = max(0, cell.usage - cell.guaranteed)
    limit = plus(minus(minus(cell.subtree, cell.guaranteed), over), borrow)
    free = max(0, cell.guaranteed - cell.usage)
    want = min(available(cell.parent), limit)
    assert available(cell) == (plus(free, want) if free else want)
