"""Requests that change something: manifests are applied or deleted, facts have their effect.

The workload-controller answers; see `requests` for what holds of all of them.
"""

from __future__ import annotations

import msgspec

from admittance.events.requests import Reply, Request


class Apply(Request, frozen=True, kw_only=True):
    """``admit.api.apply[.<ns>]``: all of these manifests, or none. JSON objects, as bytes."""

    objects: tuple[msgspec.Raw, ...]


class Applied(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``outcome``: created, changed or unchanged."""

    kind: str
    namespace: str = ""
    name: str
    outcome: str
    revision: int = 0
    warnings: tuple[str, ...] = ()


class ApplyReply(Reply, frozen=True, kw_only=True):
    """On an error nothing was applied, and ``problems`` has all that is wrong, a line each."""

    results: tuple[Applied, ...] = ()
    problems: tuple[str, ...] = ()


class Delete(Request, frozen=True, kw_only=True):
    """``admit.api.delete[.<ns>]``: an object other than a workload disappears."""

    kind: str
    namespace: str = ""
    name: str


class DeleteReply(Reply, frozen=True, kw_only=True):
    """``outcome``: deleted, absent, or deferred (still in use; ``error`` says by whom): marked, it
    disappears once nothing needs it."""

    outcome: str = ""


class Settled(Request, frozen=True, kw_only=True):
    """``admit.api.settled``: answers once every fact up to ``sequence`` has had its effect."""

    sequence: int


class SettledReply(Reply, frozen=True, kw_only=True):
    """What became of the fact at ``sequence``: applied, ignored (it changed nothing),
    refused or dead-lettered; ``reason`` and ``message`` say why. "" when it is too long ago."""

    outcome: str = ""
    reason: str = ""
    message: str = ""
