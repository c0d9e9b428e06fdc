"""The spec as it is stored: compact canonical JSON, so that equal specs are equal bytes."""

from __future__ import annotations

from typing import Final

import msgspec

from admittance.api.canonical import encode
from admittance.api.workload import Workload, WorkloadSpec

_decoder: Final = msgspec.json.Decoder(WorkloadSpec)


def to_stored(workload: Workload) -> bytes:
    """The spec of workload, which has its defaults, as it goes into the bucket."""
    return encode(workload.spec)


def spec_of(stored: bytes | msgspec.Raw) -> WorkloadSpec:
    """The whole spec of a stored workload, typed. Raises msgspec.MsgspecError."""
    return _decoder.decode(stored)
