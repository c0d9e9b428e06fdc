"""The summary, the exit status and the errors of the demo."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tools.demo.story import Demo
from tools.demo.tally import Tally

from admittance.client import Unavailable
from admittance.runtime.errors import SetupError


def test_every_expected_workload_must_finish() -> None:
    tally = Tally()
    tally.expect("a", "b")
    tally.record("finished", "a", 1.0, "Succeeded")
    assert (tally.all_finished, tally.open) == (False, ["b"])
    tally.record("finished", "b", 2.0, "Succeeded")
    assert tally.all_finished


def test_a_failed_job_fails_the_demo() -> None:
    tally = Tally()
    tally.expect("a")
    tally.record("finished", "a", 1.0, "Failed")
    assert not tally.all_finished
    assert "1 of them failed" in tally.summary()[0]


def test_waits_are_measured_from_the_first_fact_of_a_kind() -> None:
    tally = Tally()
    tally.expect("a")
    for what, since in (("submitted", 1.0), ("refused", 1.5), ("admitted", 3.0), ("admitted", 9.0)):
        tally.record(what, "a", since)
    assert tally.summary()[1:] == [
        "submitted to admitted: 2000 ms where quota was free, 2.0 s at the longest, "
        "2.0 s on average",
        "1 had to wait for quota: a",
    ]


def test_a_migration_is_not_counted_as_a_preemption() -> None:
    tally = Tally()
    tally.expect("a")
    for what, since in (("submitted", 1.0), ("admitted", 1.2), ("evicted", 6.0)):
        tally.record(what, "a", since, "VariantEvicted" if what == "evicted" else "")
    tally.at("a", "spot", 1.2)
    tally.at("a", "reservation", 6.2)
    tally.at("a", "reservation", 6.3)  # told twice
    assert not tally.stopped
    assert tally.summary()[-1] == (
        "1 started where there was room, spot, after 200 ms, and moved up: "
        "reservation 5.0 s later: a"
    )


def test_revoked_capacity_is_not_counted_as_a_preemption() -> None:
    tally = Tally()
    tally.expect("burst")
    for at, what in enumerate(("submitted", "admitted", "revoked", "evicted", "finished")):
        tally.record(what, "burst", float(at), "DeactivatedDueToAdmissionCheck")
    assert "1 lost its machines, and ran again on others: burst" in tally.summary()
    assert not tally.stopped


class ClientWithoutServer:
    """A client that reads the log when no server answers."""

    async def events(self, **_options: object) -> AsyncIterator[object]:
        """Raises the error of the lost connection."""
        raise Unavailable("no server answers")
        yield


async def test_the_demo_ends_with_one_error_when_it_cannot_read_the_log() -> None:
    client: Any = ClientWithoutServer()
    demo = Demo("nats://127.0.0.1:1", Path(), Path())
    with pytest.raises(SetupError, match="the log cannot be followed: no server answers"):
        await demo.follow(client)
