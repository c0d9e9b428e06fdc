"""Expected errors of the bus, and the meaning of each error code of nats-server.

AdmittanceError
├── SetupError        the installation is wrong; the sentence says what to do
├── BusUnavailable    the bus did not answer; the outcome of the request is unknown
│   ├── NoServer          no server answers at the address
│   └── AccessDenied      the server refuses our credentials, certificate or permissions
├── Superseded        another instance with a newer epoch has taken over; stop
└── BusRefused        the bus refused the request and did nothing
    ├── StaleRevision     another writer was faster: load and decide anew
    ├── Fenced            we no longer lead the domain: stop deciding for it
    ├── Busy              no leader, or too much in flight: retry
    ├── Full              no room: a person must make room, then a retry succeeds
    ├── Repeated          an atomic batch has a message id that is on the log already
    └── TooBig            longer than the server accepts

`TABLE` alone decides what an error code means. A process ends only because of a setting that a
person must change, or because of a bug; it retries everything else. The table lists the codes that
the server publishes (`server/errors.json`, 2.15), as far as requests and messages of Admittance can
get them. For a code that is not listed, the HTTP-like status that comes with the error decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import nats.errors


class Meaning(Enum):
    """What an error of the server means, and so what the caller must do."""

    NOT_NOW = "nothing is wrong with the request: retry"
    FULL = "no room: a person must make room; retry seldom until then"
    SEQUENCE = "the expected revision or epoch is no longer the last one"
    REPEATED = "an atomic batch has a message id that the log has already"
    TOO_BIG = "longer than the server accepts"
    ABSENT = "there is no such stream, consumer or message"
    TAKEN = "the name is in use already"
    SETTING = "a setting of the server or of ours must be changed by a person"
    WRONG = "the request itself is wrong: a bug, or another version of the server"


NO_ANSWER: Final = 503
"""The status of a request for which no service and no stream listens."""
IN_PROCESS: Final = 10158
"""The server's code while it processes a message with the same message id; a retry gets the
outcome.
"""

_NOT_NOW: Final = {
    NO_ANSWER: "no stream takes this subject",
    10004: "incomplete results",
    10005: "no suitable peers for placement",
    10007: "JetStream cluster not assigned to this server",
    10008: "JetStream system temporarily unavailable",
    10009: "JetStream cluster can not handle request",
    10012: "consumer create failed",
    10041: "Raft general error",
    10048: "stream assignment failed",
    10049: "stream create failed",
    10050: "stream delete failed",
    10051: "stream general error",
    10069: "stream update failed",
    10072: "JetStream unable to open temp storage for restore",
    10075: "peer remap failed",
    10096: "stream not valid",
    10104: "error creating store for consumer",
    10110: "stream purge failed",
    10118: "stream is offline",
    10119: "consumer is offline",
    10124: "stream move already in progress",
    IN_PROCESS: "duplicate message id is in process",
    10163: "expected last sequence per subject temporarily unavailable",
    10164: "wrong last sequence: another message on that fence is in flight",
    10167: "too many requests",
    10176: "atomic publish batch is incomplete: it was abandoned, and nothing of it is stored",
    10202: "cluster member change is in progress",
    10210: "atomic publish too many inflight",
    10211: "batch publish too many inflight",
    10226: "stream reconfiguration already in progress",
}
_FULL: Final = {
    10002: "resource limits exceeded for account",
    10023: "insufficient resources",
    10026: "maximum consumers limit reached",
    10027: "maximum number of streams reached",
    10028: "insufficient memory resources available",
    10047: "insufficient storage resources available",
    10077: "stream store failed: maximum bytes or messages exceeded, or no space left",
}
_SETTING: Final = {
    10006: "JetStream not in clustered mode",
    10010: "JetStream clustering support required",
    10035: "account not found",
    10036: "not currently supported in clustered mode",
    10039: "JetStream not enabled for account",
    10052: "stream configuration invalid",
    10053: "stream limits exceed those of the account",
    10061: "Replicas configuration can not be updated",
    10065: "subjects overlap with an existing stream",
    10074: "replicas > 1 not supported in non-clustered mode",
    10076: "JetStream not enabled",
    10109: "invalid operation on sealed stream",
    10113: "account requires a stream config to have max bytes set",
    10120: "no JetStream default or applicable tiered limit present",
    10121: "consumer max ack pending exceeds system limit",
    10122: "stream max bytes exceeds account limit max stream bytes",
    10125: "consumer max request batch exceeds server limit",
    10153: "consumer inactive threshold exceeds system limit",
    10166: "per-message TTL is disabled",
    10174: "atomic publish is disabled",
    10185: "JetStream minimum api level required",
    10188: "message schedules is disabled",
    10194: "stream is offline: this server is too old for it",
    10195: "consumer is offline: this server is too old for it",
    10199: "atomic publish batch is too large",
}
_SEQUENCE: Final = {
    10070: "wrong last msg ID",
    10071: "wrong last sequence",
}
_ABSENT: Final = {
    10014: "consumer not found",
    10037: "no message found",
    10043: "sequence not found",
    10059: "stream not found",
    10149: "consumer does not exist",
}
_TAKEN: Final = {
    10013: "consumer name already in use",
    10058: "stream name already in use with a different configuration",
    10105: "consumer already exists and is still active",
    10148: "consumer already exists",
}
_TOO_BIG: Final = {
    10054: "message size exceeds maximum allowed",
    10097: "header size exceeds maximum allowed of 64k",
}
_REPEATED: Final = {10201: "atomic publish batch contains duplicate message id"}
_WRONG: Final = {
    10003: "bad request",
    10025: "invalid JSON",
    10056: "stream name in subject does not match request",
    10060: "expected stream does not match",
    10093: "consumer filter subject is not a valid subset of the interest subjects",
    10094: "consumer policy invalid",
    10111: "stream rollup failed",
    10165: "invalid per-message TTL",
    10175: "atomic publish sequence is missing",
    10177: "atomic publish unsupported header used",
    10179: "atomic publish batch ID is invalid",
    10189: "message schedules pattern is invalid",
    10190: "message schedules target is invalid",
    10191: "message schedules invalid per-message TTL",
    10192: "message schedules invalid rollup",
    10193: "missing sequence for expected last sequence per subject",
    10200: "atomic publish batch commit is invalid",
}

TABLE: Final[Mapping[int, Meaning]] = MappingProxyType(
    {
        code: meaning
        for meaning, codes in (
            (Meaning.NOT_NOW, _NOT_NOW),
            (Meaning.FULL, _FULL),
            (Meaning.SETTING, _SETTING),
            (Meaning.SEQUENCE, _SEQUENCE),
            (Meaning.ABSENT, _ABSENT),
            (Meaning.TAKEN, _TAKEN),
            (Meaning.TOO_BIG, _TOO_BIG),
            (Meaning.REPEATED, _REPEATED),
            (Meaning.WRONG, _WRONG),
        )
        for code in codes
    }
)
"""The meaning of every error code that this module lists."""


def meaning(code: int, status: int = 400) -> Meaning:
    """Returns what an error code means. ``status``: the HTTP-like status of the error, which
    decides for codes not in `TABLE`: server errors (5xx) and too many requests (429) are retried.
    """
    known = TABLE.get(code)
    if known is not None:
        return known
    return Meaning.NOT_NOW if status >= 500 or status == 429 else Meaning.WRONG


class AdmittanceError(Exception):
    """An expected error of the bus, not a bug."""


class SetupError(AdmittanceError):
    """The installation of Admittance or its server is wrong. The text of the error says in one line
    what is wrong and what to do.
    """


class BusUnavailable(AdmittanceError):
    """The bus did not answer in time. nats-server may or may not have carried out the unanswered
    request.
    """


class NoResponders(BusUnavailable):
    """Nothing subscribes to the subject of a request, so the request was not carried out."""


class NoAnswer(BusUnavailable):
    """A service may have received the request, but no answer came in time."""


class NoServer(BusUnavailable):
    """No nats-server answers at the address. A service retries the connection: the server may be
    about to start.
    """


class AccessDenied(BusUnavailable):
    """The server refuses the process's credentials, certificate or permissions. A command ends with
    this error; a service logs it and retries, because the server's settings may be corrected.
    """


class Superseded(AdmittanceError):
    """An instance with a newer epoch has taken over the consumer of this instance."""


class BusRefused(AdmittanceError):
    """nats-server refused the request and changed nothing. ``code`` is the server's error code."""

    def __init__(self, code: int, description: str, meaning: Meaning = Meaning.WRONG) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code
        self.description = description
        self.meaning = meaning


