"""Mechanisms of placement and of jobs on machines, each taken out as in `mutations`."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from msgspec.structs import replace

from admittance.control.bookings import Bookings
from admittance.events.facts import Finished, Stopped, Submitted
from admittance.placement.search.ledger import Ledger, Shares
from admittance.runner.runs import fact_handlers
from admittance.runner.runs.start_gate import StartGate
from admittance.workload.change import Change
from admittance.workload.moves import parts
from admittance.workload.moves.parts import Collected, PartFact
from admittance.workload.stored import StoredWorkload
from simulation.hunting.mutations import Mutation, Patch
from simulation.nats.stream import Stream
from simulation.plots.catalog import placed
from simulation.plots.configuration import NAMESPACE
from simulation.plots.scenario import Scenario, UserFact

_book: Final = Ledger.book
_collect: Final = parts.collect


def _book_what_runs(
    self: Ledger, key: str, family: str, shares: Shares, *, revision: int = 0, **more: Any
) -> None:
    """Books no reservation, only what is admitted."""
    if revision:
        _book(self, key, family, shares, revision=revision, **more)


def _over_with_the_first(workload: StoredWorkload, fact: PartFact) -> Collected | Change:
    """The end of one part is that of the whole job."""
    collected = _collect(workload, fact)
    if isinstance(collected, Collected) and isinstance(fact, Stopped | Finished):
        return collected._replace(then=replace(fact, part=0))
    return collected


def _ended_by_hand(rng: Random) -> Scenario:
    """Users end all jobs early, and many of these go on for a while."""
    base = placed(rng)
    ends = [
        UserFact(said.at + 6.0, Finished(namespace=NAMESPACE, name=said.fact.name))
        for said in base.user_facts
        if isinstance(said.fact, Submitted)
    ]
    courses = base.courses._replace(lengths=(12.0, 30.0), ignores_stop=0.8)
    return base._replace(user_facts=[*base.user_facts, *ends], courses=courses)


PLACED_MUTATIONS: Final = {
    "a deposed placement would go on placing": Mutation(
        (Patch(Stream, "fences", False),), placed, "of epoch .* gives a verdict", 3
    ),
    "two reservations would get one device": Mutation(
        (
            Patch(Ledger, "book", _book_what_runs),
            # The workload-controller compares once more.
            Patch(Bookings, "overlap", lambda *_: ""),
        ),
        placed,
        "is assigned .* holds",
        2,
    ),
    "machines would count as free while jobs still end on them": Mutation(
        (Patch(Ledger, "set_runs", lambda *_: None),), _ended_by_hand, "cpu, and .* run on it", 19
    ),
    "a device would be given to a job while another still uses it": Mutation(
        (
            Patch(Ledger, "set_runs", lambda *_: None),
            Patch(StartGate, "_taken_device", lambda *_: ""),
        ),
        placed,
        "is used by .* and by",
        15,
    ),
    "a job would give up its machines with its first part": Mutation(
        (Patch(parts, "collect", _over_with_the_first),),
        placed,
        "gives up its quota, and .* runs on",
        6,
    ),
    "runners would start what is placed on others": Mutation(
        (Patch(fact_handlers, "is_for", lambda *_: True),), placed, "starts (on|as part) ", 0
    ),
}
"""By what would happen without the mechanism."""
