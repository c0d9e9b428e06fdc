"""Makes the spans of workloads from the facts of the log, in log order.

A workload is kept in memory from its submission until it finishes or is deleted, with its open
spans only: finished spans are returned at once. The variants of a family are part of the trace of
their parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from admittance.events import codec, facts, reasons
from admittance.events.base import Fact
from admittance.events.names import token, workload_uid
from admittance.events.reader import BROKEN
from admittance.events.span_ids import span_id_of, trace_id_of, valid_traceparent
from admittance.events.subjects import user_of
from admittance.traces.judging import judge
from admittance.traces.life import QUEUE, Life
from admittance.traces.recorder import OpenSpan, Recorder, messaging
from admittance.traces.spans import Attribute, Kind, LoggedFact, Span, SpanLink, Status

WORKLOAD: Final = "workload"
VARIANT: Final = "variant"
ABOUT_WORKLOADS: Final = frozenset({"workload", "check", "provisioning", "user"})
"""The second token of the subjects of facts that spans are made of."""
SAMPLED: Final = 1
"""The flag of a traceparent if its program records the trace."""


def keep_all(_root: Span) -> bool:
    """Keeps every trace."""
    return True


class TraceBuilder:
    """Makes spans from facts. ``keep``: decides from the first, still open span of a trace whether
    the trace is recorded. With ``partial``, workloads without a read submission are recorded
    too, from their first fact on; the first span of such a workload has the attribute
    ``admittance.cut``.
    """

    def __init__(self, keep: Callable[[Span], bool] = keep_all, *, partial: bool = False) -> None:
        self._keep = keep
        self._partial = partial
        self._lives: dict[str, Life] = {}
        self._over: set[str] = set()

    def __contains__(self, workload: tuple[str, str]) -> bool:
        """Whether the trace of the workload (namespace, name) is being recorded."""
        return _key(*workload) in self._lives

    def __len__(self) -> int:
        """The number of workloads in memory, variants included."""
        return len(self._lives)

    def feed(self, logged: LoggedFact) -> list[Span]:
        """The spans that end with this message of the log; the span of the workload comes last. A
        message that the builder has read before, or that is no fact about a workload, changes no
        span.
        """
        parts = logged.subject.split(".")
        if len(parts) < 5 or parts[1] not in ABOUT_WORKLOADS:
            return []
        key = ".".join(parts[-2:])
        life = self._lives.get(key)
        submitted = parts[-3] == "submitted"
        if life is None and not submitted and (not self._partial or key in self._over):
            return []
        if life is not None and logged.sequence <= life.recorder.sequence:
            return []
        try:
            fact = codec.decode(logged.subject, logged.data)
        except codec.Undecodable:
            return []
        spans: list[Span] = []
        if life is not None and self._is_gone(life, fact):
            spans = self._end(life, key)
            again, life = life.again, None
            if again is not None:
                life = self._begin(again, key)
        if life is None:
            life = self._begin(logged, key, fact)
            if life is None or submitted:
                return spans
        self._advance(life, logged)
        if submitted:
            life.again = logged
        elif not _is_of_other(life, fact):
            self._take(life, logged, fact)
        if life.ended:
            self._forget(life, key)
        return [*spans, *life.recorder.fetch()]

    def open_spans(self, namespace: str, name: str) -> list[Span]:
        """The open spans of the workload, the outermost first; ``end`` is None."""
        life = self._lives.get(_key(namespace, name))
        return [] if life is None else [*_open(life.recorder, life.root)]

    def take_over(self, other: TraceBuilder) -> None:
        """Adds the workloads that another builder has read, for example from the history of a
        workload that this builder did not know."""
        self._lives |= other._lives

    def forget(self, namespace: str, name: str) -> None:
        """Removes the workload and its variants from memory."""
        key = _key(namespace, name)
        life = self._lives.get(key)
        if life is not None:
            self._forget(life, key)

    # One fact. ------------------------------------------------------------------------------

    def _advance(self, life: Life, logged: LoggedFact) -> None:
        recorder = life.recorder
        recorder.now = max(recorder.now, logged.time)
        recorder.sequence = logged.sequence

    def _is_gone(self, life: Life, fact: Fact) -> bool:
        """Whether the fact is about a later workload of the same name."""
        known = life.wire_uid
        later = isinstance(fact, facts.CommitFact) and bool(fact.revision)
        return bool(later and known and fact.uid and fact.uid != known)

    def _take(self, life: Life, logged: LoggedFact, fact: Fact) -> None:
        if isinstance(fact, facts.Rejected) and not fact.revision:
            # If the builder knows an earlier submission of the name, the fact refuses the later
            # submission.
            if life.again is None and not life.wire_uid:
                life.root.set(reason=fact.reason)
                life.end("Refused", Status.ERROR, fact.message)
            life.again = None
            return
        if isinstance(fact, facts.CommitFact) and fact.revision:
            life.wire_uid = life.wire_uid or fact.uid
        if logged.subject.startswith(("admit.check.", "admit.provisioning.")) or isinstance(
            fact, facts.Verdict
        ):
            judge(life, logged, fact)
        else:
            life.take(logged, fact, self._link)

    def _link(self, namespace: str, name: str, uid: str) -> SpanLink | None:
        life = self._lives.get(_key(namespace, name)) if namespace and name else None
        if life is None or uid not in ("", life.uid, life.wire_uid):
            return None
        return SpanLink(
            trace_id=life.recorder.trace_id,
            span_id=life.root.span_id,
            workload=f"{namespace}/{name}",
        )

    # The beginning and the end. -------------------------------------------------------------

    def _begin(self, logged: LoggedFact, key: str, fact: Fact | None = None) -> Life | None:
        """The `Life` of the workload that this message submits; None if the workload's trace
        is not recorded.
        """
        fact = fact or codec.decode(logged.subject, logged.data)
        if isinstance(fact, facts.Submitted):
            manifest = _as_dict(bytes(fact.workload))
            owner = _owner(manifest)
            if owner:
                return self._begin_variant(logged, key, fact, manifest, owner)
            uid = fact.uid or workload_uid(fact.namespace, fact.name, logged.sequence, logged.time)
        elif fact.uid:
            manifest, uid = {}, fact.uid
        else:
            return None
        recorder = Recorder(_trace_id(logged.traceparent) or trace_id_of(uid), logged.time)
        root = recorder.open(WORKLOAD, span_id_of(uid), None, Kind.INTERNAL)
        if isinstance(fact, facts.Submitted) and _is_sampled(logged.traceparent):
            root.parent_id, root.remote = logged.traceparent.split("-")[2], True
        common: dict[str, Attribute] = {
            "admittance.namespace": fact.namespace,
            "admittance.workload": fact.name,
        }
        root.attributes |= common | dict(messaging(logged, Kind.INTERNAL))
        spec = _as_dict(manifest.get("spec"))
        root.set(uid=uid, queue=_text(spec.get("queueName")), user=user_of(logged.subject))
        priority = spec.get("priority")
        root.set(priority=priority if isinstance(priority, int) else None)
        if not isinstance(fact, facts.Submitted):
            root.set(cut=True)
        if not self._keep(recorder.span_of(root, None)):
            return None
        return self._enter(Life(recorder, root, uid, common=common), logged, key)

    def _begin_variant(
        self,
        logged: LoggedFact,
        key: str,
        fact: facts.Submitted,
        manifest: Mapping[str, Any],
        owner: Mapping[str, Any],
    ) -> Life | None:
        parent_name = _text(owner.get("name"))
        parent = self._lives.get(_key(fact.namespace, parent_name)) if parent_name else None
        tag = _text(_as_dict(manifest.get("spec")).get("variant"))
        if parent is not None and parent.parent is not None:
            return None
        if parent is not None:
            recorder = parent.recorder
            self._advance(parent, logged)
        elif self._partial:
            # The builder reads the history of a variant alone, so only the name of the variant's
            # parent is known.
            of = _text(owner.get("uid"))
            recorder = Recorder(_trace_id(logged.traceparent) or trace_id_of(of), logged.time)
        else:
            return None
        uid = fact.uid or workload_uid(fact.namespace, fact.name, logged.sequence, logged.time)
        above = parent.root if parent is not None else None
        root = recorder.open(f"{VARIANT} {tag}", span_id_of(uid), above)
        if parent is None:
            root.parent_id = span_id_of(_text(owner.get("uid")))
            root.set(uid=uid, parent=parent_name)
        common: dict[str, Attribute] = {
            "admittance.namespace": fact.namespace,
            "admittance.workload": fact.name,
            "admittance.variant": tag,
        }
        root.attributes |= common | dict(messaging(logged, Kind.INTERNAL))
        life = Life(recorder, root, uid, common=common, parent=parent)
        if parent is not None:
            parent.variants[fact.name] = life
        return self._enter(life, logged, key)

    def _enter(self, life: Life, logged: LoggedFact, key: str) -> Life:
        self._lives[key] = life
        life.recorder.sequence = logged.sequence
        life.enter(QUEUE, logged)
        return life

    def _end(self, life: Life, key: str) -> list[Span]:
        """Ends the trace of a workload that was deleted without a fact about the deletion."""
        life.end(reasons.DELETED)
        self._forget(life, key)
        return life.recorder.fetch()

    def _forget(self, life: Life, key: str) -> None:
        namespace = key.partition(".")[0]
        for name in life.variants:
            self._lives.pop(f"{namespace}.{token(name)}", None)
        if life.parent is not None:
            life.parent.variants.pop(str(life.common["admittance.workload"]), None)
        self._lives.pop(key, None)
        if self._partial:
            self._over.add(key)


def _trace_id(traceparent: str) -> str:
    """The trace id of a traceparent; "" if the text is no traceparent."""
    return valid_traceparent(traceparent)[3:35]


def _is_sampled(traceparent: str) -> bool:
    """Whether the program that sent the traceparent records the trace."""
    return bool(valid_traceparent(traceparent)) and bool(int(traceparent[53:], 16) & SAMPLED)


def parent_of(logged: LoggedFact) -> str:
    """The name of the parent, if the message submits a variant of a family; otherwise ""."""
    try:
        fact = codec.decode(logged.subject, logged.data)
    except codec.Undecodable:
        return ""
    if not isinstance(fact, facts.Submitted):
        return ""
    return _text(_owner(_as_dict(bytes(fact.workload))).get("name"))


def _is_of_other(life: Life, fact: Fact) -> bool:
    """Whether the fact is about an earlier or later workload of the same name."""
    return bool(fact.uid and life.wire_uid and fact.uid != life.wire_uid)


def _key(namespace: str, name: str) -> str:
    return f"{token(namespace)}.{token(name)}"


def _open(recorder: Recorder, span: OpenSpan) -> Iterator[Span]:
    yield recorder.span_of(span, None)
    for child in span.children:
        yield from _open(recorder, child)


def _owner(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parent of a variant; empty for any other workload."""
    if _as_dict(manifest.get("spec")).get("role") != VARIANT:
        return {}
    owners = _as_dict(manifest.get("metadata")).get("ownerReferences")
    return _as_dict(owners[0]) if isinstance(owners, list) and owners else {}


def _as_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, bytes):
        try:
            value = msgspec.json.decode(value)
        except BROKEN:
            return {}
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
