"""A system in memory of which a forecast process follows every write, played with given run times
by the scheduler and by the forecast."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from math import inf
from typing import Any

from admittance.forecast.play import play
from admittance.forecast.rows import Waiting
from admittance.forecast.tracked import Tracked
from admittance.scheduling.state.config import Config
from admittance.workload.bucket_reader import names_of
from admittance.workload.stored import StoredWorkload
from support.builders import NOON
from support.cores.families.family_scheduler import FamilyScheduler
from support.cores.stepped_scheduler import SteppedScheduler


class Followed(SteppedScheduler):
    """Adds the state of a forecast process, ``tracked``."""

    def __init__(self, config: Config | None = None) -> None:
        self.tracked = Tracked(config or Config(), NOON.timestamp() - 3600)
        super().__init__(config)

    def put(self, kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any) -> None:
        super().put(kind, name, spec, namespace, **more)
        known = self.object_at(kind, name, namespace)
        assert known is not None
        self.tracked.apply_object(kind, namespace, name, known.object, known.revision)

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        super().saw(key, before, after)
        self.tracked.apply_workload(names_of(key), after, self.revision, self.now)

    def forecast_starts(
        self, domain: str, seconds: Mapping[str, float], left: Mapping[str, float]
    ) -> dict[str, float]:
        """When the waiting workloads start in a play in which they run for so many ``seconds``, and
        what holds quota for ``left``; in seconds from now."""
        rows = self.tracked.rows(domain)
        assert rows is not None
        now = self.now.timestamp()

        def run_time(job: Waiting) -> float:
            return seconds[job.key[1]]

        ends = [(now + left.get(held.key[1], inf), held) for held in rows.holding]
        found = play(rows.queues, rows.waiting, ends, run_time, now, strategies=rows.strategies)
        return {name: at - now for (_, name), at in found.items()}

    def true_starts(
        self, seconds: Mapping[str, float], left: Mapping[str, float]
    ) -> dict[str, float]:
        """When the scheduler gives quota to waiting workloads, with the same run times: the first
        start of each, in seconds from now. Changes the system."""
        begin = self.now
        ends = {name: begin + timedelta(seconds=for_) for name, for_ in left.items()}
        starts: dict[str, float] = {}
        while True:
            while self.core.has_work():
                names = self.cycle()
                for other in self.preempted:
                    ends.pop(other.name, None)
                for decision in self.decided:
                    for giver in decision.preempts:
                        ends.pop(giver.name, None)
                for name in names:
                    starts.setdefault(name, (self.now - begin).total_seconds())
                    ends[name] = self.now + timedelta(seconds=seconds[name])
            if not ends:
                return starts
            name = min(ends, key=lambda each: (ends[each], each))
            self.now = max(self.now, ends.pop(name))
            self.core.wake(now=self.now)
            self.finish(name)


class FollowedScheduler(Followed):
    """A followed system of regular workloads."""

    def run(self, name: str, seconds: float, command: tuple[str, ...] = ()) -> None:
        """Submits a workload, which gets quota at once and ends after so many seconds."""
        pod = {"containers": [{"command": command, "resources": {"requests": {"cpu": "1"}}}]}
        self.submit(name, "a", pod=pod)
        assert self.settle() == [name]
        self.now += timedelta(seconds=seconds)
        self.finish(name)


class FollowedFamilies(Followed, FamilyScheduler):
    """A followed system with families."""
