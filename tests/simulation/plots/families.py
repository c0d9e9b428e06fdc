"""Families: jobs of which several variants try for quota, one is admitted, and better ones take
over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

import msgspec

from admittance.events import facts
from admittance.events.base import Fact
from admittance.family import variant_name
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.workload.limits import Limits
from simulation.environment.checks import CheckBehavior
from simulation.environment.courses import Courses
from simulation.plots.checked import reactivations, repairs, user_changes
from simulation.plots.configuration import API, NAMESPACE, cpu
from simulation.plots.family_queues import FamilyQueues
from simulation.plots.scenario import (
    CALM_SECONDS,
    FAMILY_SERVICES,
    Scenario,
    UserFact,
    edits,
    faults,
    one_edit,
    outages_of,
    pods_ready,
    skews,
    submission,
    workload_of,
)

TAGS = ("f0", "f1", "f2", "v0", "v1")
"""Variants that users name."""
LONG_CALM = 900.0
"""Where checks outlast the patience of gates, the end begins later."""
LONG_INTERVALS = 5.0
"""Factor on the intervals of services in these stories."""


def families(rng: Random) -> Scenario:
    """A few families: their checks race, their queue changes, and users, runners and services
    interfere."""
    queues = FamilyQueues(rng)
    span = rng.choice((0.5, 6.0, 20.0))
    user_facts: list[UserFact] = []
    names = [f"w{number}" for number in range(rng.choice((1, 2, 2, 3, 3, 4)))]
    for name in names:
        at = 1.0 + rng.random() * span
        user_facts.append(_submitted(rng, queues, name, rng.choice(sorted(queues.locals)), at))
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            at += rng.random() * rng.choice((0.05, 1.0, 15.0))
            user_facts += list(_user_changes(rng, name, at))
    manifests = queues.snapshot()
    admin_changes = edits(rng, queues, (0, 0, 1, 2, 3), (0.3, 2.0, 15.0))
    return Scenario(
        manifests,
        [*user_facts, *_reactivations(names, user_facts)],
        [*admin_changes, *repairs(queues)],
        faults(rng, FAMILY_SERVICES)[: rng.choice((0, 1, 2, 5))],
        skews(rng, FAMILY_SERVICES),
        config=_config(rng),
        limits=_limits(rng),
        heals=True,
        services=FAMILY_SERVICES,
        check_behavior=CheckBehavior(
            rejected=rng.choice((0.2, 1.5)),
            never=rng.choice((0.3, 2.0)),
            turns=rng.choice((1.0, 4.0)),
            demands=rng.choice((0.0, 1.0)),
        ),
        outages=outages_of(rng, (0, 0, 1)),
        lost_timers=(rng.random() * 40.0,) if rng.random() < 0.15 else (),
        courses=Courses(
            lengths=(2.0, 12.0, 25.0),
            slow=rng.choice((0.0, 0.3)),
            flapping=rng.choice((0.0, 0.2)),
            ignores_stop=rng.choice((0.0, 0.2)),
            hangs=rng.choice((0.0, 0.2)),
        ),
    )


def exclusive(rng: Random) -> Scenario:
    """Families that need victims on every flavor: of each other, and of a queue that borrows what
    is theirs. Now and then a check takes longer than the patience of gates."""
    queues = FamilyQueues(rng, flavors=(2, 2, 3))
    queues.memory = False
    queues.clear("c0")
    long = rng.choice((0.0, 0.0, 0.0, 0.0, 0.6))
    for number in range(2):
        spec = queues.queue() | {"cohortName": "c0"}
        spec["resourceGroups"] = spec["resourceGroups"][:1]
        for flavor in spec["resourceGroups"][0]["flavors"]:
            nominal = rng.randint(2, 4) if number == 0 else 0
            flavor["resources"] = cpu(nominal)
        spec["preemption"] = {
            "withinClusterQueue": rng.choice(("LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": "Any",
        }
        queues.add(spec)
        if number == 0:
            spec["concurrentAdmission"] = queues.policy(spec)
    for name in queues.checks:
        if rng.random() < 0.3:
            queues.check(name)["preemptionPolicy"] = "AfterCheckPassedOrOnDemand"
        queues.check(name).pop("checkTimeoutSeconds", None)
    user_facts: list[UserFact] = []
    names = [f"w{number}" for number in range(rng.randint(3, 6))]
    for number, name in enumerate(names):
        local = "l0" if number < 2 else rng.choice(("l0", "l1", "l1"))
        at = 1.0 + rng.random() * 3.0 + (3.0 + rng.random() * 6.0) * (number < 2)
        priorities = (1, 2) if number < 2 else (-1, 0, 0, 1)
        user_facts.append(_submitted(rng, queues, name, local, at, priorities=priorities))
        if rng.random() < 0.2:
            user_facts += list(_user_changes(rng, name, at + rng.random() * 12.0))
    manifests = queues.snapshot()
    admin_changes = [one_edit(rng, queues, 15.0)] if rng.random() < 0.3 else []
    calm = LONG_CALM if long else CALM_SECONDS
    return Scenario(
        manifests,
        [*user_facts, *_reactivations(names, user_facts, calm)],
        [*admin_changes, *repairs(queues, calm)],
        faults(rng, FAMILY_SERVICES)[: rng.choice((0, 0, 1, 3))],
        skews(rng, FAMILY_SERVICES),
        config=_config(rng),
        limits=Limits(drain=timedelta(seconds=rng.choice((6.0, 20.0, 300.0)))),
        heals=True,
        services=FAMILY_SERVICES,
        calm=calm,
        interval_factor=LONG_INTERVALS if long else 1.0,
        check_behavior=CheckBehavior(
            demands=rng.choice((0.0, 2.0)), rejected=0.3, never=0.3, long=long
        ),
        courses=Courses(
            lengths=(12.0, 25.0) if not long else (25.0, 500.0),
            ignores_stop=rng.choice((0.0, 0.2)),
            hangs=rng.choice((0.0, 0.2)),
        ),
    )


def _submitted(
    rng: Random,
    queues: FamilyQueues,
    name: str,
    local: str,
    at: float,
    *,
    priorities: tuple[int, ...] = (),
) -> UserFact:
    most = rng.choice((None, None, None, None, 8))
    raw = workload_of(rng, name, local, priorities=priorities, most=most, sides=0.1)
    made = json.loads(bytes(raw))
    for pod_set in made["spec"]["podSets"]:
        (container,) = pod_set["template"]["spec"]["containers"]
        if queues.memory:
            container["resources"]["requests"]["memory"] = str(rng.choice((1, 1, 2)))
    if not queues.memory and rng.random() < 0.1:
        # With memory, what is left of a variant could never be placed.
        allowed = rng.sample(queues.flavors, rng.randint(1, len(queues.flavors)))
        made["spec"]["admissionConstraints"] = {"allowedResourceFlavors": allowed}
    raw = msgspec.Raw(json.dumps(made).encode())
    return submission(at, name, raw)


def _user_changes(rng: Random, name: str, at: float) -> Iterator[UserFact]:
    """Plans a user's changes of a parent or of one of its variants."""
    if rng.random() < 0.6:
        yield from user_changes(rng, name, at)
        return
    me: dict[str, Any] = {"namespace": NAMESPACE, "name": _variant(name, rng.choice(TAGS))}
    kinds: tuple[Fact, ...] = (
        facts.Deactivated(**me),
        facts.Activated(**me),
        facts.Deleted(**me),
        facts.Finished(**me),
        facts.Held(**me),
        facts.Reprioritized(**me, priority=rng.randint(-2, 3)),
        _forged(rng, name, me["name"]),
    )
    yield UserFact(at, rng.choice(kinds))


