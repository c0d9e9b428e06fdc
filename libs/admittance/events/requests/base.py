"""What all requests to the micro endpoints under ``admit.api.>`` have in common, and all replies.

A request about one namespace goes to ``admit.api.<what>.<ns>``, a request about all namespaces to
``admit.api.<what>``. Every reply is JSON; a failure is a reply with ``error`` set and the micro
error headers."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A request to a service; a field that the service does not know is ignored."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A reply of a service. ``error``: one sentence about the failure; empty on success."""

    error: str = ""
