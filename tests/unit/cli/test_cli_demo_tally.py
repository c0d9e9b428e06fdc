"""The demo's summary and its exit status say what the log said."""

from __future__ import annotations

from tools.demo import Tally


def test_everybody_who_is_expected_must_finish() -> None:
    tally = Tally()
    tally.expect("a", "b")
    tally.hear("finished", "a", 1.0, "Succeeded")
    assert (tally.all_finished, tally.open) == (False, ["b"])
    tally.hear("finished", "b", 2.0, "Succeeded")
    assert tally.all_finished


def test_a_failed_job_is_no_success() -> None:
    tally = Tally()
    tally.expect("a")
    tally.hear("finished", "a", 1.0, "Failed")
    assert not tally.all_finished
    assert "1 of them failed" in tally.summary()[0]


def test_waiting_is_counted_from_the_first_time_each_thing_was_said() -> None:
    tally = Tally()
    tally.expect("a")
    for what, since in (("submitted", 1.0), ("refused", 1.5), ("admitted", 3.0), ("admitted", 9.0)):
        tally.hear(what, "a", since)
    assert tally.summary()[1:] == [
        "submitted to admitted: 2000 ms where quota was free, 2.0 s at the longest, "
        "2.0 s on average",
        "1 had to wait for quota: a",
    ]


def test_who_moves_up_has_made_room_for_nobody() -> None:
    tally = Tally()
    tally.expect("a")
    for what, since in (("submitted", 1.0), ("admitted", 1.2), ("evicted", 6.0)):
        tally.hear(what, "a", since, "VariantEvicted" if what == "evicted" else "")
    tally.at("a", "spot", 1.2)
    tally.at("a", "reservation", 6.2)
    tally.at("a", "reservation", 6.3)  # told twice
    assert not tally.stopped
    assert tally.summary()[-1] == (
        "1 started where there was room, spot, after 200 ms, and moved up: "
        "reservation 5.0 s later: a"
    )


def test_who_lost_its_machines_has_not_made_room() -> None:
    tally = Tally()
    tally.expect("burst")
    for at, what in enumerate(("submitted", "admitted", "revoked", "evicted", "finished")):
        tally.hear(what, "burst", float(at), "DeactivatedDueToAdmissionCheck")
    assert "1 lost its machines, and ran again on others: burst" in tally.summary()
    assert not tally.stopped
