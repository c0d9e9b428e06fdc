"""The faults of single messages of a check controller."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.conformance.check_requester import CheckRequestKey, parse_verdict, verdict_subject
from admittance.conformance.requester import heartbeat_faults
from admittance.events.system import CheckAlive

ASKED = CheckRequestKey("example.com/c", "ns-1", "train.7", "uid-7", "budget", 7)
RIGHT = {
    "namespace": "ns-1",
    "name": "train.7",
    "uid": "uid-7",
    "check": "budget",
    "cycle": 7,
    "state": "Retry",
    "message": "spent",
    "requeueAfterSeconds": 60,
}


def test_the_subject_of_a_verdict_is_made_of_tokens() -> None:
    assert verdict_subject(ASKED) == "admit.check.reported.example_com=2Fc.ns-1.train_7"


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="all fields"),
        pytest.param({"uid": None, "message": None, "requeueAfterSeconds": None}, id="the least"),
        pytest.param({"fromTheFuture": [1]}, id="a field that we do not know"),
        pytest.param({"requeueAfterSeconds": 0}, id="no delay, said as 0"),
        pytest.param({"requeueAfterSeconds": 604_800}, id="seven days"),
        pytest.param({"requeueAfterSeconds": "8m0s"}, id="a duration"),
        pytest.param(
            {"state": "Pending", "reason": "PreemptionRequired", "requeueAfterSeconds": None},
            id="a reason",
        ),
        pytest.param(
            {
                "state": "Ready",
                "requeueAfterSeconds": None,
                "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}],
            },
            id="something added to the pods",
        ),
    ],
)
def test_a_right_verdict_has_no_faults(said: dict[str, Any]) -> None:
    content = {key: value for key, value in {**RIGHT, **said}.items() if value is not None}
    looked = parse_verdict(verdict_subject(ASKED), msgspec.json.encode(content), ASKED)
    assert looked.faults == ()
    assert looked.content is not None


@pytest.mark.parametrize(
    ("said", "case", "sentence"),
    [
        pytest.param({"cycle": 6}, "names", "cycle 6", id="another cycle"),
        pytest.param({"check": "c"}, "names", "check 'c'", id="another check"),
        pytest.param({"uid": "u"}, "names", "uid 'u'", id="another uid"),
        pytest.param(
            {"name": "train_7"}, "names", "'train_7'", id="an escaped name in the payload"
        ),
        pytest.param({"controller": "c"}, "names", "controller 'c'", id="another controller"),
        pytest.param({"cycle": "7"}, "json", "int", id="a cycle in quotes"),
        pytest.param({"cycle": None}, "json", "left out cycle", id="no cycle"),
        pytest.param({"state": "ready"}, "state", "'ready'", id="a state in lower case"),
        pytest.param({"state": 1}, "state", "1", id="a state that is a number"),
        pytest.param({"requeueAfterSeconds": -1}, "delay", "negative", id="a negative delay"),
        pytest.param({"requeueAfterSeconds": 604_801}, "delay", "seven days", id="a long delay"),
        pytest.param({"requeueAfterSeconds": 1.5}, "delay", "whole", id="half a second"),
        pytest.param({"requeueAfterSeconds": "soon"}, "delay", "whole", id="a delay in words"),
        pytest.param({"requeueAfterSeconds": "999h"}, "delay", "seven days", id="a long duration"),
        pytest.param(
            {"reason": "BookCapacity"}, "json", "only Pending", id="a reason of another state"
        ),
        pytest.param({"state": "Ready"}, "delay", "only Retry", id="a delay of a Ready"),
        pytest.param(
            {"podSetUpdates": [{"name": "main"}]}, "updates", "ignored", id="updates of a Retry"
        ),
        pytest.param(
            {"state": "Ready", "podSetUpdates": [{"name": "a"}]},
            "updates",
            "'a'",
            id="no such pod set",
        ),
        pytest.param(
            {"state": "Pending", "reason": "Tired"}, "json", "'Tired'", id="an unknown reason"
        ),
    ],
)
def test_a_wrong_verdict_has_its_fault(said: dict[str, Any], case: str, sentence: str) -> None:
    content = {key: value for key, value in {**RIGHT, **said}.items() if value is not None}
    looked = parse_verdict(verdict_subject(ASKED), msgspec.json.encode(content), ASKED)
    assert [fault for fault in looked.faults if fault.case == case and sentence in fault.sentence]


@pytest.mark.parametrize("data", [b"", b"Ready", b'["Ready"]', b"{'state': 1}", b"\xff\xfe"])
def test_a_message_that_is_not_a_json_object_is_a_fault(data: bytes) -> None:
    looked = parse_verdict(verdict_subject(ASKED), data, ASKED)
    assert [fault.case for fault in looked.faults] == ["json"]
    assert looked.content is None


def test_a_name_that_is_not_escaped_is_the_wrong_subject() -> None:
    subject = "admit.check.reported.example_com=2Fc.ns-1.train.7"
    [fault] = parse_verdict(subject, msgspec.json.encode(RIGHT), ASKED).faults
    assert fault.case == "subject"
    assert verdict_subject(ASKED) in fault.sentence


def test_a_verdict_without_a_request_is_a_fault() -> None:
    [fault] = parse_verdict(verdict_subject(ASKED), msgspec.json.encode(RIGHT), None).faults
    assert (fault.case, "not sent" in fault.sentence) == ("names", True)


@pytest.mark.parametrize(
    ("data", "well"),
    [
        pytest.param(b"", True, id="nothing at all"),
        pytest.param(b"{}", True, id="an empty object"),
        pytest.param(b'{"active": false, "reason": "NotReady"}', True, id="inactive"),
        pytest.param(b'{"checks": {"a": {"active": false}}}', True, id="one check inactive"),
        pytest.param(b'{"active": "no"}', False, id="a word for a truth"),
        pytest.param(b"alive", False, id="no JSON"),
    ],
)
def test_heartbeats(data: bytes, well: bool) -> None:
    assert (heartbeat_faults("s", data, CheckAlive) == ()) is well
