"""REST calls for ProvisioningRequests and PodTemplates, and the meaning of the API server's errors.

The library lightkube makes the HTTP client from a kubeconfig, because contexts, certificates,
changing tokens and login programs are hard to get right. This module makes the REST calls itself,
because lightkube does not distinguish permanent refusals, temporary refusals and outdated watches.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from admittance.provider_kubernetes.objects import API
from admittance.provider_kubernetes.settings import KubeSettings, bad_kubeconfig, login
from admittance.providers.builtin import ObjectSteps
from admittance.runtime.errors import SetupError

if TYPE_CHECKING:
    import httpx2 as httpx


_LACKS_A_RIGHT: Final = re.compile(r"cannot \w+ resource ")
"""The text of the API server when an authorizer denies a right. Refusals by admission controllers
of the cluster have other texts.
"""
_TEMPORARY: Final = ("exceeded quota", "because it is being terminated")


class ClusterUnavailable(Exception):
    """The API server does not answer, or asks to repeat the call. ``after``: how many seconds the
    API server asks to wait.
    """

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Unauthorized(ClusterUnavailable):
    """The API server does not accept the credentials, for instance an expired token."""


class ClusterDenied(Exception):
    """The API server refused a call permanently; the text is the server's message. ``code``: the
    HTTP status of the answer."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class Right(NamedTuple):
    """A right that a call to the API server needs. ``namespace``: the namespace of the right; "":
    all namespaces.
    """

    verb: str
    kind: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} in {self.namespace or 'all namespaces'}"


class Forbidden(ClusterDenied):
    """The API server refused a call because the provider lacks a right that an administrator can
    grant. The request for capacity is not at fault.
    """

    def __init__(self, code: int, reason: str, message: str, right: Right) -> None:
        super().__init__(code, reason, message)
        self.right = right


class TemporarilyDenied(ClusterDenied):
    """The API server refused the call because the namespace has used up its quota or is being
    deleted. The same call may succeed later.
    """


class Exists(ClusterDenied):
    """The cluster has an object with the wanted name already."""


class Missing(ClusterDenied):
    """The cluster has no object with the wanted name, or does not know the kind of the object."""


class Outdated(ClusterDenied):
    """The resource version from which a watch starts has expired, so the objects must be listed
    again."""


def event_of(line: str) -> tuple[str, dict[str, Any]]:
    """The event type and the object in a line of a watch's answer. Raises Outdated or
    ClusterUnavailable if the line reports an error or is not valid.
    """
    try:
        event = msgspec.json.decode(line, type=dict[str, Any])
        kind, about = str(event["type"]), event["object"]
    except (msgspec.MsgspecError, KeyError) as error:
        raise ClusterUnavailable(
            f"the API server sent an invalid event of a watch: {error}"
        ) from None
    if kind != "ERROR":
        return kind, about
    code = about.get("code", 0)
    message = str(about.get("message", ""))
    if code == 410 or about.get("reason") in ("Expired", "Gone"):
        raise Outdated(410, "Expired", message)
    raise ClusterUnavailable(message)


def error_of(response: httpx.Response, right: Right) -> Exception:
    """The exception for the response to a failed call that needed the right ``right``."""
    code = response.status_code
    reason, message = "", response.text.strip()[:1000]
    try:
        status = msgspec.json.decode(response.content, type=dict[str, Any])
        reason, message = str(status.get("reason", "")), str(status.get("message", message))
    except msgspec.MsgspecError:
        pass
    message = message or f"HTTP {code}"
    if code == 410:
        return Outdated(code, reason, message)
    if code == 401:
        return Unauthorized(f"HTTP {code}: {message}")
    # With the codes 408 and 425 the API server asks to repeat the call.
    if code >= 500 or code in (408, 425, 429):
        after = response.headers.get("Retry-After", "")
        return ClusterUnavailable(
            f"HTTP {code}: {message}", float(after) if after.isdecimal() else None
        )
    if code == 403 and _LACKS_A_RIGHT.search(message):
        return Forbidden(code, reason, message, right)
    if code == 403 and any(words in message for words in _TEMPORARY):
        return TemporarilyDenied(code, reason, message)
    kind = {404: Missing, 409: Exists}.get(code, ClusterDenied)
    return kind(code, reason, message)


REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REQUESTS: Final = "provisioningrequests"
TEMPLATES: Final = "podtemplates"
_GROUP: Final = {REQUESTS: API.partition("/")[0], TEMPLATES: ""}
_PREFIX: Final = {REQUESTS: f"/apis/{API}", TEMPLATES: "/api/v1"}
PAGE: Final = 500
CALLS: Final = 16
CALL_SECONDS: Final = 10.0
WATCH_SECONDS: Final = 60
"""Seconds after which the API server ends a watch, so that the client notices a dead connection
soon after that time.
"""
NEEDED: Final = (
    "provider-kubernetes needs the package lightkube: pip install 'admittance[kubernetes]'"
)
STEPS: Final = ObjectSteps("provider-kubernetes", (ClusterUnavailable, ClusterDenied))


