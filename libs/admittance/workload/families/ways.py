"""What parents and variants do beside the table of moves: steps that one member takes because of
another, or because policy wants it so. Several steps may be in one commit. docs/states.md shows
them, and tests hold what families do against them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.workload.phase import Phase
from admittance.workload.roles import PARENT, VARIANT

Edge = tuple[Phase, Phase | None]


class Step(NamedTuple):
    """``id``: of LIFECYCLE, a transition or a section. ``to`` "stays": the phase it was in; None:
    it is gone. ``heard``: the fact about itself; "": it follows from what became of another."""

    id: str
    role: str
    before: tuple[Phase, ...]
    to: tuple[Phase | None, ...] | str
    what: str
    heard: str = ""

    def edges(self) -> set[Edge]:
        """Every change of phase that it may be."""
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
    Step("4.5", PARENT, (_P,), (_A,), "one of its variants is admitted, first or after a swap"),
    Step("4.10", PARENT, _JOB, (_E,), "its admitted variant is evicted, or is not there"),
    Step("4.7", PARENT, (_B,), (_P,), "its job has stopped: only its pods' backoff holds it back"),
    Step("1.3", PARENT, (_P,), (_B,), "each of its variants waits for a time"),
    Step("1.3", PARENT, (_B,), (_P,), "one of its variants competes again"),
    Step("4.7", PARENT, (*_WAITS, *_OFF, _E), _STAYS, "it starts over, as if it were new"),
    Step("T11", PARENT, (*_WAITS, *_JOB, _E), (_X,), "checks have rejected every variant"),
    Step("4.9", PARENT, (_P, _B, _D, _X), _STAYS, "its queue has no families: it is regular"),
    Step("4.9", PARENT, (_B,), (_P,), "the same, and only its variants waited"),
    Step("4.10", PARENT, (*_UNFINISHED, _F), _STAYS, "it tells of its variants"),
    Step("4.8", PARENT, (_P, *_JOB), _STAYS, "it notes whose gate on preemption is open"),
    Step("4.10", PARENT, _UNFINISHED, _STAYS, "it is asked to tell of them", "Aggregated"),
    Step("4.3", PARENT, _UNFINISHED, _STAYS, "time lets others try, or no longer", "TimerDue"),
    Step("T24", VARIANT, _JOB, (_E,), "a better one is about to be admitted"),
    Step("4.6", VARIANT, (_P,), _STAYS, "it is promised what the job leaves behind", "Assigned"),
    Step("4.6", VARIANT, (_QR,), _STAYS, "it takes over when the job has stopped", "Confirmed"),
    Step("4.6", VARIANT, (_P, _QR), (_A,), "the job has stopped, and it takes over"),
    Step("4.6", VARIANT, (_P, _B, _D, _X), _STAYS, "its promise ends"),
    Step("T09", VARIANT, (_P,), _STAYS, "there is too little left for its promise", "Revoked"),
    Step("4.7", VARIANT, _JOB, (_E,), "what took its parent takes it, too"),
    Step("T19", VARIANT, (_E,), (_P, _B, None), "the job of its family has stopped"),
    Step("T19", VARIANT, _OFF, (None,), "the same, and it was deleted meanwhile"),
    Step("T19", VARIANT, _OFF, _STAYS, "the same, and it was turned off meanwhile"),
    Step("4.7", VARIANT, (_QR, _B), (_P,), "its family starts over"),
    Step("4.7", VARIANT, (_P, _B, *_OFF), _STAYS, "the same"),
    Step("4.3", VARIANT, (*_WAITS, _QR, _E), (_D,), "policy does not want it"),
    Step("4.3", VARIANT, _OFF, (_P, _E), "policy wants it"),
    Step("4.3", VARIANT, _OFF, _STAYS, "its user stops it for good", "Deactivated"),
    Step("4.3", VARIANT, _OFF, _STAYS, "its user lets policy decide", "Activated"),
    Step("4.8", VARIANT, (_P, _QR), _STAYS, "its gate on preemption is opened", "Ungated"),
    Step("4.9", VARIANT, _UNFINISHED, _STAYS, "its place or its flavors are others"),
    Step("T09", VARIANT, (_QR,), (_P,), "it holds a flavor that it may no longer have"),
    Step("T09", VARIANT, _JOB, (_E,), "it runs on a flavor that it may no longer have"),
    Step("T29", VARIANT, _UNFINISHED, _STAYS, "its parent's priority changed"),
    Step("T25", VARIANT, _JOB, (_A, _R), "its parent's pods are ready, or not"),
    Step("T26", VARIANT, _UNFINISHED, (_F,), "its parent has finished"),
    Step("T27", VARIANT, _UNFINISHED, (None,), "its parent is gone, or is regular"),
)
