"""Changes of manifests, which the workload-controller makes: objects are applied and deleted."""

from __future__ import annotations

import msgspec

from admittance.events.requests.base import Reply, Request


class Apply(Request, frozen=True, kw_only=True):
    """``admit.api.apply[.<ns>]``: applies all of these manifests, or none. The manifests are JSON
    objects, as bytes. ``expected``: the revision that each object must still have; 0: it must not
    exist; None: any. Empty: any of all."""

    objects: tuple[msgspec.Raw, ...]
    expected: tuple[int | None, ...] = ()


class Applied(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result for one manifest, of which ``outcome`` is created, changed or unchanged."""

    kind: str
    namespace: str = ""
    name: str
    outcome: str
    revision: int = 0
    warnings: tuple[str, ...] = ()


class ApplyReply(Reply, frozen=True, kw_only=True):
    """On an error nothing was applied; ``problems`` has a line for each mistake."""

    results: tuple[Applied, ...] = ()
    problems: tuple[str, ...] = ()


class Delete(Request, frozen=True, kw_only=True):
    """``admit.api.delete[.<ns>]``: deletes an object other than a workload. ``stored``: the key of
    the bucket whose value is deleted, instead of the object that the other fields name; only
    without a namespace in the subject. ``kind`` ``runner``: the consumer and the announcement of a
    runner that is gone, named by either; also only without a namespace."""

    kind: str
    namespace: str = ""
    name: str
    stored: str = ""


class DeleteReply(Reply, frozen=True, kw_only=True):
    """``outcome``: what the deletion did: deleted, absent or deferred. Deferred: the object is in
    use by the objects that ``error`` names; it is marked, and deleted once no object uses it."""

    outcome: str = ""
