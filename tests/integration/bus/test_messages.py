"""Failed messages, failed requests, and message ids."""

from __future__ import annotations

import msgspec
import pytest
from nats.aio.msg import Msg

from admittance.events.codec import Undecodable, decode
from admittance.events.requests.services import Health, HealthReply
from admittance.events.subjects import ALIVE_INSTANCE
from admittance.events.system import DeadLetter
from admittance.runtime.bus import messages
from admittance.runtime.bus.bucket import get, put_message
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.messages import (
    SECRET_KEY,
    deployment_secret,
    forget_earlier_secret,
    known_secret,
    message_id,
)
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats import micro
from admittance.runtime.nats.reconnecting_client import REQUESTS
from support.nats.system_subjects import endpoints
from support.servers import LIMIT, until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]


async def letters(bus: Bus, payloads: list[bytes]) -> list[DeadLetter]:
    """The dead letters of these payloads, published as submissions."""
    await bus.publish_all(
        [Outgoing("admit.workload.submitted.a.b", data, {"Who": "me"}) for data in payloads]
    )
    puller = Puller(bus, "reader", ["admit.workload.>"])
    deliveries: list[Delivery] = []
    while len(deliveries) < len(payloads):
        deliveries += await within(puller.batch())
    bad = []
    for delivery in deliveries:
        with pytest.raises(Undecodable) as caught:
            decode(delivery.subject, delivery.data)
        bad.append(messages.UnusableDelivery(delivery, str(caught.value)))
    await messages.publish_dead_letters(bus, "reader", bad)
    await puller.close()
    graves = Puller(bus, "graves", ["admit.deadletter.>"])
    letters: list[Delivery] = []
    while len(letters) < len(payloads):
        letters += await within(graves.batch())
    await graves.close()
    assert {grave.subject for grave in letters} == {"admit.deadletter.reader"}
    return [msgspec.json.decode(grave.data, type=DeadLetter) for grave in letters]


async def test_a_dead_letter_keeps_bytes_subject_and_reason(bus: Bus) -> None:
    text, binary = await letters(bus, [b"no json", b"\xff\xfe"])
    assert (text.subject, text.sequence) == ("admit.workload.submitted.a.b", 1)
    assert text.data == "no json"
    assert "malformed" in text.reason
    assert text.headers == {"Who": "me"}
    assert binary.data is None
    assert binary.data64 == b"\xff\xfe"


async def test_a_long_payload_is_cut_and_marked_as_truncated(bus: Bus) -> None:
    plain, control = await letters(bus, [b"x" * 1_000_000, b"\x01" * 1_000_000])
    assert plain.truncated
    assert plain.data == "x" * messages.PAYLOAD_MAX
    assert control.truncated
    assert control.data64 == b"\x01" * messages.PAYLOAD_MAX


async def test_one_bad_request_does_not_affect_later_requests(bus: Bus) -> None:
    async def health(data: bytes, subject: str) -> HealthReply:
        msgspec.json.decode(data, type=Health)
        if b"bug" in data:
            raise RuntimeError("a bug")
        return HealthReply(service="s", instance=subject)

    service = await micro.serve(bus.nc, "scheduler", "i-1", {"admit.api.health": health})
    for bad in (b"", b"\xff", b"[1]", b"[" * 100_000, b'{"bug": 1}'):
        answer = await bus.nc.request("admit.api.health", bad, timeout=LIMIT)
        assert answer.headers is not None
        assert answer.headers["Nats-Service-Error-Code"] in ("400", "500")
        assert msgspec.json.decode(answer.data, type=HealthReply).error
    good = await bus.request("admit.api.health", b"{}")
    assert msgspec.json.decode(good, type=HealthReply).instance == "admit.api.health"
    assert b"scheduler" in await bus.request("$SRV.PING", b"")
    await service.stop()


async def test_the_secret_is_created_once_and_keys_the_message_ids(bus: Bus) -> None:
    # A service that may not write the key leaves it alone: a refusal would be told as a bug.
    with pytest.raises(BusUnavailable, match="has not made the secret"):
        await known_secret(bus)
    secret = await deployment_secret(bus)
    assert await deployment_secret(bus) == await known_secret(bus) == secret
    assert await get(bus, SECRET_KEY) is None, "users may read this bucket"
    assert message_id(secret, "uid", 7, "admitted") == message_id(secret, "uid", 7, "admitted")
    assert message_id(secret, "uid", 7, "admitted") != message_id(b"guess", "uid", 7, "admitted")


async def test_the_secret_of_an_earlier_version_is_moved(bus: Bus) -> None:
    await bus.publish(put_message(SECRET_KEY, b"earlier", expected=0))
    assert await known_secret(bus) == b"earlier"
    assert await deployment_secret(bus) == b"earlier"
    await forget_earlier_secret(bus)
    await forget_earlier_secret(bus)
    gone = await get(bus, SECRET_KEY)
    assert gone is not None
    assert gone.value is None
    assert await deployment_secret(bus) == b"earlier"


@pytest.mark.servers("real")
async def test_a_request_with_the_subject_of_a_fact_for_its_answer_is_dropped(bus: Bus) -> None:
    asked: list[bytes] = []

    async def health(data: bytes, _subject: str) -> HealthReply:
        asked.append(data)
        return HealthReply(service="runner", instance="i-1", ready=True)

    service = await micro.serve(bus.nc, "runner", "i-1", {"admit.api.health": health})
    received: list[str] = []

    async def on_message(message: Msg) -> None:
        received.append(message.subject)

    chosen = "admit.workload.finished.other.job", "$KV.admittance_claims.other.job.7"
    for chosen_subject in chosen:
        await bus.nc.subscribe(chosen_subject, cb=on_message)
        for subject in ("admit.api.health", "$SRV.PING"):
            await bus.nc.publish(subject, b"chosen", reply=chosen_subject)
    answer = await bus.nc.request("admit.api.health", b"inbox", timeout=LIMIT)
    assert msgspec.json.decode(answer.data, type=HealthReply).ready
    assert asked == [b"inbox"]
    assert received == []
    await service.stop()


@pytest.mark.servers("real")
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("subject", ["INBOX", "admit.workload.submitted.ns.w", "admit.lease.x"])
async def test_messages_that_are_not_requests_have_any_reply_subject(
    bus: Bus, subject: str, direct: bool
) -> None:
    subject = subject.replace("INBOX", bus.nc.new_inbox())
    received: list[str] = []

    async def on_message(message: Msg) -> None:
        received.append(message.reply)

    if direct:
        await bus.nc.listen(subject, lambda _, reply, *_rest: received.append(reply.decode()))
    else:
        await bus.nc.subscribe(subject, cb=on_message)
    replies = [
        *("$JS.SNAPSHOT.ACK.ADMITTANCE.x.131072.1", "$JS.FC.ADMITTANCE.x.y"),
        *("$O.a.b", "$KV.a.b", "$JS.API.INFO", "admit.x", ""),
    ]
    for reply in replies:
        await bus.nc.publish(subject, b"x", reply=reply)
    await until(lambda: len(received) == len(replies))
    assert received == replies


def test_every_endpoint_has_the_subject_of_a_request() -> None:
    for subject in endpoints():
        assert subject.encode().startswith(REQUESTS), subject
    assert ALIVE_INSTANCE.encode().startswith(REQUESTS)
