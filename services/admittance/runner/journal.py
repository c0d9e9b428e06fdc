"""What a shim has written about its run, as far as it was read. Pure.

The form of the lines is told in `admittance.runner.shim`.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Outcome(NamedTuple):
    """``kind``: succeeded, failed, stopped or lost."""

    kind: str
    message: str


class _Line(msgspec.Struct, frozen=True):
    e: str
    p: str = ""
    pid: int = 0
    t: int = 0
    code: int = 0
    kind: str = ""
    message: str = ""


_decoder = msgspec.json.Decoder(_Line)


class Journal:
    """Grows as the file grows: `feed` takes the bytes from ``offset`` on."""

    def __init__(self) -> None:
        self.offset = 0
        self.up = False
        self.ready = False
        self.outcome: Outcome | None = None
        self.processes: dict[int, int] = {}
        """Every process group ever started: pid to start time in ticks."""
        self.ended: dict[str, int] = {}
        """Pods that have ended, with their exit codes."""
        self.exit_code = 0
        """Of the first container that failed; 0: none did, or an older shim wrote the journal."""

    @property
    def is_result(self) -> bool:
        """It ended by itself: what came of it counts, and it is not to run again."""
        return self.outcome is not None and self.outcome.kind in ("succeeded", "failed")

    def feed(self, data: bytes) -> bool:
        """Takes what was written since; True when that was anything.

        A last line without its end is left for later: it may be half of one.
        """
        whole = data.rfind(b"\n") + 1
        self.offset += whole
        for text in data[:whole].splitlines():
            try:
                line = _decoder.decode(text)
            except msgspec.MsgspecError:
                continue  # half a line from before a power failure
            match line.e:
                case "start":
                    self.processes[line.pid] = line.t
                case "end":
                    self.ended[line.p] = line.code
                case "up":
                    self.up = True
                case "ready":
                    self.ready = True
                case "outcome":
                    self.outcome = Outcome(line.kind, line.message)
                    self.exit_code = line.code
        return whole > 0
