"""A person approves a workload with `admit approve workload NAME`, or denies it with `admit deny`.

This program reports what the workload waits for. The command publishes the verdict itself, with
the person's name and the time.
"""

from __future__ import annotations

import asyncio
import json
import os

import nats
from nats.aio.client import Client
from nats.js.errors import Error, NotFoundError

from admittance.checks import AdmissionCheckController, Pending, Ready, Rejected, Request, Verdict
from admittance.events.names import token

approval = AdmissionCheckController("admittance.dev/approval")


@approval.check
async def ask(request: Request) -> Verdict:
    # A person may have answered while this program was down: Pending would overrule that.
    which = f"workload {request.name} -n {request.namespace} --check {request.check}"
    waits = Pending(f"waits for a person: admit approve {which}, or admit deny {which}")
    return await answered(request) or waits


async def answered(request: Request) -> Verdict | None:
    """The last verdict about this reservation, if it is final. A user of the role check may not
    read the log, and knows of no earlier verdict."""
    if os.environ.get("ADMIT_NATS_CREDS"):
        return None
    workload = f"{token(request.namespace)}.{token(request.name)}"
    subject = f"admit.check.reported.{token(approval.name)}.{workload}"
    try:
        message = await (await connected()).jetstream().get_last_msg("ADMITTANCE", subject)
    except NotFoundError:
        return None
    except (Error, nats.errors.Error, OSError):
        return None  # unknown: the person is asked once more
    said = json.loads(message.data or b"{}")
    same = (said.get("uid"), said.get("check"), said.get("cycle"))
    if same != (request.uid, request.check, request.cycle):
        return None
    found = {"Ready": Ready, "Rejected": Rejected}.get(said["state"])
    return found(said.get("message", "")) if found else None


_client: Client | None = None
_lock = asyncio.Lock()


async def connected() -> Client:
    """A connection for looking at the log; the helper has its own."""
    global _client
    async with _lock:
        if _client is None:
            url = os.environ.get("ADMIT_NATS_URL", "nats://127.0.0.1:4222")
            connecting = nats.connect(url.split(","), max_reconnect_attempts=-1)
            _client = await asyncio.wait_for(connecting, 5)
        return _client


if __name__ == "__main__":
    approval.run()