class Cluster:
    """The REST calls to one API server."""

    def __init__(self, http: httpx.AsyncClient, server: str) -> None:
        self._http = http
        self.server = server
        self._slots = asyncio.Semaphore(CALLS)

    async def close(self) -> None:
        """Closes the connections to the API server."""
        await self._http.aclose()

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """Returns the object of this kind with the name ``name``. Raises Missing if the cluster has
        no such object, ClusterDenied if it refuses the call, ClusterUnavailable if it does not
        answer."""
        right = Right("get", kind, namespace)
        return await self._call("GET", _path(kind, namespace, name), right)

    async def create(self, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Creates the object ``body``. Raises Exists if the cluster has an object with its name."""
        namespace = body["metadata"]["namespace"]
        right = Right("create", kind, namespace)
        return await self._call("POST", _path(kind, namespace), right, body=body)

    async def merge(
        self, kind: str, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Merges ``body`` into the object of the kind ``kind`` with the name ``name``."""
        right = Right("patch", kind, namespace)
        return await self._call("PATCH", _path(kind, namespace, name), right, body=body)

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Deletes the object with the uid ``uid``. If the object does not exist any more, or has
        another uid now, nothing happens.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        try:
            right = Right("delete", kind, namespace)
            await self._call("DELETE", _path(kind, namespace, name), right, body=options)
        except (Missing, Exists):
            return

    async def list(
        self, kind: str, namespace: str | None, selector: str
    ) -> tuple[list[dict[str, Any]], str]:
        """Returns the objects of the kind that the selector selects, and the resource version from
        which to watch for changes. ``namespace`` None: the objects of all namespaces.
        """
        objects: list[dict[str, Any]] = []
        more = ""
        while True:
            params = {"labelSelector": selector, "limit": str(PAGE)}
            if more:
                params["continue"] = more
            right = Right("list", kind, namespace or "")
            page = await self._call("GET", _path(kind, namespace), right, params=params)
            objects += page.get("items") or ()
            metadata = page.get("metadata") or {}
            more = metadata.get("continue") or ""
            if not more:
                return objects, str(metadata.get("resourceVersion", ""))

    async def has(self, right: Right) -> bool:
        """Whether the cluster grants the right to the provider. Raises ClusterDenied if the API
        server refuses to answer the question.
        """
        attributes = {
            "verb": right.verb,
            "group": _GROUP[right.kind],
            "resource": right.kind,
            "namespace": right.namespace,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        review = await self._call("POST", REVIEWS, right, body=body)
        return bool((review.get("status") or {}).get("allowed"))

    async def watch(
        self, kind: str, namespace: str | None, selector: str, version: str
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yields the type and object of each change after the resource version ``version``, also
        bookmarks, until the API server ends the watch. Raises Outdated if ``version`` has
        expired."""
        import httpx2 as httpx

        params = {
            "labelSelector": selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        timeout = httpx.Timeout(CALL_SECONDS, read=WATCH_SECONDS + CALL_SECONDS)
        stream = self._http.stream("GET", _path(kind, namespace), params=params, timeout=timeout)
        with self._failures():
            async with stream as response:
                if response.status_code != 200:
                    await response.aread()
                    raise error_of(response, Right("watch", kind, namespace or ""))
                async for line in response.aiter_lines():
                    if line.strip():
                        yield event_of(line)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raises ClusterUnavailable or Unauthorized for a call that gets no answer."""
        import httpx2 as httpx

        try:
            yield
        except (httpx.TransportError, httpx.StreamError) as error:
            raise ClusterUnavailable(
                f"no answer from the API server {self.server}: {_text_of(error)}"
            ) from error
        except _login_errors() as error:
            raise Unauthorized(f"cannot log in to the API server: {_text_of(error)}") from error

    async def _call(
        self,
        method: str,
        path: str,
        right: Right,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        content = msgspec.json.encode(body) if body is not None else None
        patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": patch} if body is not None else None
        async with self._slots:
            with self._failures():
                response = await self._http.request(
                    method, path, params=params, content=content, headers=headers
                )
        if not 200 <= response.status_code < 300:
            raise error_of(response, right)
        try:
            answer = msgspec.json.decode(response.content, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ClusterUnavailable(
                f"the API server {self.server} did not answer with JSON: {error}"
            ) from None
        return answer


def connect(settings: KubeSettings) -> Cluster:
    """Returns a client for the cluster of the kubeconfig or of the pod's service account. Makes no
    call to the cluster yet. Raises SetupError if the kubeconfig or the service account cannot be
    used.
    """
    try:
        import httpx2 as httpx
        from lightkube.config.client_adapter import AsyncClient, ConnectionParams
        from lightkube.core.exceptions import ConfigError
    except ImportError:
        raise SetupError(NEEDED) from None
    single = login(settings)
    try:
        http = AsyncClient(single, ConnectionParams(timeout=httpx.Timeout(CALL_SECONDS)))
    except (ConfigError, httpx.InvalidURL, OSError, ValueError) as error:
        raise bad_kubeconfig(single.fname or "of the pod's service account", error) from None
    return Cluster(http, single.cluster.server)


def _path(kind: str, namespace: str | None, name: str = "") -> str:
    place = f"/namespaces/{namespace}" if namespace is not None else ""
    return f"{_PREFIX[kind]}{place}/{kind}" + (f"/{name}" if name else "")


def _login_errors() -> tuple[type[Exception], ...]:
    """The errors that lightkube raises if a token file is missing, or a login program fails or
    returns no token.
    """
    from lightkube.core.exceptions import ConfigError

    return ConfigError, OSError, LookupError, TypeError, ValueError


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__
