"""Messages that decode but would break their reader do not stop any service."""

from __future__ import annotations

import json

import msgspec
import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.requests.manifests import Apply, ApplyReply
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload.conditions import Type, is_true
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import (
    admission_check,
    apply,
    ask,
    eventually,
    is_reserved,
    queues,
    settled,
    submit,
    workload,
)

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
CHECK = admission_check("c")


@pytest.fixture
async def system(cluster: Cluster, bus: Bus) -> Bus:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    flavor, queue, local = queues("cq", cpu=40)
    _, checked, its_local = queues("checked", cpu=40)
    checked["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "c"}]}
    await apply(bus, CHECK, flavor, queue, local, checked, its_local)
    return bus


async def _goes_on(bus: Bus) -> None:
    """Checks that every service still does its work."""
    (sequence,) = await submit(bus, [a_manifest("next", queue="lq-cq")])
    assert (await settled(bus, sequence)).outcome == "applied"
    await eventually(lambda: is_reserved(bus, "next"))


def _submission(name: str, manifest: dict[str, object], **more: object) -> bytes:
    return json.dumps({"namespace": "ns", "name": name, "workload": manifest, **more}).encode()


def _with(name: str, field: str, value: object) -> dict[str, object]:
    manifest = a_manifest(name, queue="lq-cq")
    manifest["spec"]["podSets"][0]["template"]["spec"][field] = value
    return manifest


@pytest.mark.servers("real")
async def test_a_trace_header_with_line_breaks_goes_no_further(system: Bus) -> None:
    head = b"NATS/1.0\r\ntraceparent: a\nb\rc\r\n\r\n"
    data = _submission("w", a_manifest("w", queue="lq-cq"))
    sizes = b"%d %d" % (len(head), len(head) + len(data))
    blob = b"HPUB admit.workload.submitted.ns.w " + sizes + b"\r\n" + head + data + b"\r\n"
    await system.nc.send(blob)
    await _goes_on(system)
    assert await workload(system, "w") is not None


@pytest.mark.servers("real")
async def test_a_subject_of_the_maximal_length_becomes_a_dead_letter(system: Bus) -> None:
    """The messages about the submission would be longer than the limit, and the server would close
    the connection."""
    subject = f"admit.workload.submitted.ns.{'n' * 4030}"
    await system.nc.send(b"PUB " + subject.encode() + b" 2\r\n{}\r\n")
    data = _submission("n" * 4030, {})
    await system.nc.send(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(data), data))
    await _goes_on(system)


@pytest.mark.parametrize(
    "length",
    [pytest.param(length, id=f"{length} bytes") for length in (400_000, 600_000, 1_040_000)],
)
async def test_a_submission_that_would_not_fit_with_its_status_is_rejected(
    system: Bus, length: int
) -> None:
    manifest = _with("big", "volumes", [{"name": "v", "csi": {"x": "y" * length}}])
    (sequence,) = await submit(system, [manifest])
    reply = await settled(system, sequence)
    assert reply.outcome == ("applied" if length <= 400_000 else "dead-lettered")
    await _goes_on(system)


@pytest.mark.parametrize("state", ["Ready", "Pending", "Retry", "Rejected"])
async def test_a_verdict_too_large_for_the_workload_becomes_a_dead_letter(
    system: Bus, state: str
) -> None:
    manifest = a_manifest("w", queue="lq-checked")
    await submit(system, [manifest])
    await eventually(lambda: is_reserved(system, "w"))
    verdict = facts.CheckReported(
        namespace="ns", name="w", controller="ctl", check="c", cycle=0, state=state,
        message="m" * 700_000,
    )  # fmt: skip
    sequence = await system.publish(Outgoing(subject_of(verdict), encode(verdict)))
    assert (await settled(system, sequence)).outcome in ("applied", "dead-lettered")
    await _goes_on(system)


async def test_an_end_with_a_reason_too_large_becomes_a_dead_letter(system: Bus) -> None:
    await _goes_on(system)
    done = facts.Finished(namespace="ns", name="next", reason="r" * 1_040_000)
    sequence = await system.publish(Outgoing(subject_of(done), encode(done)))
    assert (await settled(system, sequence)).outcome == "dead-lettered"
    done = facts.Finished(namespace="ns", name="next")
    await settled(system, await system.publish(Outgoing(subject_of(done), encode(done))))
    stored = await workload(system, "next")
    assert stored is not None
    assert is_true(stored, Type.FINISHED)


async def test_a_uid_as_long_as_a_message_is_refused(system: Bus) -> None:
    data = _submission("w", a_manifest("w", queue="lq-cq"), uid="u" * 900_000)
    sequence = await system.publish(Outgoing("admit.workload.submitted.ns.w", data))
    assert (await settled(system, sequence)).outcome == "dead-lettered"
    await _goes_on(system)


async def test_a_manifest_too_large_for_an_event_is_not_written(
    cluster: Cluster, system: Bus
) -> None:
    """The message about it on the log is longer than the submission."""
    for size, allowed in ((401_000, "400000"), (890_000, "524,288")):
        config = {
            "apiVersion": "example.com/v1",
            "kind": "Budget",
            "metadata": {"name": f"b{size}"},
            "spec": {"x": ""},
        }
        config["spec"] = {"x": "y" * (size - len(json.dumps(config)))}
        raw = msgspec.Raw(json.dumps(config, separators=(",", ":")).encode())
        reply = await ask(system, "admit.api.apply", Apply(objects=(raw,)), ApplyReply)
        assert f"{allowed} are allowed" in reply.error
    await cluster.processes[0].stop()
    await cluster.start("workload-controller", "successor")
    await _goes_on(system)
