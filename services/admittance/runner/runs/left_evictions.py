"""The evictions that a runner leaves to the other runners that hold the job or are to hold it: of a
hundred runners, one or two answer. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.events.names import BadToken, plain
from admittance.events.reader import number
from admittance.events.shapes import EvictedJob
from admittance.runner.host.records import run_key
from admittance.runner.plans.devices import all_parts
from admittance.runner.runs.claims import Claim, ClaimState

LEFT_SECONDS: Final = 3.0
"""Seconds after which any runner answers for a part that no runner has claimed: the assigned runner
is gone."""
KEYS_MAX: Final = 2_000
"""The most claims of other runners that are kept in mind, and the most that are over, the newest: a
runner reads a claim that is not in its mind."""


class ClaimedRun(NamedTuple):
    """The job of one admission, or one part of it (0: the whole job), as a claim names it."""

    namespace: str
    name: str
    revision: int
    part: int = 0

    @classmethod
    def at(cls, key: str) -> ClaimedRun | None:
        """The job or the part with the claim at this key; None if the key is not that of a
        claim."""
        namespace, _, rest = key.partition(".")
        name, _, written = rest.partition(".")
        admission, dash, numbered = written.partition("-")
        revision, part = number(admission), number(numbered) if dash else 0
        if namespace == "_alive" or revision is None or part is None:
            return None
        try:
            return cls(plain(namespace), plain(name), revision, part)
        except BadToken:
            return None

    @property
    def key(self) -> str:
        """The key of the claim and of the run."""
        return run_key(*self)


class EvictedRun(NamedTuple):
    """A job, or a part of it, that an eviction ends. ``evicted``: the revision of the eviction."""

    of: ClaimedRun
    uid: str
    evicted: int


class LeftEvictions:
    """The evictions of parts without a run here, until their claims are over. ``runner``: the id of
    this runner. A claim of which the runner has not read the last change yet is no fault, since the
    runner reads the claim once more before it answers."""

    def __init__(self, runner: str) -> None:
        self._runner = runner
        self._held: dict[str, str] = {}
        """For each claim that another runner holds: which one."""
        self._over: dict[str, str] = {}
        """For each claim that is over: which runner has marked it."""
        self._left: dict[str, EvictedRun] = {}
        self._due: dict[str, float] = {}
        """For each part that no runner may answer for: when this runner does."""

    def claim_changed(self, key: str, claim: Claim, now: float) -> None:
        """Takes a claim over, in the order of its changes."""
        self._held.pop(key, None)
        if claim.state is ClaimState.OVER:
            _keep(self._over, key, claim.runner)
            if claim.runner == self._runner and key in self._due:
                # This runner has answered an earlier eviction, or ended before it had answered.
                self._due[key] = now
                return
            self._left.pop(key, None)
            self._due.pop(key, None)
        elif claim.state is ClaimState.HELD and claim.runner != self._runner:
            _keep(self._held, key, claim.runner)
            self._due.pop(key, None)
        elif claim.state is ClaimState.FREE and key in self._left:
            self._due[key] = now + LEFT_SECONDS

    def evicted(self, job: EvictedJob, eviction: EvictedRun, now: float) -> list[EvictedRun]:
        """Returns the parts of the job that this runner answers for now; leaves the others.
        ``eviction``: names the workload; the revision and the part of its run do not count."""
        if not job.revision:
            return []
        mine = []
        for part, runner in zip(
            all_parts(job.runners), job.runners or (self._runner,), strict=True
        ):
            run = eviction._replace(of=eviction.of._replace(revision=job.revision, part=part))
            key = run.of.key
            marked_by = self._over.get(key)
            if marked_by is not None:
                if marked_by == self._runner:
                    mine.append(run)
                continue
            self._left[key] = run
            self._due.pop(key, None)
            if key in self._held:
                continue
            if runner == self._runner:
                mine.append(run)
            else:
                self._due[key] = now + LEFT_SECONDS
        return mine

    def due(self, now: float) -> list[EvictedRun]:
        """The parts that this runner answers for now, since no other runner has done so. Each is
        returned once; it is returned again only if its claim is released."""
        keys = [key for key, at in self._due.items() if at <= now]
        for key in keys:
            del self._due[key]
        runs = [self._left[key] for key in keys]
        for key in self._over.keys() & keys:
            del self._left[key]
        return runs


def _keep(claims: dict[str, str], key: str, runner: str) -> None:
    claims.pop(key, None)
    claims[key] = runner
    if len(claims) > KEYS_MAX:
        del claims[next(iter(claims))]
