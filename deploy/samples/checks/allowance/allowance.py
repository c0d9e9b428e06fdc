"""A budget in ten lines: in each namespace so many workloads may start within so many seconds."""

from __future__ import annotations

from collections import defaultdict
from time import gmtime, strftime, time

from admittance.checks import AdmissionCheckController, Ready, Request, Retry

budget = AdmissionCheckController("example.com/allowance")
started: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
"""By namespace: who was let through, in which cycle, and when. Known to this one process: for
something that outlives it, and is shared by several, see the sample `budget`."""


@budget.check
async def decide(request: Request) -> Ready | Retry:
    starts, seconds = request.parameters["starts"], request.parameters["perSeconds"]
    known = started[request.namespace]
    recent = {who: at for who, at in known.items() if at > time() - seconds}
    started[request.namespace] = recent
    who = request.uid, request.cycle  # the same question may come twice, and costs once
    if who in recent or len(recent) < starts:
        recent.setdefault(who, time())
        return Ready(f"{len(recent)} of {starts} starts in {seconds} s")
    until = min(recent.values()) + seconds
    when = strftime("%H:%M:%SZ", gmtime(until + 1))
    why = f"the budget of {starts} in {seconds} s is spent; held until {when}"
    return Retry(why, after=until - time())


if __name__ == "__main__":
    budget.run()
