"""Patterns of subjects match as a nats-server matches them."""

import pytest

from admittance.access.permissions import Permissions, Rule, answer_for, covers
from support.nats.system_subjects import overlaps


@pytest.mark.parametrize(
    ("pattern", "subject", "covered"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.*", "a.>", False),
        ("a.*.c", "a.b.c", True),
        ("a.>", "a", False),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a.*.c", True),
        ("a.b.>", "a.>", False),
        (">", "a", True),
        ("a.b", "a.*", False),
    ],
)
def test_pattern_covers_a_subject(pattern: str, subject: str, covered: bool) -> None:
    assert covers(pattern, subject) is covered


def test_patterns_overlap_where_one_subject_matches_both() -> None:
    assert overlaps("a.*", "*.b")
    assert overlaps("a.>", "a.b.c")
    assert not overlaps("a.*", "a.b.c")
    assert not overlaps("a.b", "a.c")


def test_answer_names_the_rule_that_allows_or_denies() -> None:
    allowing, denying = Rule("a.*", "do a"), Rule("a.secret", "keep the secret")
    given = Permissions(publish=(allowing,), denied=(denying,))
    assert answer_for(given, "a.b") == (True, allowing)
    assert answer_for(given, "a.secret") == (False, denying)
    assert answer_for(given, "b") == (False, None)
    assert answer_for(given, "a.b", subscribe=True) == (False, None)
