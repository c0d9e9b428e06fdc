"""docs/states.md is made from the table of moves, and shows what it has."""

from __future__ import annotations

from tools.pages.states import PAGE, edges, page

from admittance.workload.phase import Phase
from admittance.workload.transitions import MOVES, TRANSITIONS


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run python -m tools.pages.states"


def test_every_transition_has_a_row_and_every_row_a_transition() -> None:
    used = {way.id for legal in MOVES.values() for way in legal.ways}
    assert used | {"T01"} == set(TRANSITIONS)


def test_every_phase_but_finished_has_a_transition_out() -> None:
    for phase in Phase:
        left = {after for before, after in edges() if before is phase and after is not phase}
        assert left - ({None} if phase is not Phase.FINISHED else set()), phase
