"""Every message and value is read, or set aside with a reason; no service ends because of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest
from benchmarks.junk import RAW, nested_lists, with_mutations
from hypothesis import example, given
from hypothesis import strategies as st

from admittance.api.meta import ObjectMeta
from admittance.api.reading.manifest import accept
from admittance.events import facts
from admittance.events.codec import Undecodable, decode, encode
from admittance.events.reader import LEVELS_MAX, Unreadable, check_depth, number
from admittance.events.requests.queues import PendingQuery, Queues
from admittance.events.shapes import ConsumedUsage
from admittance.events.stored.checkpoints import Commits
from admittance.events.stored.formats import read_commits, read_held_claim, read_usage
from admittance.events.system import Alive, BarrierEcho
from admittance.providers.status_store import StoredStatus, read_status
from admittance.provisioning.machine_pool import key_of
from admittance.provisioning.pool_bookings import Booking, read_booking
from admittance.provisioning.records import Record, RecordSpec, read_record
from admittance.runner.runs.admissions import view
from admittance.runner.runs.claims import read_claim
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.leader.barriers import read_echo
from admittance.runtime.leader.lease_store import instance_of
from admittance.scheduling.scheduler import Scheduler
from admittance.timers.core import Schedules
from admittance.variants.core import FamilyActs
from admittance.workload.bucket_reader import read, read_manifest, read_whole
from admittance.workload.limits import Limits
from support.builders import NOON, a_manifest
from support.stored.values import CHECKED, FAMILIES, KEY, ME, Leader, afterwards, manifests, stages

STAGES = stages()
VALUES = Leader(**CHECKED).values
RECORD = Record(
    api_version="autoscaling.x-k8s.io/v1",
    kind="ProvisioningRequest",
    metadata=ObjectMeta(namespace="ns", name="r"),
    spec=RecordSpec(
        id="i",
        workload="w",
        uid="u",
        check="c",
        cycle=1,
        attempt=1,
        provisioning_class_name="x",
        deadline=NOON,
    ),
)
BOOKING = Booking(id="i", held=(), ready_at=NOON, expires_at=NOON)
SEEDS = st.integers(0, 2**32)

Case = tuple[Callable[[bytes], object], bytes]


def _about_an_instance(data: bytes) -> object:
    return instance_of(Entry("_alive.scheduler.a", data, 1, {"Nats-TTL": "5s"}))


CASES: dict[str, Case] = {
    **{
        f"a workload that is {name}": (lambda data: read_whole(KEY, data), value)
        for name, (_, value) in STAGES.items()
    },
    **{
        f"a manifest, {key.partition('.')[0]}": (
            lambda data, key=key: read_manifest(key, data),  # type: ignore[misc]
            value,
        )
        for key, value in VALUES.items()
    },
    "an echo of a barrier": (
        lambda data: read_echo("barrier.queue-cq", data),
        encode(BarrierEcho(domain="queue-cq", epoch=7)),
    ),
    "a usage": (read_usage, encode(ConsumedUsage(last_update=NOON))),
    "a request for capacity": (
        lambda data: read_record("provisioningrequest.ns.r", data),
        encode(RECORD),
    ),
    "what a provider said": (read_status, encode(StoredStatus(id="i", namespace="ns", name="w"))),
    "a booking": (lambda data: read_booking(key_of("rack", "i"), data), encode(BOOKING)),
    "a claim": (read_held_claim, b'{"runner":"r"}'),
    "what leaders committed": (read_commits, encode(Commits(epoch=1, newest=3))),
    "a sign of life": (_about_an_instance, encode(Alive(service="scheduler", instance="a"))),
    "a fact": (
        lambda data: decode("admit.workload.finished.ns.w", data),
        encode(facts.Finished(**ME, revision=3, succeeded=True)),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_reader_accepts_values_that_services_write(case: Case) -> None:
    reading, value = case
    assert reading(value) is not None


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_reader_refuses_junk_with_a_reason(case: Case) -> None:
    for data in RAW:
        if b"newest" not in data:
            with pytest.raises((Unreadable, Undecodable)) as error:
                case[0](data)
            assert "\n" not in str(error.value), data


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@given(seed=SEEDS, raw=st.binary(max_size=40))
def test_a_reader_raises_nothing_but_unreadable(case: Case, seed: int, raw: bytes) -> None:
    reading, value = case
    chance = random.Random(seed)
    for data in (raw, with_mutations(chance, value), value[: chance.randrange(len(value) + 1)]):
        try:
            reading(data)
        except (Unreadable, Undecodable) as error:
            assert str(error)
            encode(str(error))


# Only the number of the last applied fact is wrong: the workload is read, and its job runs on.
@example(seed=72907, stage="running")
@given(seed=SEEDS, stage=st.sampled_from(sorted(STAGES)))
def test_a_leader_continues_with_any_value_at_a_workload_key(seed: int, stage: str) -> None:
    data = with_mutations(random.Random(seed), STAGES[stage][1])
    leader = Leader(**_queue(stage))
    leader.controller.load(KEY, data, 50, {})
    leader.revision, leader.sequence = 60, 100
    for key in leader.controller.settle_load(3, 100):
        leader.controller.outbox(key, NOON)
    is_absent = leader.controller.workloads.get(KEY).unreadable
    afterwards(leader)
    # Its last fact deletes it: the name is free again. A job that runs would have to stop first.
    assert not is_absent or leader.controller.workloads.get(KEY).workload is None


@given(seed=SEEDS, key=st.sampled_from(sorted(VALUES)))
def test_a_leader_continues_with_any_value_at_a_manifest_key(seed: int, key: str) -> None:
    if key == KEY:
        return
    leader = Leader(**CHECKED)
    submitted = facts.Submitted(**ME, workload=msgspec.Raw(msgspec.json.encode(a_manifest())))
    leader.apply_fact(submitted)
    leader.controller.load(key, with_mutations(random.Random(seed), leader.values[key]), 50, {})
    leader.revision = 60
    afterwards(leader)
    leader.apply_fact(submitted)
    assert leader.controller.workloads.get(KEY).workload is not None


@given(seed=SEEDS, stage=st.sampled_from(sorted(STAGES)))
def test_every_watcher_continues_with_a_readable_workload(seed: int, stage: str) -> None:
    data = with_mutations(random.Random(seed), STAGES[stage][1])
    try:
        result = read(KEY, data)
    except Unreadable:
        return
    view(result, 50)
    timers = Schedules(Limits())
    timers.begin_comparison()
    timers.apply(KEY, result, 50, NOON)
    timers.compare({}, NOON)
    list(timers.orders(NOON))
    timers.next_order_at()
    families = FamilyActs()
    families.apply(KEY, result, 50, NOON)
    families.acts(NOON)
    scheduler = _scheduler(**_queue(stage))
    scheduler.apply_workload("ns", "w", result, 50, now=NOON)
    _decides(scheduler)
    scheduler.apply_workload("ns", "w", None, 51, now=NOON)
    _decides(scheduler)


@given(seed=SEEDS, key=st.sampled_from(sorted(VALUES)))
def test_a_scheduler_continues_with_a_readable_manifest(seed: int, key: str) -> None:
    try:
        result: Any = read_manifest(key, with_mutations(random.Random(seed), VALUES[key]))
    except Unreadable:
        return
    scheduler = _scheduler(**CHECKED)
    scheduler.apply_workload("ns", "w", read(KEY, STAGES["pending"][1]), 20, now=NOON)
    meta = result.metadata
    for manifest in (result, None):
        scheduler.apply_object(result.kind, meta.namespace, meta.name, manifest, 50)
        _decides(scheduler)


def test_a_fact_number_beyond_the_log_is_reset_to_the_last_read_one() -> None:
    """The workload would skip every fact until the log gets there."""
    value = msgspec.json.decode(STAGES["running"][1])
    value["status"]["log"]["fact"] = 10**15
    leader = Leader()
    leader.controller.load(KEY, msgspec.json.encode(value), 50, {})
    leader.revision, leader.sequence = 60, 100
    leader.controller.settle_load(3, 100)
    assert "10" in leader.controller.unreadable[KEY]
    leader.apply_fact(facts.Deactivated(**ME))
    assert b'"Evicted"' in leader.values[KEY]


def test_an_unreadable_claim_counts_as_one_of_a_lost_runner() -> None:
    claim = read_claim(Entry("ns.w.7", b"junk", 3))
    assert (claim.state.value, claim.runner) == ("expired", "")


def test_an_instance_key_without_expiry_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="no time to live"):
        instance_of(
            Entry("_alive.scheduler.a", encode(Alive(service="scheduler", instance="a")), 1)
        )


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1" * 20, "9" * 5000, "²", "1.0", None, b"\xff", str(2**63)]
)
def test_an_impossible_sequence_number_gives_none(text: str | bytes | None) -> None:
    assert number(text) is None


def test_how_deep_json_may_be_does_not_depend_on_the_caller() -> None:
    check_depth(nested_lists(LEVELS_MAX))
    check_depth(b'"' + b"[" * 1000 + b'"')
    check_depth(b"[{}]" * 1000)
    for data in (
        nested_lists(LEVELS_MAX + 1),
        b"[" * 10**6,
        b'{"a\\"[":' * 200,
        b'["' + b'\\"[' * 10**5,
    ):
        if data[:2] == b'["':
            check_depth(data)
            continue
        with pytest.raises(Unreadable, match="levels deep"):
            check_depth(data)


def _queue(stage: str) -> dict[str, Any]:
    if "parent" in stage:
        return FAMILIES
    return CHECKED if "check" in stage or "retry" in stage else {}


def _scheduler(**spec: Any) -> Scheduler:
    scheduler = Scheduler()
    for revision, manifest in enumerate(manifests(**spec).values(), 1):
        accepted: Any = accept(manifest).manifest
        meta = accepted.metadata
        scheduler.apply_object(accepted.kind, meta.namespace, meta.name, accepted, revision)
    for domain in scheduler.domains():
        scheduler.own(domain)
    return scheduler


def _decides(scheduler: Scheduler) -> None:
    for domain in scheduler.domains():
        scheduler.own(domain)
    for seconds in range(3):
        scheduler.cycle(now=NOON + timedelta(seconds=seconds))
    scheduler.refusals(now=NOON + timedelta(seconds=9))
    scheduler.next_wake()
    scheduler.usages_to_write(now=NOON)
    scheduler.explain("ns", "w", now=NOON)
    scheduler.pending(PendingQuery())
    scheduler.queues(Queues())


def deepest(data: bytes) -> int:
    """The deepest level of brackets outside of strings, byte by byte."""
    level = most = at = 0
    in_string = False
    while at < len(data):
        byte = data[at : at + 1]
        if in_string:
            at += byte == b"\\"
            in_string = byte != b'"'
        elif byte == b'"':
            in_string = True
        elif byte in b"[{":
            level += 1
            most = max(most, level)
        elif byte in b"]}":
            level -= 1
        at += 1
    return most


STRINGS: Final = [
    b'""',
    b'"a"',
    b'"[{"',
    b'"]"',
    b'"\\""',
    b'"\\\\"',
    b'"\\\\\\"[{"',
    b'"[\\n]\\u0022"',
]


@given(
    st.lists(
        st.sampled_from([b"[" * 40, b"{", b"]" * 40, b"}", b"a,", b"[]", b"{[]}", *STRINGS]),
        min_size=100,
        max_size=300,
    ),
    st.sampled_from([b"", b'"[', b'"\\', b'"\\"[']),
)
def test_the_depth_of_bytes_is_that_of_their_brackets(parts: list[bytes], end: bytes) -> None:
    data = b"".join([*parts, end])
    try:
        check_depth(data)
    except Unreadable:
        assert deepest(data) > LEVELS_MAX
    else:
        assert deepest(data) <= LEVELS_MAX
