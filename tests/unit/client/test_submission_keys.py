"""A repeated submission is recognised by its key, and only for its user."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from admittance.api.reading.from_job import from_command
from admittance.api.workload import Workload
from admittance.client import BadInput, BucketObject
from admittance.client.requests.submissions.names import name_of_key
from admittance.client.requests.submissions.submitting import (
    check_key,
    is_submission,
    message_id_of,
)


def stored(key: str, user: str, message_id: str = "key-1") -> BucketObject:
    value = {
        "metadata": {"annotations": {"admittance.dev/submission-key": key}},
        "status": {"submittedAs": message_id, **({"submittedBy": user} if user else {})},
    }
    return BucketObject("workload.default.w", json.dumps(value).encode(), 7)


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(stored("k", "ada"), True, id="the same"),
        pytest.param(stored("k", "bob"), False, id="of another user"),
        pytest.param(stored("other", "ada"), False, id="with another key"),
        pytest.param(stored("k", "ada", "key-2"), False, id="of another spec"),
        pytest.param(BucketObject("workload.default.w", b"{}", 7), False, id="without a key"),
    ],
)
def test_a_submission_is_recognised_by_key_and_user(workload: BucketObject, want: bool) -> None:
    assert is_submission(workload, "k", "ada", "key-1") is want
    assert is_submission(stored("k", ""), "k", "", "key-1")


def test_names_from_keys_differ_by_namespace_and_user() -> None:
    names = {name_of_key(*scope, "k") for scope in (("a", "b"), ("a", ""), ("b", "b"))}
    assert len(names) == 3
    assert name_of_key("a", "b", "k") in names
    assert name_of_key("a", "b", "Report 2026/11").startswith("report-2026-11-")
    assert name_of_key("a", "b", "é").startswith("workload-")


def test_the_message_id_of_a_key_differs_by_spec_alone() -> None:
    def workload(command: str, label: str) -> Workload:
        made = from_command([command], name="k-1", namespace="a", queue="q")
        return replace(made, metadata=replace(made.metadata, labels={"l": label}))

    first = message_id_of(workload("true", "x"), "ada", "k")
    assert first == message_id_of(workload("true", "y"), "ada", "k")
    assert first != message_id_of(workload("false", "x"), "ada", "k")


@pytest.mark.parametrize(
    "key", ["", "  ", "a\nb", "x" * 201], ids=["empty", "blank", "line", "long"]
)
def test_a_key_that_no_submission_can_have_is_refused(key: str) -> None:
    with pytest.raises(BadInput, match="is not 1 to 200 printable characters"):
        check_key(key)
