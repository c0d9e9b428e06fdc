"""Units of used quota, such as ``gpu-hours``."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, NamedTuple

GPU: Final = "gpu"
_TIMES: Final = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}
_GIB: Final = "gib"


def is_gpu(resource: str) -> bool:
    """Whether the resource is GPUs, of any vendor."""
    return resource.endswith("/gpu")


class Unit(NamedTuple):
    """A unit. ``resource``: "gpu" stands for all GPUs; ``divisor``: so many seconds of one of the
    resource are one of the unit."""

    name: str
    resource: str
    divisor: int

    def counts(self, resource: str) -> bool:
        """Whether the unit counts the resource."""
        return is_gpu(resource) if self.resource == GPU else resource == self.resource

    def used(self, seconds: Mapping[str, str]) -> Decimal:
        """What was used, from the seconds of each resource."""
        counted = (Decimal(text) for name, text in seconds.items() if self.counts(name))
        return sum(counted, Decimal(0)) / self.divisor


def unit_named(name: str) -> Unit:
    """The unit, such as ``gpu-hours``, ``cpu-seconds``, ``gib-days`` or ``example.com/fpga-hours``.
    Raises ValueError."""
    resource, _, time = name.rpartition("-")
    if not resource or time not in _TIMES:
        raise ValueError(
            f'"{name}" is not a unit: a resource, such as cpu, gpu or gib, with '
            f"{', '.join(f'-{word}' for word in _TIMES)}"
        )
    if resource == _GIB:
        return Unit(name, "memory", 2**30 * _TIMES[time])
    return Unit(name, resource, _TIMES[time])
