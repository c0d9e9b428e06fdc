"""Streams and buckets are created with the right settings, and checked at every start."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]


async def config(bus: Bus, stream: str) -> dict[str, Any]:
    return dict((await bus.api(f"STREAM.INFO.{stream}"))["config"])


@pytest.mark.parametrize(
    ("stream", "setting", "want"),
    [
        pytest.param("ADMITTANCE", "discard", "new", id="a full log refuses and forgets nothing"),
        pytest.param("ADMITTANCE", "allow_atomic", True, id="the log takes atomic batches"),
        pytest.param("ADMITTANCE", "allow_msg_schedules", None, id="the log takes no schedules"),
        pytest.param(
            "ADMITTANCE", "allow_rollup_hdrs", False, id="roll-ups of the log are not allowed"
        ),
        pytest.param("ADMITTANCE_TIMERS", "allow_msg_schedules", True, id="timers are schedules"),
        pytest.param("ADMITTANCE_TIMERS", "max_age", 0, id="no timer is too far away"),
        pytest.param("ADMITTANCE_TIMERS", "max_msgs_per_subject", 1, id="a timer replaces its own"),
        pytest.param("KV_admittance", "allow_atomic", True, id="the bucket takes atomic batches"),
        pytest.param("KV_admittance", "max_msgs_per_subject", 1, id="the bucket keeps the last"),
        pytest.param("KV_admittance", "max_age", 0, id="markers outlive any pause"),
        pytest.param("KV_admittance_claims", "allow_msg_ttl", True, id="a claim expires"),
    ],
)
async def test_a_stream_is_created_with_its_settings(
    bus: Bus, stream: str, setting: str, want: object
) -> None:
    assert (await config(bus, stream)).get(setting) == want


async def problems(bus: Bus) -> list[streams.StreamProblem]:
    return streams.problems_of(await streams.stream_infos(bus))


async def test_created_streams_pass_the_check_and_are_created_once(bus: Bus) -> None:
    await streams.ensure(bus)
    assert await problems(bus) == []


async def test_a_wrong_setting_is_reported_with_found_and_expected_value(
    bare_bus: Bus,
) -> None:
    await bare_bus.api(
        "STREAM.CREATE.ADMITTANCE",
        {
            "name": "ADMITTANCE",
            "subjects": ["admit.workload.>"],
            "retention": "limits",
            "storage": "memory",
        },
    )
    with pytest.raises(SetupError, match="stream ADMITTANCE: storage is memory, file is needed"):
        await streams.ensure(bare_bus)


async def test_a_harmless_difference_is_adjusted(bus: Bus) -> None:
    configured = await config(bus, "ADMITTANCE")
    await bus.api(
        "STREAM.UPDATE.ADMITTANCE", {**configured, "duplicate_window": 60 * streams.SECOND}
    )
    [problem] = await problems(bus)
    assert problem.stream == "ADMITTANCE"
    assert problem.found == "duplicate_window is 60000000000, 120000000000 is needed"
    assert problem.todo == "restart the workload-controller, which corrects it at its start"
    await streams.ensure(bus)
    assert await problems(bus) == []


async def test_an_operator_s_choice_of_max_age_is_kept(bus: Bus) -> None:
    configured = await config(bus, "ADMITTANCE")
    week = 7 * 86_400 * streams.SECOND
    await bus.api("STREAM.UPDATE.ADMITTANCE", {**configured, "max_age": week})
    await streams.ensure(bus)
    assert (await config(bus, "ADMITTANCE"))["max_age"] == week
    await streams.ensure(bus, log_days=14)
    assert (await config(bus, "ADMITTANCE"))["max_age"] == 2 * week
    await streams.ensure(bus)
    assert (await config(bus, "ADMITTANCE"))["max_age"] == 2 * week
    assert (await config(bus, "ADMITTANCE_TIMERS"))["max_age"] == 0
    [problem] = await problems(bus)
    assert (problem.found, problem.harmful) == ("keeps messages 14 days; 42 days are usual", False)
    assert problem.todo.startswith(
        "nothing if it is on purpose, as with ADMIT_LOG_DAYS; else `nats"
    )


async def test_a_log_of_an_earlier_version_gets_the_subjects_that_it_lacks(bare_bus: Bus) -> None:
    log = next(stream for stream in streams.all_streams() if stream.name == "ADMITTANCE")
    timers = next(stream for stream in streams.all_streams() if stream.name == "ADMITTANCE_TIMERS")
    for stream in (timers, log):
        earlier = [subject for subject in stream.required["subjects"] if subject != "admit.user.>"]
        made = {"name": stream.name, **stream.required, **stream.adjustable, "subjects": earlier}
        await bare_bus.api(f"STREAM.CREATE.{stream.name}", made)
    await streams.ensure(bare_bus)
    assert "admit.user.>" in (await config(bare_bus, "ADMITTANCE"))["subjects"]
    assert await problems(bare_bus) == []
