"""What placement knows of a machine: its runner's inventory, state and open runs.

Amounts are in accounting units: cpu in thousandths, everything else whole
(`admittance.api.fields.units`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, Protocol

import msgspec

from admittance.api.meta import Taint
from admittance.events.system import RunnerStarts

HOSTNAME: Final = "kubernetes.io/hostname"
"""The label with the name of the machine. Every other label groups machines."""
PODS: Final = "pods"
"""The resource of which each pod needs one. A machine that does not offer it has no limit."""


class Device(msgspec.Struct, frozen=True):
    """One device of a machine. ``id``: its UUID, or the name that the runner was given. ``index``:
    its place on the machine, as tools of its maker show it. ``slices``: how many units it counts
    as; more than one: several jobs share the device.
    """

    resource: str
    id: str
    index: int
    slices: int = 1

    def units(self) -> tuple[str, ...]:
        """The ids of the device's units."""
        if self.slices == 1:
            return (self.id,)
        return tuple([f"{self.id}::{number}" for number in range(self.slices)])


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a runner. ``name``: the runner's name; ``id``: the id of its data folder.

    ``capacity``: the amount of each resource; for a resource with ``devices`` the units of its
    devices count instead. ``labels``: with `HOSTNAME`.

    ``ready``: the runner is alive and starts jobs. ``lost_since``: when the runner was seen last,
    if it is not alive. ``unschedulable``: the machine is cordoned; ``draining``: it is drained, and
    from ``evict_at`` on its jobs are evicted (None: they may end by themselves). ``message``: why
    the machine takes no jobs, for people.

    ``starts``: which jobs the runner starts; None: all. ``executors``: what it starts them with;
    empty: unknown. ``host``: the same for all programs that see the same files (boot id and mount
    namespace); ``folders``: folders that the machine shares with others.
    """

    name: str
    id: str
    capacity: dict[str, int]
    devices: tuple[Device, ...] = ()
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    lost_since: datetime | None = None
    unschedulable: bool = False
    draining: bool = False
    evict_at: datetime | None = None
    message: str = ""
    starts: RunnerStarts | None = None
    executors: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    host: str = ""

    @property
    def takes_pods(self) -> bool:
        """Whether new pods may be placed on the machine."""
        return self.ready and not (self.unschedulable or self.draining)

    def sees(self, folder: str, host: str) -> bool:
        """Whether the machine sees a folder as the programs of ``host`` see it."""
        if not folder or (host and host == self.host):
            return True
        return any(is_below(folder, shared) for shared in self.folders)


def is_below(folder: str, top: str) -> bool:
    """Whether the absolute path ``folder`` is ``top`` or below it."""
    return folder == top or folder.startswith(top.rstrip("/") + "/")


class OpenRun(Protocol):
    """A run on a machine whose last process has not ended. ``revision``: that of its admission.
    ``requests``: the amounts that its pods asked for together. ``devices``: the ids of the run's
    units by resource; what ``requests`` says about such a resource does not count."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def requests(self) -> Mapping[str, int]: ...
    @property
    def devices(self) -> Mapping[str, tuple[str, ...]]: ...


def offered_units(devices: Iterable[Device]) -> dict[str, tuple[str, ...]]:
    """The ids of all units by resource, in the order of the devices' places."""
    units: dict[str, list[str]] = {}
    for device in sorted(devices, key=lambda device: (device.index, device.id)):
        units.setdefault(device.resource, []).extend(device.units())
    return {resource: tuple(dict.fromkeys(ids)) for resource, ids in sorted(units.items())}
