"""Permissions of one user: patterns of subjects with purposes, and how a server matches them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Rule(NamedTuple):
    """A pattern of subjects. ``purpose``: what the pattern is needed for, in words that follow
    "may"."""

    pattern: str
    purpose: str


class Permissions(NamedTuple):
    """What one user may publish and subscribe; everything else is refused.

    ``denied``: patterns that the user may neither publish nor subscribe although an allowed pattern
    matches them.
    """

    publish: tuple[Rule, ...] = ()
    subscribe: tuple[Rule, ...] = ()
    denied: tuple[Rule, ...] = ()


class Answer(NamedTuple):
    """Whether a user may publish or subscribe a subject. ``rule``: the rule that allows or denies
    it; None if no rule matches."""

    allowed: bool
    rule: Rule | None


def answer_for(permissions: Permissions, subject: str, *, subscribe: bool = False) -> Answer:
    """Whether a user with these permissions may publish (or subscribe) the subject, as a
    nats-server decides it."""
    rules = permissions.subscribe if subscribe else permissions.publish
    if subscribe and subject.endswith(".>"):
        # nats-server 2.15.1 compares permissions token by token: a pattern that ends in `*` allows
        # a subscription that ends in `>`. No role has a pattern that ends in `*` where subjects
        # with more tokens exist.
        subject = f"{subject[:-1]}*"
    allowing = first_match(rules, subject)
    if allowing is None:
        return Answer(False, None)
    denying = first_match(permissions.denied, subject)
    if denying is not None:
        return Answer(False, denying)
    return Answer(True, allowing)


def first_match(rules: Iterable[Rule], subject: str) -> Rule | None:
    """The first rule with a pattern that covers the subject; None if no rule covers the subject."""
    return next((rule for rule in rules if covers(rule.pattern, subject)), None)


def covers(pattern: str, subject: str) -> bool:
    """Whether every subject that matches ``subject`` matches ``pattern``; ``subject`` may have
    wildcards itself."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(given) > index
        if index >= len(given) or given[index] == ">":
            return False
        if token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)
