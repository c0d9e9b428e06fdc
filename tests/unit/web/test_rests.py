"""Open pages rest longer, the longer their answers took."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Any

import pytest

from admittance.runtime import clock
from admittance.web.application import REPAINTS
from admittance.web.live import Follower
from admittance.web.rests import REST_MAX_SECONDS, Rests, rest_after


@pytest.mark.parametrize(
    ("busy", "rest"), [(0, 0), (0.02, 0.08), (0.1, 0.4), (0.2, 0.8), (0.25, 1.75), (20, 2)]
)
def test_a_rest_grows_with_the_time_of_the_answers(busy: float, rest: float) -> None:
    assert rest_after(busy) == pytest.approx(rest)


def test_answers_at_the_same_time_count_once_and_answers_in_a_rest_make_it_longer() -> None:
    rests = Rests()
    rests.begin(10.0)
    rests.begin(10.01)
    rests.end(10.03)
    rests.end(10.04)
    assert rests.left(10.04) == pytest.approx(rest_after(0.04))
    rests.begin(10.1)
    rests.end(10.11)
    assert rests.left(10.11) == pytest.approx(rest_after(0.05))
    assert rests.left(20.0) == 0
    rests.begin(20.0)
    rests.end(20.01)
    assert rests.left(20.01) == pytest.approx(rest_after(0.01))


def test_an_answer_that_does_not_come_stops_no_other_page() -> None:
    rests = Rests()
    rests.begin(0.0)
    assert rests.left(1.0) == REST_MAX_SECONDS
    assert rests.left(REST_MAX_SECONDS) == 0


def test_the_script_marks_the_requests_of_pages_that_ask_again() -> None:
    script = files("admittance.web").joinpath("static/page.js").read_text()
    assert f'headers: {{ "{REPAINTS}": "1" }}' in script


@pytest.mark.asyncio
async def test_a_stream_that_rests_ends_at_once_with_its_session() -> None:
    rests, ended = Rests(), asyncio.Event()
    rests.begin(clock.monotonic() - 1)
    no_client: Any = None
    follower = Follower(no_client, ended, rests)
    resting = asyncio.create_task(follower.rest())
    await asyncio.sleep(0)
    assert not resting.done()
    ended.set()
    await asyncio.wait_for(resting, 1)
