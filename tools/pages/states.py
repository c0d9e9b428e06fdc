"""``python -m tools.pages.states`` writes docs/states.md: the states of a workload and its
transitions, from the table of moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from admittance.workload.phase import Phase
from admittance.workload.stored import PARENT, VARIANT
from admittance.workload.transitions import MOVES, TRANSITIONS

PAGE: Final = Path(__file__).parents[2] / "docs" / "states.md"

HEAD: Final = """# The states of a workload

Made by `python -m tools.pages.states` from the table of moves
(`libs/admittance/workload/transitions.py`) and the family steps (`tools/pages/states.py`).
Do not edit.

The phase of a workload is derived from its conditions (`phase.py`) and never stored. Every edge in
this diagram is a possible result of a move; tests explore the state machine and check that no other
edge occurs. An eviction has two phases: while the job stops, the workload is Evicting and its quota
stays booked; then the workload is in the phase to which the edge from Evicting leads.
"""

TABLE: Final = """
## Transitions

The table says what each transition does to `status.admission`, to the rows in
`status.admissionChecks`, and to `status.requeueState` of the workload. Each verdict of a check
names the cycle of its request; a reset of the rows begins the next cycle.

| id | from → to | fact | what | admission | checks | requeueState |
| --- | --- | --- | --- | --- | --- | --- |
"""

FAMILIES: Final = """
## Families

A parent and its variants take the transitions of the table above, but no check is requested for a
parent, runners get no messages about variants, and quota is booked for variants only. Parents and
variants also take the steps in this table (`tools/pages/states.py`). Steps of several members of a
family can be one commit.

| id | role | from → to | fact | what |
| --- | --- | --- | --- | --- |
"""

FACTS: Final = """
## Facts, phase by phase

The table names the phases in which a fact changes a workload. In all other phases the fact changes
nothing, and its outcome says why.

