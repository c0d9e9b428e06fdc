"""The system from Python: submit jobs, wait for them, follow and explain them.

    async with await Client.connect() as client:
        job = await client.submit(["python", "train.py"], gpu=1)
        result = await job.result()

`SyncClient` has the same methods for programs without an event loop. docs/python.md shows both.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admittance.client.calling.executor import AdmittanceExecutor, CallLost
    from admittance.client.client import Client
    from admittance.client.errors import (
        BadInput,
        ClientError,
        Closed,
        JobFailed,
        NoResponder,
        NotAllowed,
        NotFound,
        Refused,
        RequestFailed,
        TimedOut,
        Unavailable,
        WrongUse,
    )
    from admittance.client.holding import Held
    from admittance.client.job import Job
    from admittance.client.requests.files import FetchedFile
    from admittance.client.requests.objects import BucketObject, Change
    from admittance.client.requests.workloads.waits import Result
    from admittance.client.sync_client import SyncClient
    from admittance.client.sync_job import SyncJob
    from admittance.runtime.nats.connection_options import ConnectionOptions

__all__ = [
    "AdmittanceExecutor",
    "BadInput",
    "BucketObject",
    "CallLost",
    "Change",
    "Client",
    "ClientError",
    "Closed",
    "ConnectionOptions",
    "FetchedFile",
    "Held",
    "Job",
    "JobFailed",
    "NoResponder",
    "NotAllowed",
    "NotFound",
    "Refused",
    "RequestFailed",
    "Result",
    "SyncClient",
    "SyncJob",
    "TimedOut",
    "Unavailable",
    "WrongUse",
]

_HOMES = {
    "AdmittanceExecutor": "admittance.client.calling.executor",
    "CallLost": "admittance.client.calling.executor",
    "BucketObject": "admittance.client.requests.objects",
    "Change": "admittance.client.requests.objects",
    "Client": "admittance.client.client",
    "ConnectionOptions": "admittance.runtime.nats.connection_options",
    "FetchedFile": "admittance.client.requests.files",
    "Held": "admittance.client.holding",
    "Job": "admittance.client.job",
    "Result": "admittance.client.requests.workloads.waits",
    "SyncClient": "admittance.client.sync_client",
    "SyncJob": "admittance.client.sync_job",
}
"""The module of each public name that is not an error."""


def __getattr__(name: str) -> object:
    # Commands import the errors of this package at their start, and the rest would slow them.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "admittance.client.errors")), name)
    globals()[name] = value
    return value
