"""``python -m admittance.workload.diagram`` writes docs/states.md: the states of a workload and its
transitions, as the table of moves has them. A test keeps it true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from admittance.workload.families.ways import STEPS
from admittance.workload.phase import Phase
from admittance.workload.transitions import MOVES, TRANSITIONS

PAGE: Final = Path(__file__).parents[3] / "docs" / "states.md"

HEAD: Final = """# The states of a workload

Made by `python -m admittance.workload.diagram` from the table of moves
(`libs/admittance/workload/transitions.py`) and the transitions' names (`ways.py`). Do not edit.

The phase is derived from conditions (`phase.py`) and never stored. Every edge below is a way that a
move may take; tests explore the machine and make sure that it takes no other. An eviction has two
phases: while the job stops the workload is Evicting and its quota stays booked.
"""

TABLE: Final = """
## Transitions

What becomes of `status.admission`, of the rows in `status.admissionChecks`, and of
`status.requeueState`. A cycle is what a verdict names; it moves whenever rows are reset.

| id | from → to | heard | what | admission | checks | requeueState |
| --- | --- | --- | --- | --- | --- | --- |
"""

FAMILIES: Final = """
## Families

A parent and its variants take the ways above, but no check is asked about a parent, no runner hears
of a variant, and quota is booked for variants only. Beside them each takes the steps below
(`families/ways.py`): several of them, of several members, are one commit.

| id | who | from → to | heard | what |
| --- | --- | --- | --- | --- |
"""

FACTS: Final = """
## Facts, phase by phase

What is not in this table changes nothing and is answered with why.

| heard | acted on in |
| --- | --- |
"""


def edges() -> dict[tuple[Phase | None, Phase | None], list[str]]:
    """Every change of phase, with the ids of the transitions that make it. None: not there."""
    found: dict[tuple[Phase | None, Phase | None], set[str]] = {
        (None, Phase.PENDING): {"T01"},
        (None, Phase.DEACTIVATED): {"T01"},
    }
    for (where, _), legal in MOVES.items():
        for way in legal.ways:
            found.setdefault((where, way.to), set()).add(way.id)
    return {edge: sorted(ids, key=_order) for edge, ids in found.items()}


def _order(id: str) -> tuple[int, str]:
    digits = "".join(c for c in id if c.isdigit())
    return (int(digits) if id.startswith("T") else 0, id)


def page() -> str:
    """The whole page."""
    parts = (HEAD, *_diagram(), TABLE, *_transitions(), FAMILIES, *_families(), FACTS, *_facts())
    return "".join(parts)


def _diagram() -> Iterator[str]:
    yield "\n```mermaid\nstateDiagram-v2\n"
    rank = {phase: at for at, phase in enumerate(Phase)}
    for (before, after), ids in sorted(
        edges().items(), key=lambda one: [rank.get(phase, -1) for phase in one[0] if phase] or [0]
    ):
        if before is not after:
            yield f"  {before or '[*]'} --> {after or '[*]'}: {', '.join(ids)}\n"
    yield "```\n"


def _transitions() -> Iterator[str]:
    for id, told in TRANSITIONS.items():
        where: dict[str, list[Phase]] = {}
        heard: dict[str, None] = {}
        for (before, fact), legal in MOVES.items():
            for way in legal.ways:
                if way.id == id:
                    heard[fact.__name__] = None
                    to = "stays" if way.to is before else str(way.to or "gone")
                    if before not in where.setdefault(to, []):
                        where[to].append(before)
        path = "<br>".join(f"{', '.join(before)} → {to}" for to, before in where.items())
        cells = (
            id,
            path or "new → Pending, Deactivated",
            ", ".join(heard) or "Submitted",
            told.what,
            told.admission,
            told.checks,
            told.requeue_state,
        )
        yield f"| {' | '.join(cells)} |\n"


def _families() -> Iterator[str]:
    for step in STEPS:
        to = (
            step.to
            if isinstance(step.to, str)
            else ", ".join(str(one or "gone") for one in step.to)
        )
        heard = step.heard or "of another"
        cells = step.id, step.role, f"{', '.join(step.before)} → {to}", heard, step.what
        yield f"| {' | '.join(cells)} |\n"


def _facts() -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for (where, fact), legal in MOVES.items():
        if legal.ways:
            found.setdefault(fact.__name__, []).append(where)
    for name, phases in found.items():
        yield f"| {name} | {', '.join(phases)} |\n"


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
