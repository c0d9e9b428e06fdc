"""The errors of nats-server, and the exceptions that follow. Every error of the table that can be
provoked is provoked here; the others are listed with their meaning, so that a change is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from benchmarks.harness.server_cluster import ServerCluster

from admittance.runtime import errors
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import (
    BusRefused,
    BusUnavailable,
    Busy,
    Fenced,
    Full,
    Meaning,
    Repeated,
    SetupError,
    StaleRevision,
    TooBig,
    is_temporary,
    refusal,
)
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from support.servers import LIMIT, within

ACCOUNTS = """
accounts {
  BARE { users: [ { user: bare, password: p } ] }
  TIGHT {
    jetstream {
      max_streams: 1, max_consumers: 1, max_mem: 1024, max_file: 0
    }
    users: [ { user: tight, password: p } ]
  }
  STRICT {
    jetstream { max_file: 65536, max_bytes_required: true, disk_max_stream_bytes: 4096 }
    users: [ { user: strict, password: p } ]
  }
  MAIN { jetstream: enabled, users: [ { user: main, password: p } ] }
  SYS { users: [ { user: sys, password: p } ] }
}
system_account: SYS
no_auth_user: main
"""
PLAIN = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
LIMITED = {
    "name": "L",
    "subjects": ["l.>"],
    "storage": "memory",
    "max_msgs": 2,
    "max_msg_size": 100,
    "discard": "new",
    "allow_atomic": True,
    "allow_msg_ttl": True,
}
SCHEDULED = {
    "name": "C",
    "subjects": ["c.>"],
    "storage": "memory",
    "allow_msg_schedules": True,
    "allow_msg_ttl": True,
    "allow_atomic": True,
}
LATER = "@at 2099-01-01T00:00:00Z"


class Server:
    """A server with accounts, and a connection to each that has JetStream."""

    def __init__(self, bus: Bus, tight: Bus, strict: Bus) -> None:
        self.bus = bus
        self.tight = tight
        self.strict = strict


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    config = EmbeddedServer._config
    monkeypatch.setattr(EmbeddedServer, "_config", lambda self, port: config(self, port) + ACCOUNTS)
    server = EmbeddedServer(tmp_path / "data")
    url = await server.start()
    bus = await Bus.connect(url, name="errors")
    tight = await Bus.connect(url.replace("//", "//tight:p@"), name="tight")
    strict = await Bus.connect(url.replace("//", "//strict:p@"), name="strict")
    for stream in (PLAIN, LIMITED, SCHEDULED):
        await bus.api(f"STREAM.CREATE.{stream['name']}", stream)
    await bus.api("CONSUMER.CREATE.S.c", consumer("c"))
    await tight.api("STREAM.CREATE.A", {"name": "A", "storage": "memory", "max_bytes": 500})
    await tight.api("CONSUMER.CREATE.A.c", consumer("c", stream="A"))
    yield Server(bus, tight, strict)
    for each in (bus, tight, strict):
        await each.close()
    await server.stop()


def consumer(name: str, *, stream: str = "S", **settings: Any) -> dict[str, Any]:
    action = settings.pop("action", "")
    config = {"durable_name": name, "name": name, "ack_policy": "explicit", **settings}
    return {"stream_name": stream, "config": config, "action": action}


Provoke = Callable[[Server], Awaitable[Any]]


def api(what: str, payload: Mapping[str, Any] | None = None) -> Provoke:
    return lambda server: server.bus.api(what, payload)


def tight(what: str, payload: Mapping[str, Any]) -> Provoke:
    return lambda server: server.tight.api(what, payload)


def strict(what: str, payload: Mapping[str, Any]) -> Provoke:
    return lambda server: server.strict.api(what, payload)


def said(subject: str, data: bytes = b"x", /, **headers: str) -> Provoke:
    made = {"Nats-" + name.replace("_", "-"): value for name, value in headers.items()}
    return lambda server: server.bus.publish(Outgoing(subject, data, made), timeout=0.2)


def batch(identity: str, **headers: str) -> Provoke:
    return said("c.batch", Batch_Id=identity, Batch_Sequence="1", Batch_Commit="1", **headers)


async def _full(server: Server) -> None:
    for _ in range(3):
        await server.bus.publish(Outgoing("l.full", b"x"))


async def _repeated(server: Server) -> None:
    await server.bus.publish(Outgoing("c.first", b"x", {"Nats-Msg-Id": "once"}))
    await batch("again", Msg_Id="once")(server)


async def _too_many_batches(server: Server) -> None:
    for number in range(60):
        headers: dict[str, Any] = {"Nats-Batch-Id": f"open-{number}", "Nats-Batch-Sequence": "1"}
        await server.bus.nc.publish("l.open", b"x", headers=headers)
    await said("l.open", Batch_Id="one more", Batch_Sequence="1")(server)


async def _too_large(server: Server) -> None:
    for number in range(1, 1002):
        headers: dict[str, Any] = {"Nats-Batch-Id": "large", "Nats-Batch-Sequence": str(number)}
        await server.bus.nc.publish("c.large", b"x", headers=headers)
    await said("c.large", Batch_Id="large", Batch_Sequence="1002", Batch_Commit="1")(server)


async def _sealed(server: Server) -> None:
    sealed = {"name": "Z", "subjects": ["z"], "storage": "memory"}
    await server.bus.api("STREAM.CREATE.Z", sealed)
    await server.bus.api("STREAM.UPDATE.Z", {**sealed, "sealed": True})
    await server.bus.publish(Outgoing("z", b"x"))


PROVOKED: Mapping[int, tuple[Provoke, type[BusRefused]]] = {
    10003: (api("STREAM.MSG.GET.S", {}), BusRefused),
    10012: (api("CONSUMER.CREATE.S.c", consumer("c", ack_policy="all")), Busy),
    10014: (api("CONSUMER.INFO.S.none"), BusRefused),
    10026: (tight("CONSUMER.CREATE.A.d", consumer("d", stream="A")), Full),
    10027: (tight("STREAM.CREATE.B", {"name": "B", "storage": "memory", "max_bytes": 1}), Full),
    10037: (api("STREAM.MSG.GET.S", {"last_by_subj": "s.none"}), BusRefused),
    10052: (api("STREAM.UPDATE.S", {**PLAIN, "storage": "file"}), BusRefused),
    10054: (said("l.a", b"x" * 200), TooBig),
    10056: (api("STREAM.CREATE.X", PLAIN), BusRefused),
    10058: (api("STREAM.CREATE.S", {**PLAIN, "subjects": ["other"]}), BusRefused),
    10059: (api("STREAM.INFO.None"), BusRefused),
    10060: (said("s.a", Expected_Stream="L"), BusRefused),
    10065: (api("STREAM.CREATE.X", {**PLAIN, "name": "X"}), BusRefused),
    10070: (said("s.a", Expected_Last_Msg_Id="none"), StaleRevision),
    10071: (said("s.a", Expected_Last_Subject_Sequence="99"), StaleRevision),
    10074: (api("STREAM.CREATE.X", {"name": "X", "num_replicas": 3}), BusRefused),
    10077: (_full, Full),
    10094: (
        api("CONSUMER.CREATE.S.x", consumer("x", deliver_policy="by_start_sequence")),
        BusRefused,
    ),
    10097: (said("s.a", Long="x" * 70_000), TooBig),
    10109: (_sealed, BusRefused),
    10111: (said("s.a", Rollup="sub"), BusRefused),
    10113: (strict("STREAM.CREATE.B", {"name": "B", "storage": "file"}), BusRefused),
    10122: (
        strict("STREAM.CREATE.B", {"name": "B", "storage": "file", "max_bytes": 8192}),
        BusRefused,
    ),
    10148: (
        api("CONSUMER.CREATE.S.c", consumer("c", ack_policy="none", action="create")),
        BusRefused,
    ),
    10149: (api("CONSUMER.CREATE.S.x", consumer("x", action="update")), BusRefused),
    10165: (said("l.a", TTL="soon"), BusRefused),
    10166: (said("s.a", TTL="5s"), BusRefused),
    10174: (said("s.a", Batch_Id="b", Batch_Sequence="1", Batch_Commit="1"), BusRefused),
    10175: (said("l.a", Batch_Id="b"), BusRefused),
    10176: (said("l.a", Batch_Id="nothing before", Batch_Sequence="3"), Busy),
    10177: (batch("u", Expected_Last_Msg_Id="e"), BusRefused),
    10179: (batch("x" * 70), BusRefused),
    10188: (said("s.a", Schedule=LATER, Schedule_Target="s.b"), BusRefused),
    10189: (said("c.a", Schedule="whenever", Schedule_Target="c.b"), BusRefused),
    10190: (said("c.a", Schedule=LATER, Schedule_Target="elsewhere"), BusRefused),
    10191: (
        said("c.a", Schedule=LATER, Schedule_Target="c.b", Schedule_TTL="soon"),
        BusRefused,
    ),
    10192: (
        said("c.a", Schedule=LATER, Schedule_Target="c.b", Rollup="all"),
        BusRefused,
    ),
    10193: (said("s.a", Expected_Last_Subject_Sequence_Subject="s.b"), BusRefused),
    10199: (_too_large, BusRefused),
    10200: (
        said("l.a", Batch_Id="m", Batch_Sequence="1", Batch_Commit="maybe"),
        BusRefused,
    ),
    10201: (_repeated, Repeated),
    10210: (_too_many_batches, Busy),
}


async def test_each_error_of_a_server_has_its_meaning(server: Server) -> None:
    outcomes = {}
    for code, (provoke, _) in PROVOKED.items():
        try:
            await within(provoke(server))
        except BusRefused as error:
            outcomes[code] = (error.code, type(error))
        else:
            outcomes[code] = (0, BusRefused)
    assert outcomes == {code: (code, kind) for code, (_, kind) in PROVOKED.items()}


async def test_an_account_without_jetstream_is_a_setting(server: Server) -> None:
    url = f"nats://bare:p@{server.bus.nc.connected_url.netloc.rpartition('@')[2]}"
    with pytest.raises(SetupError, match="has no JetStream for this account"):
        await Bus.connect(url, name="bare")


async def test_a_request_to_a_cluster_without_leader_is_retried(tmp_path: Path) -> None:
    cluster = ServerCluster(tmp_path)
    try:
        await cluster.start()
        await cluster.formed()
        bus = await Bus.connect(cluster.url_of(0), name="errors")
        with pytest.raises(Busy, match="10005"):
            await bus.api("STREAM.CREATE.F", {"name": "F", "num_replicas": 5})
        await bus.api("STREAM.CREATE.Q", {"name": "Q", "subjects": ["q"], "num_replicas": 3})
        await _until_repeats_are_in_process(bus)
        many = [Outgoing("q", b"x", {"Nats-Msg-Id": "the same"})] * 50
        assert len(set(await within(bus.publish_all(many)))) == 1
        for number in (1, 2):
            await cluster.kill(number)
        await _until_there_is_no_quorum(bus)
        with pytest.raises(BusUnavailable, match="has no leader"):
            await Bus.connect(cluster.url_of(0), name="late")
        await bus.close()
    finally:
        await cluster.stop()


async def _until_repeats_are_in_process(bus: Bus) -> None:
    """Publishes the same message twice at once, until the server still processes the first."""
    for number in range(1000):
        headers: dict[str, Any] = {"Nats-Msg-Id": f"twice-{number}"}
        answers = await asyncio.gather(
            *(bus.nc.request("q", b"x", headers=headers, timeout=LIMIT) for _ in range(5))
        )
        if any(b"10158" in answer.data for answer in answers):
            return
    raise AssertionError("the server was never busy with the first")


async def _until_there_is_no_quorum(bus: Bus) -> None:
    for _ in range(100):
        try:
            await bus.api("STREAM.CREATE.R", {"name": "R", "num_replicas": 3}, timeout=1.0)
        except Busy as error:
            assert error.code == 10008
            return
        except BusUnavailable:
            continue
    raise AssertionError("the cluster still has a quorum")


NOT_PROVOKED: Mapping[Meaning, set[int]] = {
    Meaning.NOT_NOW: {
        *(503, 10004, 10005, 10007, 10008, 10009, 10041, 10048, 10049, 10050, 10051, 10069),
        *(10072, 10075, 10096, 10104, 10110, 10118, 10119, 10124, 10158, 10163, 10164, 10167),
        *(10202, 10211, 10226),
    },
    Meaning.FULL: {10002, 10023, 10028, 10047},
    Meaning.SETTING: {
        *(10006, 10010, 10035, 10036, 10039, 10053, 10061, 10076, 10120, 10121, 10125, 10153),
        *(10185, 10194, 10195),
    },
    Meaning.ABSENT: {10043},
    Meaning.TAKEN: {10013, 10105},
    Meaning.WRONG: {10025, 10093},
}
"""The rest of the table: provoked on a cluster, or by no request that a test can make."""


def test_the_errors_that_are_not_provoked_are_listed() -> None:
    rest: dict[Meaning, set[int]] = {}
    for code, meaning in errors.TABLE.items():
        if code not in PROVOKED:
            rest.setdefault(meaning, set()).add(code)
    assert rest == NOT_PROVOKED


@pytest.mark.parametrize(
    ("status", "meaning"),
    [(400, Meaning.WRONG), (404, Meaning.WRONG), (429, Meaning.NOT_NOW), (503, Meaning.NOT_NOW)],
)
def test_the_status_decides_for_an_error_that_is_not_listed(status: int, meaning: Meaning) -> None:
    assert errors.meaning(19999, status) is meaning


@pytest.mark.parametrize(
    ("error", "claim"),
    [
        pytest.param(BusUnavailable("no answer"), True, id="no answer"),
        pytest.param(refusal(10008, ""), True, id="not now"),
        pytest.param(refusal(10047, ""), True, id="no room"),
        pytest.param(
            ExceptionGroup("", [BusUnavailable("")]), True, id="no answer to one of several"
        ),
        pytest.param(nats.errors.ConnectionReconnectingError(), True, id="a lost connection"),
        pytest.param(refusal(10074, ""), False, id="a setting"),
        pytest.param(refusal(10003, ""), False, id="a wrong request"),
        pytest.param(SetupError("wrong"), False, id="a wrong installation"),
        pytest.param(ValueError("a bug"), False, id="a bug"),
        pytest.param(Fenced(10071, ""), False, id="a fence"),
    ],
)
def test_only_temporary_errors_are_retried(error: BaseException, claim: bool) -> None:
    assert is_temporary(error) is claim
