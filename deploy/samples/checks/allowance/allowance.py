"""A budget in ten lines: a namespace may start a number of workloads per time."""

from __future__ import annotations

from collections import defaultdict
from time import gmtime, strftime, time

from admittance.checks import AdmissionCheckController, Ready, Request, Retry

budget = AdmissionCheckController("example.com/allowance")
started: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
"""By namespace: when each (uid, cycle) was let through. In memory only; the sample
`budget` keeps it in a file."""


@budget.check
async def decide(request: Request) -> Ready | Retry:
    starts, seconds = request.parameters["starts"], request.parameters["perSeconds"]
    known = started[request.namespace]
    recent = {key: at for key, at in known.items() if at > time() - seconds}
    started[request.namespace] = recent
    key = request.uid, request.cycle  # a repeated request counts once
    if key in recent or len(recent) < starts:
        recent.setdefault(key, time())
        return Ready(f"{len(recent)} of {starts} starts in {seconds} s")
    until = min(recent.values()) + seconds
    when = strftime("%H:%M:%SZ", gmtime(until + 1))
    why = f"the budget of {starts} in {seconds} s is spent; held until {when}"
    return Retry(why, after=until - time())


if __name__ == "__main__":
    budget.run()
