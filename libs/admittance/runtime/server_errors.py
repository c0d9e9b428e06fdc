"""What each error code of nats-server means for the process that gets it.

This is the one place that decides. A process ends only for a setting that a person must change, or
for a bug; everything else is asked again. The codes are those that the server publishes
(`server/errors.json`, 2.15) as far as our requests and messages can get them. A code that is not
listed is judged by the HTTP-like status that comes with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class Meaning(Enum):
    """What to do about an error of the server."""

    NOT_NOW = "nothing is wrong with the request: ask again"
    FULL = "no room: a person must make some, and until then it is asked again, seldom"
    SEQUENCE = "the expected revision or epoch is no longer the last one"
    REPEATED = "an atomic batch has a message id that the log has already"
    TOO_BIG = "longer than the server takes"
    ABSENT = "there is no such stream, consumer or message"
    TAKEN = "there is one of that name already"
    SETTING = "a setting of the server or of ours must be changed by a person"
    WRONG = "the request itself is wrong: a bug, or another version of the server"


NO_ANSWER: Final = 503
"""The status of a request that no service and no stream listens to."""
IN_PROCESS: Final = 10158
"""The same message id is on its way already; what became of it is told when asked again."""

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
"""The meaning of every listed code."""


def meaning(code: int, status: int = 400) -> Meaning:
    """What the error means. ``status``: the HTTP-like one beside it, for codes not listed here: a
    server that fails (5xx), or wants less at once (429), is asked again."""
    found = TABLE.get(code)
    if found is not None:
        return found
    return Meaning.NOT_NOW if status >= 500 or status == 429 else Meaning.WRONG
