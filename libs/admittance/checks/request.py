"""The request that a check judges: one workload, with everything that a check needs to know about
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from admittance.checks.verdicts import Verdict
from admittance.events import reasons
from admittance.events.facts import CheckRequested
from admittance.events.shapes import Admission
from admittance.runtime import clock
from admittance.runtime.telemetry import tracing
from admittance.sdk.threads import from_thread


class BadParameters(ValueError):
    """The parameters of the AdmissionCheck are wrong for this check."""


class Reference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Identifies a request. Store the reference to report a verdict later, also after a restart."""

    namespace: str
    name: str
    uid: str = ""
    check: str
    cycle: int
    traceparent: str = ""


class Withdrawal(msgspec.Struct, frozen=True, kw_only=True):
    """A withdrawn request: free what you booked for it.

    ``reason`` "AdmissionCheck": another check answered Retry for the workload. A judgement under
    way continues after a withdrawal for that reason, because its own Retry still counts.
    """

    namespace: str
    name: str
    uid: str = ""
    check: str
    cycle: int
    reason: str = ""


class Workload:
    """The submitted workload: its ``labels`` and its ``spec`` with the manifest's field names."""

    def __init__(
        self, spec: Mapping[str, Any] | bytes = b"{}", labels: Mapping[str, str] | None = None
    ) -> None:
        self.labels = dict(labels or {})
        self._bytes = spec if isinstance(spec, bytes) else None
        self._spec = None if isinstance(spec, bytes) else dict(spec)

    @property
    def spec(self) -> dict[str, Any]:
        """The spec as a dict: podSets, queueName, priority, …"""
        if self._spec is None:
            # The spec is decoded on first use: most checks never read it.
            self._spec = dict(msgspec.json.decode(self._bytes or b"{}") or {})
        return self._spec

    @property
    def queue(self) -> str:
        """The LocalQueue to which the workload was submitted."""
        return str(self.spec.get("queueName", ""))


