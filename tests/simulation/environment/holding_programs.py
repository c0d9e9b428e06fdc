"""Programs that hold quota themselves by a lease: they renew it, leave when they are evicted, end,
or die without a word. docs/spec/lifecycle.md#T32."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from admittance.events import facts
from admittance.workload import stored as workloads
from admittance.workload.conditions import Type, is_true
from simulation.environment.users import Publisher
from simulation.nats.observed import Stored
from simulation.plots.configuration import NAMESPACE
from simulation.virtual_time.kernel import Kernel

RENEWALS: Final = 3
"""How often a program renews its lease before it would end."""


class HoldingProgram(NamedTuple):
    """What the program of one workload does, in seconds. ``at``: when it submits the workload;
    ``lives``: how long it lives from then on; ``leaves``: how long it takes to leave after an
    eviction. ``dies``: it ends without a word."""

    lease: int
    at: float
    lives: float
    leaves: float
    dies: bool = False


class HoldingPrograms:
    """The programs of a story by the names of their workloads."""

    def __init__(
        self, kernel: Kernel, users: Publisher, programs: Mapping[str, HoldingProgram]
    ) -> None:
        self._kernel = kernel
        self._users = users
        self._programs = programs
        self._live: set[str] = set()
        self._leaving: set[str] = set()

    def begin(self) -> None:
        """Schedules the lives of all programs."""
        for name, program in self._programs.items():
            self._live.add(name)
            self._kernel.at(program.at + program.lease / RENEWALS, partial(self._renew, name))
            self._kernel.at(program.at + program.lives, partial(self._end, name))

    def stored(self, entry: Stored) -> None:
        """Looks at a write to the bucket: a program that is evicted leaves after a while."""
        prefix, _, rest = entry.subject.partition(".")
        name = rest.rpartition(".")[2]
        if prefix != "workload" or name not in self._live - self._leaving or entry.gone:
            return
        workload = workloads.decode(entry.data)
        if is_true(workload, Type.EVICTED) and is_true(workload, Type.ADMITTED):
            self._leaving.add(name)
            self._kernel.after(self._programs[name].leaves, partial(self._leave, name))

    def _renew(self, name: str) -> None:
        if name in self._live:
            self._say(facts.Renewed(namespace=NAMESPACE, name=name))
            lease = self._programs[name].lease
            self._kernel.after(lease / RENEWALS, partial(self._renew, name))

    def _leave(self, name: str) -> None:
        if name in self._live:
            self._say(facts.Deactivated(namespace=NAMESPACE, name=name))
            self._end(name)

    def _end(self, name: str) -> None:
        if name in self._live:
            self._live.discard(name)
            if not self._programs[name].dies:
                self._say(facts.Renewed(namespace=NAMESPACE, name=name, ended=True))

    def _say(self, fact: facts.Renewed | facts.Deactivated) -> None:
        self._users.say(fact, self._kernel.now)
