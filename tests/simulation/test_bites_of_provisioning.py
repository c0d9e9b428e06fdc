"""The simulation bites where capacity is provided: without a mechanism of the provisioning check,
what that mechanism keeps from happening happens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from admittance.provisioning import next_step, verdicts
from admittance.provisioning.records import State
from admittance.provisioning.steps import Step, Write
from simulation.actors import provisioning
from simulation.provided import provided
from simulation.run import run

LIMIT = 400
"""Seeds tried; a breach is found in the first few dozen."""


def _ready_too_soon(patch: pytest.MonkeyPatch) -> None:
    def hasty(record: Any, config: Any, **more: Any) -> Any:
        if record.status.state is State.ACCEPTED:
            record = replace(record, status=replace(record.status, state=State.PROVISIONED))
        return verdicts.verdict_of_request(record, config, **more)

    patch.setattr(next_step, "verdict_of_request", hasty)


def _never_unwanted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(next_step, "cancel_reason", lambda *_: "")


def _forgets_to_free(patch: pytest.MonkeyPatch) -> None:
    def ends(_: Any, view: Any, kept: Any, *__: Any) -> Step:
        return Step(view.slot, Write(kept.record.metadata.name, None, kept.revision))

    patch.setattr(next_step.SlotDecider, "_end", ends)


def _asks_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    write = provisioning.Active._write

    def whatever(active: Any, step: Step) -> Any:
        messages = provisioning._messages(step)
        yield from active._service.link.publish_all(active._server.publish, messages)
        return (yield from write(active, step))

    patch.setattr(provisioning.Active, "_write", whatever)


@pytest.mark.parametrize(
    ("without", "breach"),
    [
        pytest.param(
            _ready_too_soon, "without its capacity", id="a job would start before its capacity"
        ),
        pytest.param(
            _never_unwanted,
            "booked for nobody|still kept",
            id="bookings would outlive their workloads",
        ),
        pytest.param(_forgets_to_free, "booked for nobody", id="providers would not be told"),
        pytest.param(
            _asks_before_it_is_kept, "booked twice", id="what is not kept would be asked for"
        ),
    ],
)
def test_without(without: Any, breach: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    seed = next(
        (seed for seed in range(LIMIT) if re.search(breach, run(seed, plot=provided).broken)), None
    )
    assert seed is not None, f"nothing happened in {LIMIT} seeds"
    monkeypatch.undo()
    assert not run(seed, plot=provided).broken


def test_the_stories_are_about_capacity() -> None:
    told = "\n".join(
        line for seed in range(16, 24) for line in run(seed, plot=provided, keep=True).story
    )
    for word in ("requested", "cancelled", "accepted", "provisioned", "failed"):
        assert f"admit.provisioning.{word}.capacity" in told, word
    assert "dies between booking and answering" in told
