"""Which stored values a login may not delete by their key."""

from __future__ import annotations

from admittance.events.reader import Unreadable
from admittance.events.subjects import CAPACITY, GUARD_KEY, RESTORED
from admittance.provisioning.records import read_record
from admittance.runtime.bus.messages import SECRET_KEY
from admittance.workload.bucket_reader import names_of, read_whole


def why_kept(key: str, value: bytes) -> str:
    """Why the value may not be deleted by its key, with the command to use instead; "": it may be.

    A workload or a capacity request that can be read may have a job or machines, which only its own
    command frees."""
    prefix = key.partition(".")[0]
    if key in (GUARD_KEY, SECRET_KEY, RESTORED):
        return f"the services need {key}: it is never deleted"
    try:
        if prefix == "workload":
            read_whole(key, value)
        elif prefix == CAPACITY:
            read_record(key, value)
        else:
            return ""
        namespace, name = names_of(key)
    except Unreadable:
        return ""
    kind = "workload" if prefix == "workload" else "provisioningrequest"
    return f"{key} can be read: `admit delete {kind} {name} -n {namespace}` deletes it"
