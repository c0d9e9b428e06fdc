"""Bytes to facts and back. Bytes that are not a fact raise `Undecodable` with the reason."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from admittance.events import facts, provisioning
from admittance.events.base import Fact, too_deep
from admittance.events.names import BadToken
from admittance.events.reader import BROKEN, decode_readable, reason_of
from admittance.events.subjects import address_of

MAX_PAYLOAD: Final = 1_000_000
"""The most bytes of a payload. The server's limit of 1 MiB includes the headers."""
SUBJECT_MAX: Final = 1024
"""The most bytes of a subject, enough for several Kubernetes names. Facts that follow from a fact
have longer subjects than the fact, and at 4,096 bytes the server closes the connection.
"""
UID_MAX: Final = 128
"""The most characters of a workload's uid, which every fact about the workload repeats."""

WITH_UPDATES: Final = (facts.CheckReported, provisioning.ProvisioningStatus)

_encoder = msgspec.json.Encoder()
encode = _encoder.encode
"""The JSON of any Struct."""


class Undecodable(ValueError):
    """The error for a message that is not a fact: the bytes, the type or the subject are wrong."""


@lru_cache(maxsize=256)
def _decoder(kind: type[Fact]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(subject: str, data: bytes) -> Fact:
    """The fact that was published on ``subject``.

    Raises Undecodable if the bytes are not JSON of the kind of fact that the subject names, or if
    payload and subject name different workloads.
    """
    if len(subject) > SUBJECT_MAX:
        raise Undecodable(f"the subject is {len(subject)} bytes long, {SUBJECT_MAX} are allowed")
    try:
        kind, detail, namespace, name = address_of(subject)
    except BadToken as error:
        raise Undecodable(str(error)) from error
    if not (detail.isascii() and namespace.isascii() and name.isascii()):
        for part in (detail, namespace, name):
            if not _is_text(part):
                raise Undecodable(f"{part!r} in the subject is not valid Unicode text")
    try:
        fact: Fact = decode_readable(_decoder(kind).decode, data)
    except BROKEN as error:
        raise Undecodable(
            f"the payload is not a valid {kind.__name__}: {reason_of(error)}"
        ) from error
    if fact.namespace != namespace or fact.name != name:
        raise Undecodable(
            f"the payload is about the workload {fact.namespace}/{fact.name}, "
            f"its subject about {namespace}/{name}"
        )
    if len(fact.uid) > UID_MAX:
        raise Undecodable(
            f"the workload's uid has {len(fact.uid)} characters, {UID_MAX} are allowed"
        )
    # Most facts are about workloads only, and their subjects contain no detail.
    return _with_detail(fact, detail) if detail else fact


def _with_detail(fact: Fact, detail: str) -> Fact:
    """The fact with the detail of its subject. Raises Undecodable if the payload contradicts the
    subject's detail.
    """
    if isinstance(fact, WITH_UPDATES) and fact.pod_set_updates:
        tolerations = [update.tolerations for update in fact.pod_set_updates]
        if why := too_deep("podSetUpdates", tolerations):
            raise Undecodable(why)
    match fact:
        case facts.CheckReported(controller=""):
            # The subject fills in a name that the payload lacks: permissions guard subjects, so the
            # name can be trusted.
            return msgspec.structs.replace(fact, controller=detail)
        case facts.CheckReported() | facts.CheckRequested() | facts.CheckWithdrawn():
            if fact.controller != detail:
                raise Undecodable(
                    f"the payload names the controller {fact.controller}, "
                    f"its subject names {detail}"
                )
        case provisioning.ProvisioningFact(provisioning_class=""):
            return msgspec.structs.replace(fact, provisioning_class=detail)
        case provisioning.ProvisioningFact() if fact.provisioning_class != detail:
            raise Undecodable(
                f"the payload names the class {fact.provisioning_class}, its subject names {detail}"
            )
        case facts.TimerDue() if fact.kind != detail:
            raise Undecodable(
                f"the payload names the timer {fact.kind}, its subject names {detail}"
            )
    return fact


def _is_text(name: str) -> bool:
    """Whether the name can be encoded as JSON; a lone surrogate cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
