"""What a run starts with: its plan, its identity, and what its shim reads."""

from __future__ import annotations

import msgspec

from admittance.api.pod_requests import needs
from admittance.events.facts import Admitted
from admittance.events.shapes import PodSetToRun
from admittance.runner.decide import Run
from admittance.runner.host.port import RunFiles, RunnerFiles
from admittance.runner.host.processes import tag_of
from admittance.runner.host.records import RunIdentity, Spec, run_key
from admittance.runner.plans.devices import parts_here, runners_to_run, units_of
from admittance.runner.plans.run_plan import RunPlan, containers_at_once

_encode = msgspec.json.Encoder().encode


def spec_of(plan: RunPlan, identity: RunIdentity, files: RunnerFiles, ttl: float) -> Spec:
    """What the shim of a run reads. ``ttl``: seconds after the last renewal of the claims at which
    another runner may take them."""
    # The shim's SIGTERM and SIGKILL come before the claims' TTL ends: SIGTERM early enough for the
    # grace period, then SIGKILL.
    kill = ttl * 0.95
    stop = kill - max(ttl * 0.15, min(plan.grace, ttl / 3))
    return Spec(
        **{name: getattr(plan, name) for name in plan.__struct_fields__},
        key=identity.key,
        mark=identity.mark,
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        revision=identity.revision,
        notify=str(files.notify),
        lease=str(files.lease),
        lease_stop=stop,
        lease_kill=kill,
        pods=identity.pods,
        units=identity.units,
        part=identity.part,
        parts=identity.parts,
        placed=identity.placed,
        warns=identity.warns,
        requests=identity.requests,
        restarts=identity.restarts,
        tag=tag_of(identity.mark),
    )


def with_end(plan: RunPlan, ends_in: float | None, boot_seconds: float) -> RunPlan:
    """The plan with the end of the job's time. ``ends_in``: seconds from now; None: the job has no
    end. ``boot_seconds``: now, in seconds since the boot of the machine."""
    if ends_in is None:
        return plan
    # A plan without an end has 0.
    return msgspec.structs.replace(plan, ends=max(0.001, boot_seconds + ends_in))


def identity_of(
    run: Run, admitted: Admitted, plan: RunPlan, *, runner: str, mark: str, restarts: int
) -> RunIdentity:
    """The identity of a run of the runner with the id ``runner``. ``restarts``: how often it has
    started the admission before."""
    return RunIdentity(
        key=run_key(run.namespace, run.name, run.revision, run.part),
        namespace=run.namespace,
        name=run.name,
        uid=run.uid,
        revision=run.revision,
        mark=mark,
        grace=plan.grace,
        pods=containers_at_once(plan),
        transfers=plan.transfers,
        hooks=plan.hooks,
        warns=any(each.warn is not None for each in plan.sets),
        units=units_of(admitted.pod_sets, runner),
        part=run.part,
        parts=len(runners_to_run(admitted.pod_sets)) if run.part else 0,
        placed=any(pod_set.parts for pod_set in admitted.pod_sets),
        requests=requests_of(admitted, runner),
        restarts=restarts,
    )


def starts_before(given_back: RunFiles | None) -> int:
    """How often this runner has started an admission. ``given_back``: its last run, which the
    runner gave back; None: there was none. A run with a failed prolog has started nothing."""
    if given_back is None:
        return 0
    end = given_back.journal.outcome
    is_start = end is None or end.kind != "unprepared"
    return given_back.identity.restarts + is_start


def requests_of(admitted: Admitted, runner: str) -> dict[str, int]:
    """What the pods of an admission that the runner with this id starts ask for together, in
    accounting units. Raises as `admittance.api.pod_requests.needs` for a template that was not
    validated."""
    pod_sets = [
        {"name": pod_set.name, "count": _count(pod_set, runner), "template": pod_set.template}
        for pod_set in admitted.pod_sets
        if bytes(pod_set.template) != b"null"
    ]
    total: dict[str, int] = {}
    for needed in needs(_encode({"podSets": pod_sets})).pod_sets:
        for resource, amount in needed.requests.items():
            total[resource] = total.get(resource, 0) + amount * needed.count
    return total


def _count(pod_set: PodSetToRun, runner: str) -> int:
    if not pod_set.parts:
        return pod_set.count
    return sum(part.count for part in parts_here(pod_set, runner))
