"""What the machine cannot limit, in words."""

from __future__ import annotations

from admittance.runner.groups.job_groups import Offers


def limit_messages(offers: Offers) -> tuple[str, ...]:
    """What the groups of the machine cannot do, one sentence each, for its inventory."""
    why = f": {offers.why_not}" if offers.why_not else ""
    lacking = [
        word
        for word, offered in (
            ("memory", offers.memory),
            ("cpu", offers.cpu),
            ("processes", offers.processes),
        )
        if not offered
    ]
    said = [f"cannot limit {' and '.join(lacking)} of jobs{why}"] if lacking else []
    if not offers.devices:
        said.append("cannot keep jobs from devices that they were not given")
    return tuple(said)
