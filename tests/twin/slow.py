"""A play in which an evicted workload stops later and holds its quota meanwhile."""

from __future__ import annotations

from zlib import crc32

from twin.cycle import Entry
from twin.play import IDLE, Play

CYCLES = 120
Going = tuple[int, str, str, str]
"""The cycle in which a victim stops; the victim, the reason, the preemptor."""


def gone_in(name: str, cycle: int) -> int:
    """The cycle by which a victim of this cycle has stopped."""
    return cycle + 1 + crc32(f"{name}{cycle}".encode()) % 4


class SlowPlay(Play):
    """``going``: evicted workloads that still run."""

    def settle(self, most: int = CYCLES) -> None:
        """Runs at most ``most`` cycles, or until nothing changes; at the end every victim has
        stopped."""
        self.going: list[Going] = []
        self.cycles = idle = 0
        while self.cycles < most:
            left = self.let_go(self.cycles)
            tree = self.tree()
            competes = any(self.lines[name].active for name in tree.queue)
            if (not competes or idle >= IDLE) and not self.going:
                self.cycles -= idle
                break
            self.now += 1
            self.cycles += 1
            if not competes:
                continue
            before = self.picture()
            self.number += 1
            acted = self.carry_out(self.cycle(tree))
            idle = 0 if acted or left or self.picture() != before else idle + 1
        self.let_go(self.cycles + most)

    def let_go(self, cycle: int) -> bool:
        """Releases the quota of stopped victims, and returns whether there were any."""
        due = sorted(pair for pair in self.going if pair[0] <= cycle)
        for victim in due:
            self.going.remove(victim)
            _, name, reason, by = victim
            if self.jobs[name].admission is not None:
                self.evict(self.jobs[name], reason, by)
        return bool(due)

    def carry_out(self, dealt: list[Entry]) -> bool:
        """Reserves quota for the decided entries at once, and evicts victims that still run."""
        acted = False
        for entry in dealt:
            if entry.status == "assumed":
                self.reserve(entry)
                acted = True
        for entry in dealt:
            for victim in entry.victims if entry.status == "preempting" else []:
                job = victim.job
                if not job.leaving:
                    assert job.admission is not None
                    job.leaving = acted = True
                    due = gone_in(job.name, self.cycles)
                    self.going.append((due, job.name, victim.reason, entry.job.name))
                    self.generations[job.admission.queue] += 1
        return acted
