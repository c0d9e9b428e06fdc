"""Says which pods of a job failed and run again."""

from __future__ import annotations

from datetime import datetime

from admittance.cli.support.times import span, stamp
from admittance.events.shapes import PodRetries


def retry_lines(retries: PodRetries | None, now: datetime) -> tuple[str, ...]:
    """The failed pods of a job, one line for the job and one for each pod that waits."""
    if retries is None:
        return ()
    from admittance.cli.show.event_lines import retries_text

    lines = [f"pods failed {retries_text(retries)}"]
    for one in retries.pods:
        seconds = max(0.0, (one.at - now).total_seconds())
        left = "" if one.left is None else f"; {one.left:,} retries left after it"
        lines.append(f"{one.pod} runs again at {stamp(one.at)} (in {span(seconds)}){left}")
    if (more := retries.waiting - len(retries.pods)) > 0:
        lines.append(f"{more:,} more pods wait longer")
    return tuple(lines)
