"""The manifest ``MachinePool``, which describes machines and the provisioning class that they
serve; and the keys of pools and bookings.

```yaml
apiVersion: admittance.dev/v1
kind: MachinePool
metadata: {name: rack-7}
spec:
  provisioningClassName: check-capacity.autoscaling.x-k8s.io
  bookingSeconds: 600
  machines:
  - {name: a100, count: 4, bootSeconds: 90, labels: {gpu: a100},
     resources: {cpu: 96, memory: 1Ti, nvidia.com/gpu: 8}}
```
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from admittance.api.fields.names import check_labels, label_key_error, name_error
from admittance.api.fields.units import BadQuantity, amount
from admittance.events.names import BadToken, plain, token

GROUP: Final = "admittance.dev"
KIND: Final = "MachinePool"
MACHINES_MAX: Final = 100_000


class BadPool(ValueError):
    """The manifest of a MachinePool is not valid; the message names the field."""


class _Machine(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    name: str
    count: int = 1
    boot_seconds: float = 0.0
    resources: dict[str, str | int | float]
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    provisioning_class_name: str
    booking_seconds: float = 0.0
    machines: tuple[_Machine, ...] = ()


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machines of one kind in a pool: ``count`` equal machines. ``boot_seconds``: time from the
    booking of a machine until it is ready. ``resources``: the resources of one machine, as integers
    (cpu in thousandths).
    """

    name: str
    count: int
    boot_seconds: float
    resources: Mapping[str, int]
    labels: Mapping[str, str]


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool of machines that a MachinePool manifest describes. ``booking_seconds``: how long a
    workload that has not started keeps its booking; 0 means until the request is cancelled.
    """

    name: str
    provisioning_class: str
    booking_seconds: float
    machines: tuple[Machine, ...]


def pool_of(name: str, spec: Any) -> Pool:
    """The pool that a manifest's spec describes. Raises BadPool if the spec is not valid."""
    try:
        read = msgspec.convert(spec, _Spec)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        raise BadPool(f"{KIND} {name}: spec{where.strip('`$')}: {what}") from None
    if not read.provisioning_class_name:
        raise BadPool(f"{KIND} {name}: spec.provisioningClassName must be set")
    if complaint := name_error(read.provisioning_class_name):
        raise BadPool(f"{KIND} {name}: spec.provisioningClassName: {complaint}")
    if not 0 <= read.booking_seconds < float("inf"):
        raise BadPool(f"{KIND} {name}: spec.bookingSeconds must not be negative")
    names = [machine.name for machine in read.machines]
    machines = []
    for at, machine in enumerate(read.machines):
        where = f"{KIND} {name}: spec.machines[{at}]"
        if complaint := name_error(machine.name):
            raise BadPool(f"{where}.name: {complaint}")
        if names.index(machine.name) != at:
            raise BadPool(f"{where}.name: duplicate name {machine.name!r}")
        if not 0 <= machine.count <= MACHINES_MAX:
            raise BadPool(f"{where}.count must be 0 to {MACHINES_MAX}, not {machine.count}")
        if not 0 <= machine.boot_seconds < float("inf"):
            raise BadPool(f"{where}.bootSeconds must not be negative")
        if wrong := check_labels(machine.labels, f"{where}.labels"):
            raise BadPool(str(wrong[0]))
        machines.append(
            Machine(
                name=machine.name,
                count=machine.count,
                boot_seconds=machine.boot_seconds,
                resources=_amounts(machine.resources, where),
                labels=machine.labels,
            )
        )
    return Pool(
        name=name,
        provisioning_class=read.provisioning_class_name,
        booking_seconds=read.booking_seconds,
        machines=tuple(machines),
    )


def _amounts(written: Mapping[str, str | int | float], where: str) -> dict[str, int]:
    amounts = {}
    for resource, text in written.items():
        if complaint := label_key_error(resource):
            raise BadPool(f"{where}.resources: {complaint}")
        try:
            much = amount(resource, text)
        except BadQuantity as error:
            raise BadPool(f"{where}.resources[{resource}]: {error}") from None
        if much < 0:
            raise BadPool(f"{where}.resources[{resource}] must not be negative")
        amounts[resource] = much
    return amounts


POOL: Final = token(f"{KIND.lower()}.{GROUP}")
POOLS: Final = f"{POOL}.>"
"""The pattern of the keys of all MachinePool manifests."""
BOOKED: Final = "_pool"
LEADER: Final = "_pool_led"
"""The key of the bucket of providers that each new leader writes, so that the server refuses late
writes of earlier leaders.
"""


def pool_of_manifest(key: str) -> str | None:
    """The name of the pool with its manifest at the key ``key`` of the bucket; None if the key is
    not valid. A pool has no namespace, because the keys of its bookings have no namespace.
    """
    kind, *rest = key.split(".")
    return _plain(rest[0]) if kind == POOL and len(rest) == 1 else None


def _plain(escaped: str) -> str | None:
    try:
        return plain(escaped)
    except BadToken:
        return None


def key_of(pool: str, request_id: str) -> str:
    """The key of a request's booking in the bucket of providers."""
    digest = blake2b(request_id.encode(), digest_size=16).hexdigest()
    return f"{BOOKED}.{token(pool)}.{digest}"


def pattern_of(pool: str | None = None) -> str:
    """The pattern of the keys of all bookings of the pool; ``pool`` None: of all pools."""
    return f"{BOOKED}.{token(pool)}.*" if pool is not None else f"{BOOKED}.>"


def pool_of_key(key: str) -> str | None:
    """The name of the pool that has the booking at the key ``key``; None if it is not the key of a
    booking."""
    kind, *rest = key.split(".")
    return _plain(rest[0]) if kind == BOOKED and len(rest) == 2 else None
