"""What a job of a workflow asks for, and how its workload ended. Without Snakemake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from admittance.client.requests.workloads.waits import is_failure
from admittance.runtime import clock
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload
from admittance.workload.waiting_reason import reason_of

ENDS: Final = frozenset({Phase.FINISHED, Phase.DEACTIVATED, Phase.REJECTED})


def arguments_of(threads: int, resources: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Client.submit` for the threads and resources of a job: ``mem_mb``,
    ``gpu``, ``runtime`` in minutes, ``queue`` and ``priority_class``. Pure."""
    arguments: dict[str, Any] = {"cpu": threads}
    if isinstance(memory := resources.get("mem_mb"), int):
        arguments["memory"] = f"{memory}M"
    if gpu := resources.get("gpu"):
        arguments["gpu"] = gpu
    if runtime := resources.get("runtime"):
        arguments["max_seconds"] = 60 * int(runtime)
    return arguments | {
        name: resources[name] for name in ("queue", "priority_class") if resources.get(name)
    }


def end_of(workload: StoredWorkload | None) -> str | None:
    """Why a job failed, as a sentence; "" if it succeeded, None if it has not ended. A workload
    that is not stored was deleted."""
    if workload is None:
        return "its workload was deleted"
    now = phase(workload, clock.now())
    if now not in ENDS or (now is Phase.FINISHED and not is_failure(workload)):
        return "" if now is Phase.FINISHED else None
    return ": ".join(filter(None, reason_of(workload, clock.now())))
