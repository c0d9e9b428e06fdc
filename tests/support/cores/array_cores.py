"""Arrays in cores: a queue ``q``, an array-controller or two, and an array as a line of letters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from admittance.api.workload import NO_RESULT, ArrayStatus
from admittance.arrays.controller_core import ArrayControllerCore
from admittance.events import facts
from admittance.events.base import Fact
from admittance.workload.conditions import gated_by
from admittance.workload.phase import Phase
from support.builders import a_manifest, resource_groups
from support.cores.stepped_cores import SteppedCores


class ArrayCores(SteppedCores):
    """``cpu``: the quota of the queue. ``published_acts``: every fact of the array-controller."""

    def __init__(self, cpu: int = 100) -> None:
        super().__init__()
        self.queue("q", resourceGroups=resource_groups({"default": cpu}))
        self.published_acts: list[Fact] = []

    def array(self, name: str = "a", indexes: str = "0-4", **array: Any) -> None:
        """Submits an array."""
        self.submit(name, "q", array={"indexes": indexes, **array})

    def control(self, rounds: int = 20) -> None:
        """Lets the array-controller publish acts until none is left."""
        for _ in range(rounds):
            orders = self.array_orders()
            if not orders:
                return
            self.published_acts += orders
            self.apply_facts(*orders)
        raise AssertionError(f"it does not come to rest: {orders}")

    def run(self, *, finish: Iterable[str] = (), fail: Iterable[str] = ()) -> None:
        """Ends jobs, lets the array-controller act, then the scheduler, then the former again."""
        for names, succeeded in ((finish, True), (fail, False)):
            for name in names:
                self.publish(facts.Finished, name, succeeded=succeeded)
        self.control()
        self.settle()
        self.control()

    def restart_controller(self) -> None:
        """A new leader of the array-controller reads the bucket."""
        self.arrays = ArrayControllerCore(coalesce=timedelta(0))
        for key, known in list(self.controller.workloads.items()):
            self.arrays.apply(key, known.workload, known.revision, self.now)
        for key, entry in self.kept.items():
            if key.startswith("workload."):
                _, namespace, name = key.split(".")
                stored = self.stored_workload(namespace, name)
                self.arrays.apply(key, stored, entry.revision, self.now)

    # Looking. -------------------------------------------------------------------------------

    def counts(self, name: str = "a") -> ArrayStatus:
        """The counts of an array."""
        counts = self.stored(name).status.array
        assert counts is not None
        return counts

    def line(self, name: str = "a", size: int = 5) -> str:
        """A letter for each element: its result as stored in the array, else ``-`` for none, ``g``
        gated, ``p`` pending, ``r`` with quota, ``x`` stopped."""
        letters = []
        for index, result in enumerate(self.counts(name).results[:size]):
            element = f"{name}-{index}"
            if result != NO_RESULT:
                letters.append(result)
            elif not self.has(element):
                letters.append("-")
            elif gated_by(self.stored(element)):
                letters.append("g")
            else:
                letters.append(_LETTERS.get(self.phase(element), "r"))
        return "".join(letters)

    def names(self) -> list[str]:
        """The names of all workloads."""
        entries = (entry for entry in self.entries() if entry.value is not None)
        return [entry.key.split(".")[2] for entry in entries if entry.key.startswith("workload.")]


_LETTERS = {Phase.PENDING: "p", Phase.DEACTIVATED: "x", Phase.FINISHED: "f"}


def array_manifest(name: str, indexes: str, **array: Any) -> dict[str, Any]:
    """The manifest of an array."""
    return a_manifest(name, queue="q", array={"indexes": indexes, **array})
