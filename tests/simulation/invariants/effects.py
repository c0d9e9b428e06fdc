"""A fact that is acknowledged has had its effect, and what does not count changed nothing.

Each version of a workload names the last fact that it holds. So when the log is acknowledged up to
a point, of every fact before that point it is known which version it met; whether it counted then
is asked of `fact_rules`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Any, Final, NamedTuple

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import Undecodable, decode
from admittance.events.subjects import INPUTS
from admittance.workload.stored import VARIANT, StoredWorkload, head
from simulation.invariants.fact_rules import Around, Counts, counts
from simulation.nats.observed import Stored
from simulation.transcript import Broken

HEADER_FACT: Final = "Admit-Fact"
_ABOUT: Final = frozenset(
    {"activated", "deactivated", "reprioritized", "deleted", "finished", "reported"}
)
_READ: Final = INPUTS | {"reported"}


class Version(NamedTuple):
    """A workload as it was from its ``fact`` on; None: it was gone."""

    fact: int
    workload: StoredWorkload | None


class Heard(NamedTuple):
    """``check``: that of a verdict, as it was when the verdict came; None: there was none."""

    sequence: int
    fact: Fact
    check: Any


class Effects:
    """Facts that are not acknowledged yet, and the versions of a workload to which they may
    apply."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._facts: dict[str, list[Heard]] = defaultdict(list)
        self._versions: dict[str, list[Version]] = defaultdict(list)
        self.verdicts: dict[str, dict[str, list[tuple[int, facts.CheckReported]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        """Verdicts on the log by key of the workload, and by name of the check."""
        self._read: dict[str, list[int]] = defaultdict(list)
        self._objects: list[int] = []
        self._timers: dict[str, list[int]] = defaultdict(list)

    def logged(self, stored: Stored) -> None:
        """Records a message on the log."""
        _, thing, what, *rest = stored.subject.split(".")
        if thing == "object":
            self._objects.append(stored.sequence)
            return
        if thing != "timer" and what not in _READ:
            return
        key = f"workload.{rest[-2]}.{rest[-1]}"
        self._read[key].append(stored.sequence)
        if thing == "timer":
            self._timers[key].append(stored.sequence)
        if thing != "timer" and what not in _ABOUT:
            return
        try:
            fact = decode(stored.subject, stored.data)
        except Undecodable:
            return
        check = None
        if isinstance(fact, facts.CheckReported):
            check = self._around.checks.get(fact.check)
            self.verdicts[key][fact.check].append((stored.sequence, fact))
        self._facts[key].append(Heard(stored.sequence, fact, check))

    def read(self, key: str, since: int, through: int) -> list[int]:
        """The sequences of what the workload-controller read about the workload after ``since``, up
        to ``through``."""
        verdicts = _between(self._read[key], since, through)
        return verdicts + _between(self._objects, since, through)

    def timed(self, key: str, since: int, through: int) -> list[int]:
        """The sequences of the workload's timers between the two sequences."""
        return _between(self._timers[key], since, through)

    def is_timed(self, key: str, before: StoredWorkload, after: StoredWorkload) -> bool:
        """Whether a timer alone led from one version to the other."""
        since, through = before.status.log.fact, after.status.log.fact
        timers = self.timed(key, since, through)
        return timers == [through] and self.read(key, since, through) == timers

    def stored(self, key: str, entry: Stored, workload: StoredWorkload | None) -> None:
        """Records a version of a workload. Raises Broken if the version's last fact should have had
        no effect on the version before."""
        if workload is not None:
            fact = workload.status.log.fact
        else:
            fact = int(entry.headers.get(HEADER_FACT, "0"))
        versions = self._versions[key]
        before = versions[-1].workload if versions else None
        since = versions[-1].fact if versions else 0
        versions.append(Version(fact, workload))
        if workload is None and before is not None and head(before).role == VARIANT:
            # Its queue no longer asks for it: it goes with the next fact about its family.
            return
        said = next(
            (said_fact for said_fact in self._facts.get(key, ()) if said_fact.sequence == fact),
            None,
        )
        if said is None or self.read(key, since, fact) != [fact]:
            return  # Another kind of fact, or several in one write.
        if self._counts(before, said) is Counts.NO:
            raise Broken(f"{key}: {_name(said.fact)} moved it, and does not count (2.5)")

    def acknowledged(self, through: int) -> None:
        """Checks and drops the facts up to ``through``, which the workload-controller has
        acknowledged."""
        for key, heard in list(self._facts.items()):
            if heard[0].sequence > through:
                continue
            versions = self._versions[key]
            for fact in heard:
                if fact.sequence > through:
                    break
                self._settle(key, fact, versions)
            left = [fact for fact in heard if fact.sequence > through]
            if left:
                self._facts[key] = left
            else:
                del self._facts[key]
            while len(versions) > 1 and versions[1].fact <= through:
                versions.pop(0)

    def _settle(self, key: str, heard: Heard, versions: list[Version]) -> None:
        met = Version(0, None)
        for version in versions:
            if version.fact >= heard.sequence:
                # What is stored holds it by now, alone or folded with what came after it. A write
                # that had to wait may also hold facts of the next batch.
                return
            met = version
        if self._counts(met.workload, heard) is Counts.YES:
            raise Broken(f"{key}: {_name(heard.fact)} counts, and had no effect")

    def _counts(self, met: StoredWorkload | None, heard: Heard) -> Counts:
        """Whether a fact counts. A verdict may do either if its check has changed since the verdict
        came, and it counts by one of the two only."""
        result = counts(met, heard.fact, self._around)
        if not isinstance(heard.fact, facts.CheckReported):
            return result
        name = heard.fact.check
        if self._around.checks.get(name) is heard.check:
            return result
        checks = {**self._around.checks, name: heard.check}
        then = counts(met, heard.fact, self._around._replace(checks=checks))
        return result if result is then else Counts.OPEN


def _between(sequences: list[int], since: int, through: int) -> list[int]:
    return sequences[bisect_right(sequences, since) : bisect_right(sequences, through)]


def _name(fact: Fact) -> str:
    if isinstance(fact, facts.CheckReported):
        return f"{fact.state} of {fact.check} for cycle {fact.cycle}"
    return type(fact).__name__


__all__ = ["Effects"]
