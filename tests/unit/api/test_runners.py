"""The fields of a Runner that users may change."""

from __future__ import annotations

import msgspec
import pytest

from admittance.api.meta import ObjectMeta, Taint
from admittance.api.reading.objects import encode
from admittance.api.runners import REASON_MAX, Runner, RunnerDrain, RunnerSpec, RunnerStatus
from admittance.api.validation.validate import validate, validate_update
from admittance.control.controller import Controller
from admittance.control.manifests.objects import key_of
from admittance.control.manifests.planned_writes import planned_writes
from admittance.control.manifests.proposals import proposal, refusal_reasons
from admittance.workload.limits import Limits
from support.builders import NOON

TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")
STORED = Runner(
    metadata=ObjectMeta(name="gpu_1", uid="u", generation=1, labels={"zone": "a"}),
    spec=RunnerSpec(taints=(TAINT,)),
    status=RunnerStatus(id="a1"),
)


def changed(**fields: object) -> Runner:
    return msgspec.structs.replace(
        STORED, spec=msgspec.structs.replace(STORED.spec, **fields), status=None
    )


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        (changed(unschedulable=True), ""),
        (changed(drain=RunnerDrain(deadline=NOON, reason="a new fan")), ""),
        (changed(taints=()), "spec.taints"),
        (changed(drain=RunnerDrain(reason="x" * (REASON_MAX + 1))), "spec.drain.reason"),
        (
            msgspec.structs.replace(STORED, metadata=ObjectMeta(name="gpu_1")),
            "metadata.labels",
        ),
    ],
)
def test_users_change_cordon_and_drain_of_a_runner_and_nothing_else(
    manifest: Runner, field: str
) -> None:
    problems = [*validate(manifest), *validate_update(STORED, manifest)]
    assert [problem.field for problem in problems] == ([field] if field else [])


def test_an_applied_runner_keeps_what_its_machine_announced_and_no_apply_makes_one() -> None:
    controller = Controller(b"secret")
    [manifest] = proposal([(1, msgspec.Raw(encode(changed(unschedulable=True))))], "").manifests
    objects = controller.objects
    [refusal] = refusal_reasons(
        objects, list(planned_writes(objects, [manifest], now=NOON)), Limits()
    )
    assert "no runner has announced itself under this name" in refusal
    controller.keep_object(key_of(STORED), STORED, encode(STORED), 7)
    [write] = planned_writes(objects, [manifest], now=NOON, user="ada")
    assert refusal_reasons(objects, [write], Limits()) == []
    assert (write.object.status, write.object.spec.unschedulable) == (STORED.status, True)
    assert write.expected == 7
