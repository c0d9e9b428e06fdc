"""Between what travels and what a check sees: requests out of facts, messages out of verdicts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from admittance.checks.request import Reference, Request, Workload, parameters_of
from admittance.checks.verdicts import Pending, Ready, Retry, Verdict
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION
from admittance.events.codec import encode
from admittance.events.facts import CheckReported, CheckRequested, CheckWithdrawn
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bus import Outgoing
from admittance.runtime.telemetry import tracing
from admittance.sdk.bounds import sayable


class _Metadata(msgspec.Struct):
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Shown(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_shown = msgspec.json.Decoder(_Shown)


def request_of(
    fact: CheckRequested, headers: Mapping[str, str], shape: type[Any] | None
) -> Request:
    """What the check sees of fact. Raises BadParameters, and then ``bare_request_of`` does not."""
    request = bare_request_of(fact, headers)
    request.parameters = parameters_of(bytes(fact.parameters), shape)
    return request


def bare_request_of(fact: CheckRequested, headers: Mapping[str, str]) -> Request:
    """The same without its parameters."""
    raw = bytes(fact.workload)
    shown = _shown.decode(raw) if raw != b"null" else _Shown()
    request = Request(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        check=fact.check,
        cycle=fact.cycle,
        retry_count=fact.retry_count,
        admission=fact.admission,
        workload=Workload(bytes(shown.spec), shown.metadata.labels),
        traceparent=tracing.extract(headers),
    )
    request.raw = bytes(fact.parameters)
    request.revision = fact.revision
    return request


def same_as(fact: CheckRequested | CheckWithdrawn) -> tuple[str, str, str, str, int]:
    """What two facts about the same judgement have in common."""
    return (fact.uid, fact.namespace, fact.name, fact.check, fact.cycle)


def message_of(
    controller: str,
    about: Reference,
    verdict: Verdict,
    *,
    ordinal: int,
    secret: bytes,
    now: datetime,
) -> Outgoing:
    """The verdict as it travels.

    Its message id follows from what is said of which cycle, as the ``ordinal``-th: a request that
    is judged twice after a crash, with the same outcome, is answered once. ``secret`` keys it,
    since who guesses an id could silence what bears it.
    """
    fact = CheckReported(
        namespace=about.namespace,
        name=about.name,
        uid=about.uid,
        controller=controller,
        check=about.check,
        cycle=about.cycle,
        state=verdict.state,
        message=sayable(verdict.message),
        reason=verdict.reason if isinstance(verdict, Pending) else "",
        requeue_after_seconds=verdict.seconds() if isinstance(verdict, Retry) else None,
        pod_set_updates=verdict.updates() if isinstance(verdict, Ready) else (),
    )
    # Before the time is put in: it is another one when the same is said again.
    digest = hashlib.blake2b(key=secret[:64], digest_size=16)
    digest.update(b"%d/" % ordinal)
    digest.update(encode(fact))
    headers = {HEADER_MSG_ID: digest.hexdigest(), HEADER_SCHEMA: SCHEMA_VERSION}
    tracing.inject(headers, about.traceparent)
    said = msgspec.structs.replace(fact, time=now)
    return Outgoing(subject_of(said), encode(said), headers)
