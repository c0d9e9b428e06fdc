"""The colours of events in `admit events`."""

from __future__ import annotations

from typing import Final

from admittance.cli.support import output
from admittance.client.wording.facts import REFUSED

COLOURS: Final = {
    "quota reserved": output.BUSY,
    **dict.fromkeys(("admitted", "started", "pods ready", "finished"), output.GOOD),
    "capacity there": output.GOOD,
    **dict.fromkeys(("evicted", "preempted", "pending"), output.WAITS),
    **dict.fromkeys(("capacity revoked", "rejected", REFUSED, "dead letter"), output.BAD),
}
