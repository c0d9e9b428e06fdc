"""The short story of a run: who did what when, one line each."""

from __future__ import annotations

from collections.abc import Callable

from admittance.workload import stored as workloads


class Story:
    """Lines with the virtual time. Kept only when somebody wants to read it."""

    def __init__(self, clock: Callable[[], float], *, keep: bool) -> None:
        self.lines: list[str] = []
        self.keep = keep
        self._clock = clock

    def tell(self, who: str, what: str) -> None:
        """One line."""
        if self.keep:
            self.lines.append(f"{self._clock():9.3f}  {who:<8} {what}")


def describe(data: bytes) -> str:
    """A stored workload in a few words."""
    status = workloads.decode(data).status
    conditions = " ".join(
        f"{c.type}={c.status[0]}({c.reason})" for c in status.conditions if c.type != "PodsReady"
    )
    says = ",".join(say.what for say in status.log.says)
    return f"fact {status.log.fact} [{conditions}] says {says or 'nothing'}"


class Broken(Exception):
    """An invariant does not hold; the text says which and how."""
