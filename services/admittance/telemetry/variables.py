"""The standard environment variables of OpenTelemetry that the telemetry service reads before it
imports the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Final
from urllib.parse import unquote, urlsplit

from admittance.runtime.errors import SetupError
from admittance.runtime.process.service import Asked

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
NEEDED: Final = "telemetry needs the OpenTelemetry SDK: pip install 'admittance[otel]'"
DEFAULT_ENDPOINT: Final = "http://localhost:4318"


def why_disabled(env: Mapping[str, str]) -> str:
    """The variable that disables the export of traces, with its value; empty if no variable
    disables the export."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED=true"
    if env.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return "OTEL_TRACES_EXPORTER=none"
    return ""


def has_endpoint(env: Mapping[str, str]) -> bool:
    """Whether an environment variable names a receiver of traces."""
    return any(env.get(name) for name in ENDPOINTS)


def endpoint(env: Mapping[str, str]) -> str:
    """The URL of the receiver of traces, without login and path, for log lines. Raises SetupError
    for a wrong URL, and for another protocol than OTLP over HTTP.
    """
    if exporter := env.get("OTEL_TRACES_EXPORTER", "").strip():
        _only("OTEL_TRACES_EXPORTER", exporter, "otlp")
    for name in PROTOCOLS:
        if protocol := env.get(name, "").strip():
            _only(name, protocol, "http/protobuf")
            break
    name = next((endpoint for endpoint in ENDPOINTS if env.get(endpoint)), ENDPOINTS[-1])
    try:
        url = urlsplit(env.get(name) or DEFAULT_ENDPOINT)
        port = f":{url.port}" if url.port else ""
    except ValueError:
        raise SetupError(_wrong(name)) from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise SetupError(_wrong(name))
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"{url.scheme}://{host}{port}"


def asked(env: Mapping[str, str]) -> Asked:
    """Whether `admit up` starts the telemetry service: a variable names a receiver of traces, and
    the OpenTelemetry SDK is installed. Without the SDK there is only a warning, because such
    variables are often set for all programs of a machine. Raises SetupError for a variable with a
    wrong value.
    """
    if not has_endpoint(env) or why_disabled(env):
        return Asked(False)
    endpoint(env)
    return Asked(True) if _has_sdk() else Asked(False, f"no traces are exported: {NEEDED}")


def _has_sdk() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


SECRET_MIN: Final = 4
"""The fewest characters of a text that `without_secrets` replaces."""


def without_secrets(text: str, env: Mapping[str, str]) -> str:
    """The text of the SDK with *** in place of headers, logins, paths and queries that the
    variables give it: each of them may be a key of the receiver."""
    for secret in sorted(_secrets(env), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(env: Mapping[str, str]) -> set[str]:
    secrets: set[str] = set()
    for name, value in env.items():
        if name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("_HEADERS"):
            for header in (value, *value.split(",")):
                given = header.partition("=")[2]
                secrets |= {" ".join(header.split()), given.strip(), unquote(given).strip()}
    for name in ENDPOINTS:
        with suppress(ValueError):
            url = urlsplit(env.get(name, ""))
            secrets |= {url.netloc.rpartition("@")[0], url.path.strip("/"), url.query}
    return {secret for secret in secrets - {"v1/traces"} if len(secret) >= SECRET_MIN}


def _only(name: str, value: str, allowed: str) -> None:
    if value != allowed:
        raise SetupError(f"{name}={value!r}: the telemetry service supports only {allowed}")


def _wrong(name: str) -> str:
    # The value of the variable is not shown, because the URL may contain a password.
    return f"{name} is not a URL such as {DEFAULT_ENDPOINT}"
