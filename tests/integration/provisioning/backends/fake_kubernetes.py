"""A small API server: ProvisioningRequests and PodTemplates over real HTTP, with list, watch,
validation and injected errors; and an autoscaler that sets conditions when the test calls it.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Manifest = dict[str, Any]

PATHS = re.compile(
    r"\A/(?:apis/autoscaling\.x-k8s\.io/v1|api/v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<kind>provisioningrequests|podtemplates)(?:/(?P<name>[^/]+))?\Z"
)
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
GROUPS = {"provisioningrequests": "autoscaling.x-k8s.io", "podtemplates": ""}
SUBDOMAIN = re.compile(r"\A[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
LABEL = re.compile(r"\A([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")
NAMES = {"provisioningrequests": "ProvisioningRequest", "podtemplates": "PodTemplate"}
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
BOOKMARK_SECONDS = 0.3


class Refusal(Exception):
    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
        }


class Kubernetes:
    """``calls``: method, kind and status code of every answer. ``on_create``: what the autoscaler
    does with each new request, by itself."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.objects: dict[tuple[str, str, str], Manifest] = {}
        self.namespaces: set[str] | None = None
        self.calls: list[tuple[str, str, int]] = []
        self.on_create: Callable[[Manifest], None] | None = None
        self.injected: list[dict[str, Any]] = []
        self.token = "secret"
        self.forbidden: set[tuple[str, str]] = set()
        """Verbs that are forbidden, each in a namespace, or in all of them: ``*``."""
        self._version = 0
        self._history: list[tuple[int, str, str, Manifest]] = []
        self._oldest = 0
        self._era = 0
        self.away = False
        self.page = 2
        """Objects that a page of a listing has at most."""
        self.slow_seconds = 0.0
        """The delay between a request and the creation of its object."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kubeconfig(self, folder: Path, url: str = "") -> Path:
        """A kubeconfig in folder that names the server by ``url``, else by its own."""
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "fake", "user": "tester"}}],
            "clusters": [{"name": "fake", "cluster": {"server": url or self.url}}],
            "users": [{"name": "tester", "user": {"token": self.token}}],
        }
        path.write_text(json.dumps(config))
        return path

    def close(self) -> None:
        self.end_watches()
        self._server.shutdown()
        self._server.server_close()

    # What a test does. --------------------------------------------------------------------

    def fail(
        self,
        code: int,
        times: int = 1,
        *,
        method: str = "POST",
        kind: str = "provisioningrequests",
        reason: str = "InternalError",
        message: str = "etcd is away",
        after: bool = False,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Makes the next ``times`` calls of the method and kind fail; ``after``: the server
        performs the call before it answers with the error."""
        self.injected.append(
            {
                "refusal": Refusal(code, reason, message),
                "times": times,
                "method": method,
                "kind": kind,
                "after": after,
                "headers": headers or {},
            }
        )

    def is_forbidden(self, verb: str, namespace: str) -> bool:
        return not {(verb, namespace), (verb, "*")}.isdisjoint(self.forbidden)

    def review(self, body: Any) -> Manifest:
        """A SelfSubjectAccessReview."""
        about = body["spec"]["resourceAttributes"]
        allowed = not self.is_forbidden(about["verb"], about["namespace"])
        return {**body, "status": {"allowed": allowed}}

    def check(self, verb: str, kind: str, namespace: str) -> None:
        """Raises Refusal where a role lacks the right."""
        if self.is_forbidden(verb, namespace):
            group = GROUPS[kind]
            raise Refusal(
                403,
                "Forbidden",
                f'{kind}.{group} is forbidden: User "tester" cannot {verb} resource "{kind}" in '
                f'API group "{group}" in the namespace "{namespace}"',
            )

    def end_watches(self) -> None:
        """Ends all watches, as an API server does every few minutes."""
        with self.lock:
            self._era += 1
            self.lock.notify_all()

    def forget(self) -> None:
        """Forgets all events until now: a watch from there gets 410."""
        with self.lock:
            self._oldest = self._version + 1
            self._version += 1
            self._history.clear()
            self._era += 1
            self.lock.notify_all()

    def compact(self) -> None:
        """A watch may only continue from the newest version."""
        with self.lock:
            self._oldest = self._version
            self._history.clear()

    def go_away(self) -> None:
        self.away = True
        self.end_watches()

    def come_back(self) -> None:
        self.away = False

    def all(self, kind: str = "provisioningrequests") -> list[Manifest]:
        with self.lock:
            return [kept for (its, _, _), kept in self.objects.items() if its == kind]

    def templates(self) -> list[Manifest]:
        return self.all("podtemplates")

    def put(self, kind: str, manifest: Manifest) -> Manifest:
        """Another client creates an object."""
        return self._create(kind, manifest["metadata"]["namespace"], manifest)

    def condition(
        self,
        name: str,
        kind: str,
        message: str = "",
        *,
        status: str = "True",
        details: dict[str, str] | None = None,
    ) -> None:
        """Sets a condition, as the autoscaler does."""
        with self.lock:
            key = next(key for key in self.objects if key[0] != "podtemplates" and key[2] == name)
            copy = json.loads(json.dumps(self.objects[key]))
            state = copy.setdefault("status", {})
            kept = [
                condition for condition in state.get("conditions", ()) if condition["type"] != kind
            ]
            told = {"type": kind, "status": status, "reason": kind, "message": message}
            state["conditions"] = [*kept, told | {"lastTransitionTime": "2024-05-01T00:00:00Z"}]
            if details is not None:
                state["provisioningClassDetails"] = details
            self._store("MODIFIED", key, copy)

    def delete_by_hand(self, name: str) -> None:
        with self.lock:
            for key in [key for key in self.objects if key[2] == name]:
                self._remove(key)

    # The store. ---------------------------------------------------------------------------

    def _store(self, what: str, key: tuple[str, str, str], manifest: Manifest) -> Manifest:
        self._version += 1
        manifest["metadata"]["resourceVersion"] = str(self._version)
        if what == "DELETED":
            self.objects.pop(key)
        else:
            self.objects[key] = manifest
        self._history.append((self._version, key[0], what, manifest))
        self.lock.notify_all()
        return manifest

    def _create(self, kind: str, namespace: str, manifest: Manifest) -> Manifest:
        validate(kind, namespace, manifest)
        with self.lock:
            if self.namespaces is not None and namespace not in self.namespaces:
                raise Refusal(404, "NotFound", f'namespaces "{namespace}" not found')
            key = (kind, namespace, manifest["metadata"]["name"])
            if key in self.objects:
                message = f'{kind} "{key[2]}" already exists'
                raise Refusal(409, "AlreadyExists", message)
            manifest["metadata"]["uid"] = f"uid-{self._version + 1}"
            made = self._store("ADDED", key, manifest)
        if kind == "provisioningrequests" and self.on_create is not None:
            self.on_create(made)
        return made

    def _remove(self, key: tuple[str, str, str]) -> None:
        gone = self._store("DELETED", key, json.loads(json.dumps(self.objects[key])))
        owned = [
            other
            for other, kept in self.objects.items()
            if any(
                owner["uid"] == gone["metadata"]["uid"]
                for owner in kept["metadata"].get("ownerReferences", ())
            )
        ]
        for other in owned:
            self._remove(other)

    def answer(self, method: str, kind: str, namespace: str, name: str, body: Any) -> Manifest:
        key = (kind, namespace, name)
        if method == "POST":
            time.sleep(self.slow_seconds)
            return self._create(kind, namespace, body)
        with self.lock:
            if key not in self.objects:
                raise Refusal(404, "NotFound", f'{kind} "{name}" not found')
            copy: Manifest = json.loads(json.dumps(self.objects[key]))
            if method == "GET":
                return copy
            if method == "PATCH":
                merge(copy, body)
                return self._store("MODIFIED", key, copy)
            wanted = ((body or {}).get("preconditions") or {}).get("uid")
            if wanted is not None and wanted != copy["metadata"]["uid"]:
                raise Refusal(409, "Conflict", "the UID in the precondition is another")
            self._remove(key)
            return {"kind": "Status", "status": "Success"}

    def list(self, kind: str, namespace: str, query: dict[str, str]) -> Manifest:
        with self.lock:
            items = sorted(
                (key, item)
                for key, item in self.objects.items()
                if key[0] == kind and namespace in ("", key[1]) and selected(item, query)
            )
            limit = min(int(query.get("limit", 500)), self.page)
            after = query.get("continue", "")
            items = [(key, item) for key, item in items if "/".join(key) > after]
            page, more = items[:limit], items[limit:]
            metadata = {"resourceVersion": str(self._version)}
            if more:
                metadata["continue"] = "/".join(page[-1][0])
            return {"metadata": metadata, "items": [item for _, item in page]}

    def watch(
        self, kind: str, namespace: str, query: dict[str, str], send: Callable[[Manifest], None]
    ) -> None:
        version = int(query["resourceVersion"])
        with self.lock:
            era = self._era
            if self.away:
                return  # The server went away while this request arrived.
            if version < self._oldest:
                status = Refusal(410, "Expired", "too old resource version").status
                send({"type": "ERROR", "object": status})
                return
        while True:
            with self.lock:
                if self._era != era:
                    return
                fresh = [change for change in self._history if change[0] > version]
                if not fresh:
                    self.lock.wait(BOOKMARK_SECONDS)
                    if self._era != era:
                        return
                    fresh = [change for change in self._history if change[0] > version]
                now = self._version
            for at, its, what, manifest in fresh:
                version = at
                place = manifest["metadata"]["namespace"]
                if its == kind and namespace in ("", place) and selected(manifest, query):
                    send({"type": what, "object": manifest})
            if not fresh:
                version = now
                mark = {"kind": NAMES[kind], "metadata": {"resourceVersion": str(now)}}
                send({"type": "BOOKMARK", "object": mark})

    def injection(self, method: str, kind: str, *, after: bool) -> dict[str, Any] | None:
        with self.lock:
            for fault in self.injected:
                if (fault["method"], fault["kind"], fault["after"]) == (method, kind, after):
                    fault["times"] -= 1
                    if not fault["times"]:
                        self.injected.remove(fault)
                    return fault
        return None

    def _handler(kubernetes) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                return

            def reply(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def chunk(self, event: Manifest) -> None:
                data = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                self.wfile.flush()

            def handle_one(self) -> None:
                if kubernetes.away:
                    self.close_connection = True
                    return
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                match = PATHS.match(url.path)
                authorized = self.headers.get("Authorization") == f"Bearer {kubernetes.token}"
                if url.path == REVIEWS:
                    code = 201 if authorized else 401
                    kubernetes.calls.append(("POST", "selfsubjectaccessreviews", code))
                    self.reply(code, kubernetes.review(body) if authorized else {})
                    return
                if match is None:
                    self.send_response(404)
                    self.send_header("Content-Length", "18")
                    self.end_headers()
                    self.wfile.write(b"404 page not found")
                    return
                kind, name = match["kind"], match["name"] or ""
                namespace = match["namespace"] or ""
                method, headers = self.command, {}
                try:
                    if not authorized:
                        raise Refusal(401, "Unauthorized", "Unauthorized")
                    watches = query.get("watch") == "true"
                    reading = "get" if name else "watch" if watches else "list"
                    verb = VERBS.get(method, reading)
                    kubernetes.check(verb, kind, namespace)
                    for after in (False, True):
                        fault = kubernetes.injection(method, kind, after=after)
                        if fault is not None:
                            if after:
                                kubernetes.answer(method, kind, namespace, name, body)
                            headers = fault["headers"]
                            raise fault["refusal"]
                    if method == "GET" and not name:
                        if watches:
                            kubernetes.calls.append(("WATCH", kind, 200))
                            self.send_response(200)
                            self.send_header("Transfer-Encoding", "chunked")
                            self.end_headers()
                            kubernetes.watch(kind, namespace, query, self.chunk)
                            self.wfile.write(b"0\r\n\r\n")
                            if kubernetes.away:
                                self.close_connection = True
                            return
                        answer = kubernetes.list(kind, namespace, query)
                    else:
                        answer = kubernetes.answer(method, kind, namespace, name, body)
                except Refusal as refusal:
                    kubernetes.calls.append((method, kind, refusal.code))
                    self.reply(refusal.code, refusal.status, headers)
                    return
                code = 201 if method == "POST" else 200
                kubernetes.calls.append((method, kind, code))
                self.reply(code, answer)

            def do(self) -> None:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.handle_one()

            do_GET = do_POST = do_PATCH = do_DELETE = do

        return Handler


def selected(manifest: Manifest, query: dict[str, str]) -> bool:
    labels = manifest["metadata"].get("labels", {})
    terms = [term for term in query.get("labelSelector", "").split(",") if term]
    return all(term_holds(labels, term) for term in terms)


def term_holds(labels: dict[str, str], term: str) -> bool:
    """``name``, ``name=value`` or ``name!=value``."""
    if "!=" in term:
        name, _, value = term.partition("!=")
        return labels.get(name) != value
    name, equals, value = term.partition("=")
    return labels.get(name) == value if equals else name in labels


def merge(into: Any, patch: Any) -> None:
    """RFC 7396."""
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            merge(into[name], value)
        else:
            into[name] = value


def validate(kind: str, namespace: str, manifest: Manifest) -> None:
    """Validates an object as the schema of the two kinds does. Raises Refusal, 422."""
    problems: list[str] = []
    metadata = manifest.get("metadata", {})
    name = metadata.get("name", "")
    if not SUBDOMAIN.match(name) or len(name) > 253:
        problems.append(f"metadata.name: Invalid value: {name!r}")
    if metadata.get("namespace") != namespace:
        problems.append("metadata.namespace: does not match the one of the request")
    for key, value in metadata.get("labels", {}).items():
        if not LABEL.match(value):
            problems.append(f"metadata.labels: Invalid value: {key}={value!r}")
    if manifest.get("kind") != NAMES[kind]:
        problems.append(f"kind: {manifest.get('kind')!r}")
    if kind == "podtemplates":
        containers = manifest.get("template", {}).get("spec", {}).get("containers") or []
        if not containers:
            problems.append("template.spec.containers: Required value")
        for at, container in enumerate(containers):
            for field in ("name", "image"):
                if not container.get(field):
                    problems.append(f"template.spec.containers[{at}].{field}: Required value")
    else:
        problems += _spec_problems(manifest.get("spec", {}))
    if problems:
        message = f'{NAMES[kind]} "{name}" is invalid: {", ".join(problems)}'
        raise Refusal(422, "Invalid", message)


def _spec_problems(spec: Manifest) -> list[str]:
    problems = []
    if unknown := set(spec) - {"provisioningClassName", "parameters", "podSets"}:
        problems.append(f"spec: unknown {sorted(unknown)}")
    if not SUBDOMAIN.match(spec.get("provisioningClassName", "")):
        problems.append("spec.provisioningClassName: Invalid value")
    parameters = spec.get("parameters", {})
    if len(parameters) > 100:
        problems.append("spec.parameters: Too many: must have at most 100 items")
    for key, value in parameters.items():
        if not isinstance(value, str) or len(value) > 255:
            problems.append(f"spec.parameters[{key}]: Too long: may not be more than 255 bytes")
    pod_sets = spec.get("podSets", [])
    if not 1 <= len(pod_sets) <= 32:
        problems.append("spec.podSets: must have 1 to 32 items")
    for at, pod_set in enumerate(pod_sets):
        if pod_set.get("count", 0) < 1:
            problems.append(f"spec.podSets[{at}].count: must be at least 1")
        name = pod_set.get("podTemplateRef", {}).get("name", "")
        if not SUBDOMAIN.match(name) or len(name) > 253:
            problems.append(f"spec.podSets[{at}].podTemplateRef.name: Invalid value")
    return problems
