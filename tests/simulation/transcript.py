"""The transcript of a run: what each part did when, one line each."""

from __future__ import annotations

from collections.abc import Callable

from admittance.workload import stored as workloads


class Transcript:
    """Lines with the virtual time. Kept only on request."""

    def __init__(self, clock: Callable[[], float], *, keep: bool) -> None:
        self.lines: list[str] = []
        self.keep = keep
        self._clock = clock

    def tell(self, source: str, text: str) -> None:
        """Adds one line."""
        if self.keep:
            self.lines.append(f"{self._clock():9.3f}  {source:<8} {text}")


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
