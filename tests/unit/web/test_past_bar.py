"""The bar of a page that shows a past moment."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from admittance.events.requests.history import LogEntry
from admittance.events.requests.past import Moment
from admittance.web.views.past import Slider, bar, takes_longer, workload_bar
from support.builders import NOON

PATH = "/workloads/ns/w"


def entries(*sequences: int) -> list[LogEntry]:
    return [
        LogEntry(sequence=each, time=NOON, subject="s", data=msgspec.Raw(b"{}"))
        for each in sequences
    ]


def at(sequence: int) -> Moment:
    return Moment(sequence=sequence, time=NOON, revision=1)


def test_the_bar_says_which_moment_it_is_and_what_it_lacks() -> None:
    made = bar("/queues", at(1234), NOON + timedelta(minutes=30), resource="cpu")
    assert made.text == (
        f"This is the past: {NOON:%Y-%m-%d %H:%M:%S} UTC, 30 min ago, after fact 1,234 of the log."
    )
    assert "machines" in made.lacks
    assert made.now.href == "/queues?resource=cpu"
    assert [link.text for link in made.links] == [
        "60 min earlier",
        "10 min earlier",
        "10 min later",
    ]
    assert made.links[1].href.endswith("%3A50%3A00Z&resource=cpu")


def test_a_moment_before_the_history_is_said_to_take_longer() -> None:
    moment = msgspec.structs.replace(at(7), facts=25_000)
    first = takes_longer(moment, "/queues?at=7&slow=1")
    assert "from 25,000 messages of the log, which takes about 6 s" in first.text
    assert first.more is not None and first.more.href == "/queues?at=7&slow=1"
    made = bar("/queues", msgspec.structs.replace(moment, lacks=2), NOON)
    assert "made from 25,000 messages of the log" in made.text
    assert "2 workloads of then cannot be made again" in made.text


def test_no_link_leads_to_the_future() -> None:
    made = bar("/pending", at(7), NOON + timedelta(minutes=5))
    assert [link.text for link in made.links] == ["60 min earlier", "10 min earlier"]
    assert made.now.href == "/pending"


@pytest.mark.parametrize(
    ("sequence", "place", "hrefs"),
    [
        pytest.param(1, 0, [f"{PATH}?at=3"], id="before the first fact"),
        pytest.param(3, 1, [f"{PATH}?at=5"], id="the first fact"),
        pytest.param(6, 2, [f"{PATH}?at=3", f"{PATH}?at=9"], id="between two facts"),
        pytest.param(9, 3, [f"{PATH}?at=5"], id="the last fact"),
    ],
)
def test_the_slider_stands_at_the_newest_fact_of_then(
    sequence: int, place: int, hrefs: list[str]
) -> None:
    made = workload_bar(PATH, at(sequence), entries(3, 5, 9), NOON, whole=False)
    assert made.slider == Slider(at=place, count=3, path=PATH)
    assert [link.href for link in made.links] == hrefs
    assert made.more is not None
    assert made.more.href == f"{PATH}?at={sequence}&explain=1"


def test_a_page_with_the_whole_explanation_offers_no_other_one() -> None:
    made = workload_bar(PATH, at(1), (), NOON, whole=True)
    assert (made.more, made.slider, made.links) == (None, None, ())