| fact | acted on in |
| --- | --- |
"""


def edges() -> dict[tuple[Phase | None, Phase | None], list[str]]:
    """Every change of phase, with the ids of its transitions. None: the workload does not exist."""
    causes: dict[tuple[Phase | None, Phase | None], set[str]] = {
        (None, Phase.PENDING): {"T01"},
        (None, Phase.DEACTIVATED): {"T01"},
    }
    for (where, _), legal in MOVES.items():
        for way in legal.ways:
            causes.setdefault((where, way.to), set()).add(way.id)
    return {edge: sorted(ids, key=_order) for edge, ids in causes.items()}


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
        edges().items(), key=lambda edge: [rank.get(phase, -1) for phase in edge[0] if phase] or [0]
    ):
        if before is not after:
            yield f"  {before or '[*]'} --> {after or '[*]'}: {', '.join(ids)}\n"
    yield "```\n"


def _transitions() -> Iterator[str]:
    for id, told in TRANSITIONS.items():
        where: dict[str, list[Phase]] = {}
        fact_names: dict[str, None] = {}
        for (before, fact), legal in MOVES.items():
            for way in legal.ways:
                if way.id == id:
                    fact_names[fact.__name__] = None
                    to = "stays" if way.to is before else str(way.to or "gone")
                    if before not in where.setdefault(to, []):
                        where[to].append(before)
        path = "<br>".join(f"{', '.join(before)} → {to}" for to, before in where.items())
        cells = (
            id,
            path or "new → Pending, Deactivated",
            ", ".join(fact_names) or "Submitted",
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
            else ", ".join(str(phase or "gone") for phase in step.to)
        )
        fact = step.fact or "of another"
        cells = step.id, step.role, f"{', '.join(step.before)} → {to}", fact, step.what
        yield f"| {' | '.join(cells)} |\n"


def _facts() -> Iterator[str]:
    causes: dict[str, list[str]] = {}
    for (where, fact), legal in MOVES.items():
        if legal.ways:
            causes.setdefault(fact.__name__, []).append(where)
    for name, phases in causes.items():
        yield f"| {name} | {', '.join(phases)} |\n"


Edge = tuple[Phase, Phase | None]


class Step(NamedTuple):
    """A step that one member of a family takes because of another member or of policy.

    ``id``: transition or section of docs/spec/lifecycle.md. ``to`` "stays": the same phase; None:
    deleted. ``fact``: the fact about the member itself; "": the step follows from another member's
    change."""

    id: str
    role: str
    before: tuple[Phase, ...]
    to: tuple[Phase | None, ...] | str
    what: str
    fact: str = ""

    def edges(self) -> set[Edge]:
        """Every change of phase that the step can make."""
        if isinstance(self.to, str):
            return {(before, before) for before in self.before}
        return {(before, after) for before in self.before for after in self.to}


_P, _B, _QR, _A, _R, _E, _D, _X, _F = Phase
_JOB: Final = (_A, _R)
_WAITS: Final = (_P, _B)
_OFF: Final = (_D, _X)
_UNFINISHED: Final = (*_WAITS, _QR, *_JOB, _E, *_OFF)
_STAYS: Final = "stays"

STEPS: Final = (
    Step(
        "4.5", PARENT, (_P,), (_A,), "one of its variants is admitted, first or after a migration"
    ),
    Step("4.10", PARENT, _JOB, (_E,), "its admitted variant is evicted or deleted"),
    Step("4.7", PARENT, (_B,), (_P,), "its job has stopped, and it has no backoff for its pods"),
    Step("1.3", PARENT, (_P,), (_B,), "each of its variants waits for a time"),
    Step("1.3", PARENT, (_B,), (_P,), "one of its variants competes again"),
    Step("4.7", PARENT, (*_WAITS, *_OFF, _E), _STAYS, "the family is reset"),
    Step("T11", PARENT, (*_WAITS, *_JOB, _E), (_X,), "checks have rejected every variant"),
    Step("4.9", PARENT, (_P, _B, _D, _X), _STAYS, "its queue has no families: it becomes regular"),
    Step("4.9", PARENT, (_B,), (_P,), "the same, and only its variants waited"),
    Step("4.10", PARENT, (*_UNFINISHED, _F), _STAYS, "its rows of variants are updated"),
    Step(
        "4.8", PARENT, (_P, *_JOB), _STAYS, "it stores which variant has the open preemption gate"
    ),
    Step("4.10", PARENT, _UNFINISHED, _STAYS, "an update of its rows is requested", "Aggregated"),
    Step(
        "4.3",
        PARENT,
        _UNFINISHED,
        _STAYS,
        "time changes the desired state of a variant",
        "TimerDue",
    ),
    Step("T24", VARIANT, _JOB, (_E,), "a better variant is about to be admitted"),
    Step("4.6", VARIANT, (_P,), _STAYS, "it is promised the quota of the stopping job", "Assigned"),
    Step(
        "4.6",
        VARIANT,
        (_QR,),
        _STAYS,
        "its checks are ready; it is admitted when the job has stopped",
        "Confirmed",
    ),
    Step("4.6", VARIANT, (_P, _QR), (_A,), "the job has stopped, and it is admitted"),
    Step("4.6", VARIANT, (_P, _B, _D, _X), _STAYS, "its promise ends"),
    Step(
        "T09", VARIANT, (_P,), _STAYS, "the quota for its promise is no longer available", "Revoked"
    ),
    Step("4.7", VARIANT, _JOB, (_E,), "its parent is evicted"),
    Step("T19", VARIANT, (_E,), (_P, _B, None), "the job of its family has stopped"),
    Step("T19", VARIANT, _OFF, (None,), "the same, and it was deleted meanwhile"),
    Step("T19", VARIANT, _OFF, _STAYS, "the same, and it was turned off meanwhile"),
    Step("4.7", VARIANT, (_QR, _B), (_P,), "its family is reset"),
    Step("4.7", VARIANT, (_P, _B, *_OFF), _STAYS, "the same"),
    Step("4.3", VARIANT, (*_WAITS, _QR, _E), (_D,), "policy deactivates it"),
    Step("4.3", VARIANT, _OFF, (_P, _E), "policy activates it"),
    Step("4.3", VARIANT, _OFF, _STAYS, "its user deactivates it", "Deactivated"),
    Step("4.3", VARIANT, _OFF, _STAYS, "its user leaves it to policy", "Activated"),
    Step("4.8", VARIANT, (_P, _QR), _STAYS, "its preemption gate is opened", "Ungated"),
    Step("4.9", VARIANT, _UNFINISHED, _STAYS, "its place or its flavors changed"),
    Step("T09", VARIANT, (_QR,), (_P,), "it holds a flavor that it may no longer use"),
    Step("T09", VARIANT, _JOB, (_E,), "it runs on a flavor that it may no longer use"),
    Step("T29", VARIANT, _UNFINISHED, _STAYS, "its parent's priority changed"),
    Step("T25", VARIANT, _JOB, (_A, _R), "its parent's pods are ready, or not"),
    Step("T26", VARIANT, _UNFINISHED, (_F,), "its parent has finished"),
    Step("T27", VARIANT, _UNFINISHED, (None,), "its parent is deleted or became regular"),
)


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
