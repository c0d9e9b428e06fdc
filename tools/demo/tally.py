"""What happened to the workloads of the demo, and when."""

from __future__ import annotations

from statistics import fmean


class Tally:
    """Times are seconds since the demo began."""

    def __init__(self) -> None:
        self._expected: dict[str, None] = {}
        self._at: dict[str, dict[str, float]] = {}
        self.failed: set[str] = set()
        self.stopped: set[str] = set()
        """Preempted workloads."""
        self.places: dict[str, dict[str, float]] = {}
        """By workload: the flavors that it was admitted on, in order, with the time."""

    def expect(self, *names: str) -> None:
        """Adds workloads that will be submitted."""
        self._expected.update(dict.fromkeys(names))

    def record(self, what: str, name: str, since: float, reason: str = "") -> None:
        """Records the first fact of kind ``what`` about a workload."""
        self._at.setdefault(name, {}).setdefault(what, since)
        if what == "finished" and reason == "Failed":
            self.failed.add(name)
        lost = "revoked" in self._at[name]
        if what == "evicted" and reason not in ("AdmissionCheck", "VariantEvicted") and not lost:
            self.stopped.add(name)

    def expects(self, name: str) -> bool:
        """Whether the workload is expected."""
        return name in self._expected

    def at(self, name: str, place: str, since: float) -> None:
        """Records that the workload was admitted on these flavors."""
        self.places.setdefault(name, {}).setdefault(place, since)

    def place(self, name: str) -> str:
        """The flavors of its last admission; "" if none."""
        return next(reversed(self.places.get(name, {})), "")

    @property
    def open(self) -> list[str]:
        """Expected workloads that have not finished."""
        return [name for name in self._expected if "finished" not in self._at.get(name, {})]

    def has_fact(self, name: str, what: str) -> bool:
        """Whether the log had such a fact about the workload."""
        return what in self._at.get(name, {})

    def running(self, *names: str) -> int:
        """How many of these have been admitted and are not finished."""
        times = [self._at.get(name, {}) for name in names]
        return sum("admitted" in time and "finished" not in time for time in times)

    @property
    def all_finished(self) -> bool:
        """Whether all expected workloads finished and none failed."""
        return not self.open and not self.failed

    def summary(self) -> list[str]:
        """The run in a few lines."""
        waits = [
            times["admitted"] - times["submitted"]
            for times in self._at.values()
            if "admitted" in times and "submitted" in times
        ]
        waited = [name for name, times in self._at.items() if "refused" in times]
        lines = [
            f"{len(self._expected) - len(self.open)} of {len(self._expected)} workloads finished"
            + (f", {len(self.failed)} of them failed" if self.failed else "")
        ]
        if waits:
            lines.append(
                f"submitted to admitted: {1000 * min(waits):.0f} ms where quota was free, "
                f"{max(waits):.1f} s at the longest, {fmean(waits):.1f} s on average"
            )
        if waited:
            lines.append(f"{len(waited)} had to wait for quota: {', '.join(sorted(waited))}")
        if self.stopped:
            names = ", ".join(sorted(self.stopped))
            lines.append(f"{len(self.stopped)} made room and ran again: {names}")
        for name, times in sorted(self._at.items()):
            if "revoked" in times and "finished" in times:
                lines.append(f"1 lost its machines, and ran again on others: {name}")
        for name, times in sorted(self._at.items()):
            if "held" in times and "admitted" in times:
                long = times["admitted"] - times["held"]
                lines.append(f"1 was held by a check, and let go {long:.1f} s later: {name}")
        for name, places in self.places.items():
            if len(places) > 1:
                (first, since), *moves = places.items()
                took = since - self._at.get(name, {}).get("submitted", since)
                then = ", ".join(f"{place} {at - since:.1f} s later" for place, at in moves)
                lines.append(
                    f"1 started where there was room, {first}, after {1000 * took:.0f} ms, and "
                    f"moved up: {then}: {name}"
                )
        return lines