class StaleRevision(BusRefused):
    """The revision that a message expected is no longer the last revision of the message's key."""


class Fenced(BusRefused):
    """The epoch in the fence of a message is no longer the domain's last epoch."""


class Busy(BusRefused):
    """JetStream has no leader, or too many requests are in flight. The request that JetStream
    refused as busy is valid itself.
    """


class Full(BusRefused):
    """The server has no room on the disk, in memory, or within the limits of the account."""


class Repeated(BusRefused):
    """A message id of an atomic batch is on the log already, so the whole batch was refused. Most
    likely the same atomic batch is stored already.
    """


class TooBig(BusRefused):
    """Message and headers are longer than the server's max_payload."""


def refusal(code: int, description: str, *, status: int = 400, fenced: bool = False) -> BusRefused:
    """The exception for an error that the server answered. ``status``: the HTTP-like status of the
    error. ``fenced``: the message had a fence and no expected revision, so a wrong sequence means a
    stale fence.
    """
    meant = meaning(code, status)
    kind = _CLASSES.get(meant, BusRefused)
    if meant is Meaning.SEQUENCE and fenced:
        kind = Fenced
    return kind(code, description, meant)


_CLASSES: Final = {
    Meaning.SEQUENCE: StaleRevision,
    Meaning.NOT_NOW: Busy,
    Meaning.FULL: Full,
    Meaning.REPEATED: Repeated,
    Meaning.TOO_BIG: TooBig,
}


def is_temporary(error: BaseException) -> bool:
    """Whether a retry can succeed without a change of settings: the server gave no answer, is busy,
    or has no room. An error for which no retry can succeed needs a person to change a setting, or
    is a bug.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_temporary(exception) for exception in error.exceptions)
    return isinstance(error, PASSING)


PASSING: Final = (
    BusUnavailable,
    Busy,
    Full,
    # These error classes of nats-py mean that a connection is lost or being re-established.
    ConnectionError,
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionDrainingError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.NoRespondersError,
    nats.errors.NoServersError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.StaleConnectionError,
    nats.errors.TimeoutError,
    nats.errors.UnexpectedEOF,
)
