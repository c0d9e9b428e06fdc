"""The annotation with a workload's own limits for its pods to become ready. Source: KEP-4803."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from admittance.api.fields.limits import INT32_MAX
from admittance.api.fields.problems import Problem
from admittance.text_cache import text_cache

WAIT_FOR_PODS_READY: Final = "kueue.x-k8s.io/wait-for-pods-ready"
"""Annotation of a Workload or Job: a JSON text like
``{"timeoutSeconds": 30, "recoveryTimeoutSeconds": 40}``."""
FIELD: Final = f"metadata.annotations[{WAIT_FOR_PODS_READY}]"


class PodsReadyTimeouts(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A workload's own limits, in seconds. ``recovery_timeout_seconds``: for pods that were ready
    before; None: the same as ``timeout_seconds``; 0: no limit."""

    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]
    recovery_timeout_seconds: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] | None = None


_decoder = msgspec.json.Decoder(PodsReadyTimeouts)


@text_cache(256)
def timeouts_of(written: str) -> PodsReadyTimeouts:
    """The limits in the annotation. Raises msgspec.MsgspecError if it cannot be read."""
    return _decoder.decode(written)


def check_wait_for_pods_ready(annotations: Mapping[str, str]) -> list[Problem]:
    """The problem of an annotation that cannot be read; none without the annotation."""
    written = annotations.get(WAIT_FOR_PODS_READY)
    if written is None:
        return []
    try:
        timeouts_of(written)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        message = 'must be a JSON text like {"timeoutSeconds": 30, "recoveryTimeoutSeconds": 40}'
        return [Problem(FIELD, f"{message}: {error}")]
    return []
