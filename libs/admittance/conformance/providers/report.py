"""What comes out of a trial of a provider: an outcome for each case."""

from __future__ import annotations

from typing import Final

from admittance.conformance import report
from admittance.conformance.cases import Kit

TITLES: Final = {
    "answers": "answers a request, in the end with provisioned or failed",
    "json": "says JSON with the right fields",
    "names": "names the id and the workload that it was asked for",
    "subject": "speaks on the subjects of statuses, names escaped",
    "delay": "asks for delays that make sense, and only when it failed",
    "details": "says messages and details that are kept whole",
    "updates": "adds only to pod sets that there are",
    "order": "says nothing that cannot follow what it said before",
    "seq": "counts its answers upward, if it counts them",
    "message-id": "gives each status an id of its own",
    "twice": "answers a request that it hears again as before",
    "attempt": "takes another attempt for another request",
    "unknown-id": "takes a cancellation of what it never heard of for done",
    "cancelled": "provides nothing any more once a request was taken back",
    "overtaken": "provides nothing for what was taken back before it heard of it",
    "unknown-parameters": "tolerates parameters that it does not know, or fails for good",
    "wrong-parameters": "fails for good where parameters are wrong",
    "unknown-fields": "tolerates fields that it does not know",
    "deadline": "provides nothing after the deadline",
    "garbage": "does not stop at what it cannot read",
    "burst": "answers a hundred requests at once",
    "killed": "answers what it was asked when it was killed, and as before",
    "restart": "goes on when the server was away",
    "frees": "books each request once, and frees what is taken back",
    "remembers": "knows what it has booked when it was killed, and books none of it twice",
    "query": "tells what became of a request, if it is asked",
    "repeats": "does not say the same again and again",
    "acknowledges": "acknowledges what it was asked",
    "heartbeat": "says well-formed heartbeats, if any",
    "ends": "ends in order when it is asked to",
}
"""Every case, in the order of the report."""
FORMS: Final = (
    "json",
    "names",
    "subject",
    "delay",
    "details",
    "updates",
    "order",
    "seq",
)
"""Cases that are about every message, whatever it was said in."""
KIT: Final = Kit(TITLES, FORMS)


class Report(report.Report, frozen=True, kw_only=True, rename="camel"):
    """What became of all. ``usual``: provisioned or failed, as the first request ended; empty:
    neither."""

    provisioning_class: str

    @property
    def program(self) -> str:
        """The provider's class."""
        return self.provisioning_class