class Request:
    """One workload to judge, for one check, in one cycle of its admission.

    ``cycle`` increases whenever all checks must judge the workload again. ``retry_count``: how
    often this check has answered Retry since it last answered Ready. ``parameters``: the ``spec``
    of the object that the AdmissionCheck names, as a dict or as the Struct given to the controller.
    ``admission``: the queue, flavors and resources with which the workload's quota is reserved. In
    tests, without a bus, only the fields that the check reads are needed, and `reported` collects
    the verdicts of `report`.
    """

    __slots__ = (
        "__weakref__",
        "_loop",
        "_publish",
        "admission",
        "check",
        "cycle",
        "later",
        "name",
        "namespace",
        "parameters",
        "published",
        "raw",
        "reported",
        "retry_count",
        "revision",
        "since",
        "span",
        "superseded",
        "traceparent",
        "uid",
        "withdrawn",
        "workload",
    )

    def __init__(
        self,
        *,
        namespace: str = "default",
        name: str = "",
        uid: str = "",
        check: str = "",
        cycle: int = 1,
        retry_count: int = 0,
        parameters: Any = None,
        admission: Admission | None = None,
        workload: Workload | None = None,
        traceparent: str = "",
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.check = check
        self.cycle = cycle
        self.retry_count = retry_count
        self.parameters: Any = {} if parameters is None else parameters
        self.admission = admission
        self.workload = workload if workload is not None else Workload()
        self.traceparent = traceparent
        self.withdrawn = ""
        """Why the request was withdrawn, as far as this process knows; empty if it was not."""
        self.superseded = False
        """A newer request waits for this judgement to end: the workload is in a newer cycle, or the
        parameters have changed."""
        self.raw = b"null"
        """The encoded parameters, to recognise a duplicate of the request."""
        self.revision = 0
        """The workload's revision when the request was published. Another request for the same
        cycle has a higher revision.
        """
        self.span = ""
        """The traceparent of the newest span around the check's function; empty without one."""
        self.since: float | None = None
        """When the request arrived, by `clock.monotonic`; None after the request's first final
        verdict.
        """
        self.reported: list[Verdict] = []
        """The verdicts that `report` got while the request was not attached to a bus, as in tests.
        """
        self.later = False
        """Whether the check has answered `Later`."""
        self.published = 0
        """How many verdicts of the request were published."""
        self._publish: Callable[[Request, Verdict], Awaitable[bool]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def reference(self) -> Reference:
        """The reference to store for a later ``controller.report``."""
        return Reference(
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            check=self.check,
            cycle=self.cycle,
            traceparent=self.traceparent,
        )

    async def report(self, verdict: Verdict) -> bool:
        """Publishes a verdict during the judgement, such as a `Pending` with a message, or later,
        when the check changes its verdict. Returns False if the verdict no longer counts, because
        the request was withdrawn.

        Returns when the verdict is on the log. Raises admittance.runtime.errors.BusRefused if the
        log refuses the verdict.
        """
        if self._publish is None:
            self.reported.append(verdict)
            return not self.withdrawn
        return await self._publish(self, verdict)

    def report_from_thread(self, verdict: Verdict) -> bool:
        """Like `report`, for a check that is a plain function, which runs in a thread."""
        if self._loop is None:
            self.reported.append(verdict)
            return not self.withdrawn
        return from_thread(self.report(verdict), self._loop)

    def attach(
        self,
        publish: Callable[[Request, Verdict], Awaitable[bool]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Connects `report` of this request, which has just arrived, to the bus. Called only by
        the SDK."""
        self.since = clock.monotonic()
        self._publish = publish
        self._loop = loop

    def __repr__(self) -> str:
        return (
            f"Request({self.namespace}/{self.name}, check={self.check!r}, cycle={self.cycle}, "
            f"retry_count={self.retry_count})"
        )


def is_too_late(request: Request, verdict: Verdict) -> bool:
    """Whether a verdict comes too late to count. After a withdrawal for any reason except another
    check's Retry, only Retry and Rejected still count."""
    if request.withdrawn in ("", reasons.ADMISSION_CHECK):
        return False
    return verdict.state in ("Ready", "Pending")


def parameters_of(raw: bytes, shape: type[Any] | None) -> Any:
    """Decodes the parameters into ``shape``, or into a dict if ``shape`` is None. Raises
    BadParameters.
    """
    try:
        if shape is not None:
            return msgspec.json.decode(raw if raw != b"null" else b"{}", type=shape)
        parameters = msgspec.json.decode(raw)
    except Exception as error:
        # Catches any exception: the Struct of the parameters may validate itself and raise
        # anything.
        if raw == b"null":
            raise BadParameters(f"parameters are missing: {error}") from None
        raise BadParameters(f"wrong parameters: {error}") from None
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise BadParameters(f"wrong parameters: {type(parameters).__name__} is not an object")
    return parameters


class _Metadata(msgspec.Struct):
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Shown(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_shown = msgspec.json.Decoder(_Shown)


def request_of(
    fact: CheckRequested, headers: Mapping[str, str], shape: type[Any] | None
) -> Request:
    """Makes the request that the check judges. Raises BadParameters if the request's parameters are
    wrong; `bare_request_of` does not.
    """
    request = bare_request_of(fact, headers)
    request.parameters = parameters_of(bytes(fact.parameters), shape)
    return request


def bare_request_of(fact: CheckRequested, headers: Mapping[str, str]) -> Request:
    """Makes a request as `request_of` does, but without the parameters."""
    raw = bytes(fact.workload)
    shown = _shown.decode(raw) if raw != b"null" else _Shown()
    request = Request(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        check=fact.check,
        cycle=fact.cycle,
        retry_count=fact.retry_count,
        admission=fact.admission,
        workload=Workload(bytes(shown.spec), shown.metadata.labels),
        traceparent=tracing.extract(headers),
    )
    request.raw = bytes(fact.parameters)
    request.revision = fact.revision
    return request
