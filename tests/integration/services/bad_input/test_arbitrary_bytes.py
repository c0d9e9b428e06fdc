"""Arbitrary bytes on any subject stop no service, and each message is kept with a reason."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import INPUTS, OUTPUTS, subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, is_reserved, queues, settled, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

_json = msgspec.json.Encoder().encode
NAMES = st.sampled_from(["w", "other", "=20", "_", "=ZZ", "a_b"])
SUBJECTS = st.one_of(
    st.builds("admit.workload.{}.ns.{}".format, st.sampled_from(sorted(INPUTS | OUTPUTS)), NAMES),
    st.builds("admit.check.reported.{}.ns.{}".format, NAMES, NAMES),
    st.builds("admit.timer.due.{}.ns.{}".format, NAMES, NAMES),
    st.builds("admit.object.applied.{}.ns.{}".format, NAMES, NAMES),
    st.builds("admit.lease.barrier.{}".format, NAMES),
    st.sampled_from(["admit.workload.unknown.ns.w", "admit.check.x", "admit.lease.odd.a.b.c"]),
)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
HALF_FACTS = st.fixed_dictionaries(
    {"namespace": st.just("ns"), "name": st.sampled_from(["w", "other"])},
    optional={
        "uid": st.text(),
        "revision": st.integers() | st.text(),
        "priority": JSONS,
        "workload": JSONS,
        "admission": JSONS,
        "domain": st.text(),
        "seen": st.integers(),
        "state": st.sampled_from(["Ready", "Retry", "Rejected", "Pending", "?"]),
        "check": st.text(),
        "cycle": st.integers(),
        "requeueAfterSeconds": st.integers(),
        "kind": st.text(),
        "at": st.text(),
    },
)
PAYLOADS = st.binary(max_size=200) | JSONS.map(_json)
MESSAGES = st.lists(st.tuples(SUBJECTS, PAYLOADS | HALF_FACTS.map(_json)), max_size=20)
_numbers = count()


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(messages=MESSAGES)
async def test_a_workload_is_admitted_despite_arbitrary_messages(
    system: Bus, messages: list[tuple[str, bytes]]
) -> None:
    await system.publish_all([Outgoing(subject, data) for subject, data in messages])
    name = f"good-{next(_numbers)}"
    (sequence,) = await submit(system, [a_manifest(name, queue="lq-cq")])
    assert (await settled(system, sequence)).outcome == "applied"
    await eventually(lambda: is_reserved(system, name))
    done = facts.Finished(namespace="ns", name=name)
    await settled(system, await system.publish(Outgoing(subject_of(done), encode(done))))


@pytest.fixture
async def system(cluster: Cluster, bus: Bus) -> Bus:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *queues("cq", cpu=40))
    return bus