def _forged(rng: Random, parent: str, name: str) -> Fact:
    """A variant that its user has written, of a parent that is not there."""
    owner = {"apiVersion": API, "kind": "Workload", "name": parent, "uid": "unknown"}
    made = json.loads(bytes(workload_of(rng, name, "l0")))
    made["metadata"]["ownerReferences"] = [owner]
    made["spec"] |= {"role": "variant", "variant": "f0", "siblingIndex": 0}
    for pod_set in made["spec"]["podSets"]:
        pod_set.pop("minCount", None)
    raw = msgspec.Raw(json.dumps(made).encode())
    return facts.Submitted(namespace=NAMESPACE, name=name, workload=raw)


def _variant(name: str, tag: str) -> str:
    return variant_name(name, "", tag)


def _reactivations(
    names: list[str], said: list[UserFact], at: float = CALM_SECONDS
) -> Iterator[UserFact]:
    """Lets everything go on, also variants that a user turned off."""
    yield from reactivations(names, at)
    off = {message.fact.name for message in said if isinstance(message.fact, facts.Deactivated)}
    for name in sorted(off.difference(names)):
        yield UserFact(at + 5.0, facts.Activated(namespace=NAMESPACE, name=name))


def _config(rng: Random) -> Config:
    return Config(
        fair_sharing=CohortFairSharing() if rng.random() < 0.2 else None,
        requeuing_timestamp=rng.choice(("Eviction", "Creation")),
    )


def _limits(rng: Random) -> Limits:
    drain = timedelta(seconds=rng.choice((6.0, 20.0, 300.0)))
    return Limits(drain=drain, pods_ready=None if rng.random() < 0.7 else pods_ready(rng))
