"""Whether `admit up` exports traces."""

from __future__ import annotations

import os
from importlib.util import find_spec

from admittance.cli.support import output
from admittance.cli.support.errors import BadInput
from admittance.runtime.errors import SetupError
from admittance.telemetry.variables import NEEDED, endpoint, has_endpoint, why_disabled


def exports_traces() -> bool:
    """Whether `admit up` starts the telemetry service: a variable names a receiver of traces, and
    the OpenTelemetry SDK is installed. Without the SDK this function prints a warning, because such
    variables are often set for all programs of a machine. Raises BadInput for a variable with a
    wrong value.
    """
    if not has_endpoint(os.environ) or why_disabled(os.environ):
        return False
    try:
        endpoint(os.environ)
    except SetupError as error:
        raise BadInput(str(error)) from None
    if not _has_sdk():
        output.warn(f"no traces are exported: {NEEDED}")
        return False
    return True


def _has_sdk() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False
