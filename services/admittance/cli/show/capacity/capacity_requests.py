"""Capacity requests in `describe` and `explain`: one request in full, and the open requests of a
workload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Final

from admittance.api.fields.units import render
from admittance.cli.support import output
from admittance.cli.support.output import NOTHING, UNKNOWN, Table, columns_of, pairs
from admittance.cli.support.times import age
from admittance.client.arguments.times import span, stamp
from admittance.client.requests.objects import BucketObject
from admittance.client.requests.queues.capacity import record_of
from admittance.events.shapes import PodSetToProvision
from admittance.provisioning.records import Record, State

ANSWER_SECONDS: Final = 1.0


def state_of(record: Record) -> str:
    """The state of a capacity request in one word."""
    if record.status.cancelled:
        return "Cancelled"
    return "Deleting" if record.metadata.deletion_timestamp else str(record.status.state)


COLUMNS: Final = columns_of(
    *("NAME", "WORKLOAD", "CHECK", "CLASS", "#ATTEMPT", "STATE", "AGE", "MESSAGE", "+ID")
)


def row(stored: BucketObject, now: datetime) -> tuple[str, ...]:
    """A row of `get provisioningrequests`."""
    record = record_of(stored)
    if record is None:
        return (stored.name, *(UNKNOWN,) * (len(COLUMNS) - 1))
    spec = record.spec
    return (
        stored.name,
        spec.workload,
        spec.check,
        spec.provisioning_class_name,
        str(spec.attempt),
        state_of(record),
        age(record.metadata.creation_timestamp, now),
        record.status.message or NOTHING,
        spec.id,
    )


WAITING = (State.REQUESTED, State.ACCEPTED)
SILENT: Final = "no provider answers for this class: is one running? See `admit doctor`"


def facts_of(record: Record, now: datetime, silent: Collection[str] = ()) -> list[tuple[str, str]]:
    """Title and text of each fact about a request. ``silent``: classes for which no provider
    answers.
    """
    spec, status = record.spec, record.status
    ended = f"{state_of(record)} ({status.cancelled})" if status.cancelled else state_of(record)
    retry = ""
    if status.state is State.FAILED and not status.retryable:
        retry = "no: the provider says that it can never provide this"
    elif status.retry_after is not None:
        retry = f"not before {status.retry_after} s have passed, as the provider asked"
    return [
        ("Workload", spec.workload),
        ("Check", spec.check),
        ("Class", spec.provisioning_class_name),
        ("Provider", SILENT if spec.provisioning_class_name in silent else ""),
        ("Attempt", f"{spec.attempt} (cycle {spec.cycle})"),
        ("Id", spec.id),
        ("State", ended),
        ("Message", status.message),
        ("Retry", retry),
        ("Deadline", _deadline(record, now)),
        ("Parameters", pairs(spec.parameters)),
        ("Details", pairs(status.details)),
    ]


def _deadline(record: Record, now: datetime) -> str:
    deadline = record.spec.deadline
    if deadline is None or record.status.state not in WAITING or record.status.cancelled:
        return ""
    left = (deadline - now).total_seconds()
    return f"{stamp(deadline)} ({f'in {span(left)}' if left > 0 else 'over'})"


def pod_set_table(record: Record) -> Table:
    """The table of the requested pod sets."""
    columns = columns_of("POD SETS", "#PODS", "REQUESTS PER POD", "NODE SELECTOR")
    return Table(columns, [_pods(pod_set) for pod_set in record.spec.pod_sets])


def _pods(pod_set: PodSetToProvision) -> tuple[str, ...]:
    # The module is imported late, because it imports all that a provider needs.
    from admittance.providers.request import PodSet

    asked = PodSet(pod_set)
    needed = {name: render(name, much) for name, much in asked.requests.items()}
    return (
        ",".join(pod_set.names or (pod_set.name,)),
        str(pod_set.count),
        pairs(needed) or NOTHING,
        pairs(asked.node_selector) or NOTHING,
    )


def notes_of(record: Record) -> list[str]:
    """The answers of the provider to this request that did not count, each with its time."""
    return [f"{stamp(note.time)}  {note.text}" for note in record.status.notes]


def show(record: Record, now: datetime, silent: Collection[str] = ()) -> None:
    """Prints a request for capacity with its pod sets."""
    output.say(f"\nRequest for capacity {record.metadata.name}")
    shown = [(title, text) for title, text in facts_of(record, now, silent) if text][1:]
    width = max(len(title) for title, _ in shown) + 1
    for title, text in shown:
        output.say(f"  {(title + ':').ljust(width)} {output.clean(text)}")
    output.show_table(pod_set_table(record), indent=2)
    show_notes(record)


def show_notes(record: Record) -> None:
    """Prints the answers of the request's provider that did not count."""
    if notes_of(record):
        output.say("  Did not count")
        for line in notes_of(record):
            output.say(f"    - {output.clean(line)}")


def waits_for(records: Sequence[Record], now: datetime) -> Iterator[str]:
    """One sentence for each request that has no final answer yet."""
    for record in records:
        if record.status.state not in WAITING or record.status.cancelled:
            continue
        spec, status = record.spec, record.status
        since = age(record.metadata.creation_timestamp, now)
        verb = "has accepted the request" if status.state is State.ACCEPTED else "has not answered"
        said = f": {status.message}" if status.message else ""
        until = f", waits at most until {stamp(spec.deadline)}" if spec.deadline is not None else ""
        yield (
            f"{spec.provisioning_class_name}: asked {since} ago (attempt {spec.attempt} of check "
            f"{spec.check}), the provider {verb}{until}{said}"
        )
