"""A repeated submission is recognised by its key, and only for its user."""

from __future__ import annotations

import json

import pytest

from admittance.client import BadInput, BucketObject
from admittance.client.requests.submissions import check_key, ending_of, is_submission


def stored(key: str, user: str) -> BucketObject:
    value = {
        "metadata": {"annotations": {"admittance.dev/submission-key": key}},
        "status": {"submittedBy": user} if user else {},
    }
    return BucketObject("workload.default.w", json.dumps(value).encode(), 7)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(stored("k", "ada"), True, id="the same"),
        pytest.param(stored("k", "bob"), False, id="of another user"),
        pytest.param(stored("other", "ada"), False, id="with another key"),
        pytest.param(BucketObject("workload.default.w", b"{}", 7), False, id="without a key"),
    ],
)
def test_a_submission_is_recognised_by_key_and_user(found: BucketObject, want: bool) -> None:
    assert is_submission(found, "k", "ada") is want
    assert is_submission(stored("k", ""), "k", "")


def test_names_from_keys_differ_by_namespace_and_user() -> None:
    ends = {ending_of(*who, "k") for who in (("a", "b"), ("a", ""), ("b", "b"))}
    assert len(ends) == 3
    assert ending_of("a", "b", "k") in ends


@pytest.mark.parametrize(
    "key", ["", "  ", "a\nb", "x" * 201], ids=["empty", "blank", "line", "long"]
)
def test_a_key_that_no_submission_can_have_is_refused(key: str) -> None:
    with pytest.raises(BadInput, match="is not 1 to 200 printable characters"):
        check_key(key)
