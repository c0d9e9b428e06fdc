"""What comes out of a trial: an outcome for each case."""

from __future__ import annotations

from typing import Final

from admittance.conformance import report
from admittance.conformance.cases import Kit

TITLES: Final = {
    "answers": "answers a request",
    "json": "says JSON with the right fields",
    "state": "says a state that exists",
    "names": "names the workload, the check and the cycle that it was asked about",
    "subject": "speaks on the subject of its verdicts, names escaped",
    "delay": "asks for delays that make sense",
    "updates": "adds only to pod sets that there are",
    "message-id": "gives each verdict an id of its own",
    "new-cycle": "judges a new cycle anew",
    "twice": "does not contradict itself when it hears a request twice",
    "withdrawn": "says no Ready after its request was withdrawn",
    "late-retry": "still says Retry when another check's Retry withdrew the request",
    "unknown-parameters": "tolerates parameters that it does not know",
    "unknown-fields": "tolerates fields that it does not know",
    "flood": "answers a flood of requests",
    "repeats": "does not say the same again and again",
    "acknowledges": "acknowledges what it was asked",
    "heartbeat": "says well-formed heartbeats, if any",
    "ends": "ends in order when it is asked to",
}
"""Every case, in the order of the report."""


FORMS: Final = ("json", "state", "names", "subject", "delay", "updates")
"""Cases that are about every message, whatever it was said in."""
KIT: Final = Kit(TITLES, FORMS)


class Report(report.Report, frozen=True, kw_only=True, rename="camel"):
    """What became of all. ``usual``: the state that the controller answers with these parameters;
    empty: none."""

    controller: str
    check: str

    @property
    def program(self) -> str:
        """The controller."""
        return self.controller
