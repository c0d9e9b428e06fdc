"""Delays that double: 30, 60, 120, 240 s, …, from the retryCount that the check is told.

It counts nothing itself, so a restart changes nothing, and any number of replicas agree.
"""

from __future__ import annotations

import random
from urllib.request import urlopen

import msgspec

from admittance.checks import AdmissionCheckController, Ready, Request, Retry

ANSWER_SECONDS = 5.0


class Probe(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The spec of a Probe. An answer of the 200s at ``url`` means: there is capacity."""

    url: str
    base_seconds: float = 30.0
    factor: float = 2.0
    max_seconds: float = 3600.0
    jitter: float = 0.0


def delay_seconds(probe: Probe, retry_count: int, chance: float) -> float:
    """How long to wait after having been put off retry_count times. chance: from 0 to 1."""
    try:
        grown = probe.base_seconds * probe.factor**retry_count
    except OverflowError:
        grown = probe.max_seconds
    return min(grown, probe.max_seconds) * (1 + probe.jitter * chance)


controller = AdmissionCheckController("example.com/backoff", parameters=Probe)


@controller.check
def decide(request: Request) -> Ready | Retry:
    """A plain function: it runs in a thread, and may wait."""
    try:
        with urlopen(request.parameters.url, timeout=ANSWER_SECONDS):
            return Ready("there is capacity")
    except (OSError, ValueError) as error:  # an answer of the 400s and 500s is an OSError, too
        wait = delay_seconds(request.parameters, request.retry_count, random.random())
        attempt = request.retry_count + 1
        return Retry(f"no capacity ({error}); attempt {attempt}, next in {wait:g} s", after=wait)


if __name__ == "__main__":
    controller.run()
