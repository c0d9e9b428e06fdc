"""Messages of the log in the form that the core of the workload-controller reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from admittance.control.commit import LogMessage
from admittance.events.base import HEADER_MSG_ID, HEADER_TRACE
from admittance.runtime.leader import lease_store
from admittance.runtime.telemetry.tracing import extract


def log_message(
    sequence: int, subject: str, data: bytes, headers: Mapping[str, str], time: datetime
) -> LogMessage:
    """A message of the log in the form that the core reads. An invalid trace is dropped, because
    the core stores the trace with the workload and publishes it with further messages.
    """
    if not headers:
        return LogMessage(sequence, subject, data, time)
    trace = extract(headers)
    if HEADER_TRACE in headers and not trace:
        headers = {name: value for name, value in headers.items() if name != HEADER_TRACE}
    fence = lease_store.fence_of(headers)
    message_id = headers.get(HEADER_MSG_ID, "")
    return LogMessage(sequence, subject, data, time, fence, message_id, trace, headers)
