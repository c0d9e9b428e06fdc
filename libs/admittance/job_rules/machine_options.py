"""Reads what a machine has from options and ``ADMIT_*`` variables: what the runner cannot detect,
and what an admin sets differently. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from admittance.api.fields import units
from admittance.api.fields.limits import is_extended
from admittance.api.fields.names import label_key_error, label_value_error
from admittance.api.meta import Taint
from admittance.runtime.errors import SetupError

VARIABLES: Final[Mapping[str, str]] = {
    "devices": "ADMIT_DEVICES",
    "capacity": "ADMIT_CAPACITY",
    "labels": "ADMIT_LABELS",
    "taints": "ADMIT_TAINTS",
}
"""For each field of `MachineTexts` the environment variable that has the field's values."""
OPTIONS: Final[Mapping[str, str]] = {
    "devices": "--device",
    "capacity": "--capacity",
    "labels": "--label",
    "taints": "--taint",
}
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
SLICES_MAX: Final = 1024
DEVICES_MAX: Final = 1024
"""The most devices of one resource: their ids travel with each inventory."""
_DEVICE: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,127}|(/[A-Za-z0-9_.-]{1,63}){1,8}", re.ASCII
)
_SLICED: Final = re.compile(r"(?P<id>.+)x(?P<slices>[0-9]+)", re.ASCII)
_NO_SLICES: Final = re.compile(r"[0-9]+x(-.*|[0-9]*\.[0-9]*|[0-9x]*)", re.ASCII)
_LIST: Final = re.compile(r"[\s,;]+")


class GivenDevice(NamedTuple):
    """A device that an option names. ``id``: its index or UUID, the path of its file, or any name
    of a device that nothing detects."""

    id: str
    slices: int = 1


class GivenMachine(NamedTuple):
    """What options say about a machine. ``devices``: by resource; an empty tuple: the machine has
    none, whatever is detected. ``capacity``: in accounting units."""

    devices: Mapping[str, tuple[GivenDevice, ...]]
    capacity: Mapping[str, int]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()


NOTHING_GIVEN: Final = GivenMachine({}, {}, {})


class MachineTexts(NamedTuple):
    """What a machine has, as texts of options."""

    devices: tuple[str, ...] = ()
    capacity: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()


def machine_of_texts(texts: MachineTexts, env: Mapping[str, str]) -> GivenMachine:
    """What the options say; a field without an option comes from its environment variable, whose
    values are separated by commas, semicolons or spaces. Raises SetupError for a wrong value."""
    capacity = dict(_pairs("capacity", texts.capacity or _listed(env, "capacity"), _amount))
    devices = _devices(texts.devices or _joined(_listed(env, "devices")))
    for resource in capacity.keys() & devices.keys():
        raise SetupError(
            f"{shown('capacity')} {resource}: {shown('devices')} says how many there are"
        )
    return GivenMachine(
        devices,
        capacity,
        dict(_pairs("labels", texts.labels or _listed(env, "labels"), _label)),
        tuple(map(_taint, texts.taints or _listed(env, "taints"))),
    )


def shown(name: str) -> str:
    """The option and the variable of a field, for messages."""
    return f"{OPTIONS[name]} ({VARIABLES[name]})"


def _listed(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(filter(None, _LIST.split(env.get(VARIABLES[name], ""))))


def _joined(pieces: Iterable[str]) -> tuple[str, ...]:
    """Texts ``RESOURCE=ID,ID`` from a list that was split at each comma."""
    texts: list[str] = []
    for piece in pieces:
        if "=" in piece or not texts:
            texts.append(piece)
        elif texts[-1].endswith("="):
            texts[-1] += piece
        else:
            texts[-1] += f",{piece}"
    return tuple(texts)


def _devices(texts: Iterable[str]) -> dict[str, tuple[GivenDevice, ...]]:
    where = shown("devices")
    devices: dict[str, tuple[GivenDevice, ...]] = {}
    for text in texts:
        resource, equals, listed = text.partition("=")
        if not equals or label_key_error(resource) or not is_extended(resource):
            raise SetupError(
                f"{where} {text}: it must be RESOURCE=ID,ID… with a resource such as "
                "nvidia.com/gpu; IDxN is a device that N jobs may share"
            )
        # An empty list says that the machine has none of them.
        named = tuple(_device(part, text) for part in listed.split(",")) if listed else ()
        ids = [device.id for device in (*devices.get(resource, ()), *named)]
        if repeated := [name for name in ids if ids.count(name) > 1]:
            raise SetupError(f"{where} {text}: {resource} {repeated[0]} is given twice")
        devices[resource] = (*devices.get(resource, ()), *named)
        if len(devices[resource]) > DEVICES_MAX:
            raise SetupError(f"{where}: more than {DEVICES_MAX:,} devices of {resource}")
    return devices


def _device(part: str, text: str) -> GivenDevice:
    sliced = _SLICED.fullmatch(part)
    # A name may have an x; only digits before it are an index.
    name, slices = part, 1
    if sliced is not None and (sliced["id"].isdecimal() or _may_have_slices(sliced["id"])):
        name, slices = sliced["id"], int(sliced["slices"])
    if _NO_SLICES.fullmatch(name):
        raise SetupError(
            f"{shown('devices')} {text}: {name!r} is neither a device nor INDEXxN, with N jobs"
        )
    if not _DEVICE.fullmatch(name):
        raise SetupError(
            f"{shown('devices')} {text}: {part!r} is no index, UUID or file of a device"
        )
    if name == os.devnull:
        # A job is denied the devices of others, and starts with this file as its input.
        raise SetupError(f"{shown('devices')} {text}: every job needs {name}")
    if not 1 <= slices <= SLICES_MAX:
        raise SetupError(
            f"{shown('devices')} {text}: a device has 1 to {SLICES_MAX} slices, not {slices}"
        )
    return GivenDevice(name, slices)


def _may_have_slices(text: str) -> bool:
    """Whether ``xN`` after a name says how many jobs may share it: /dev/xilinx2 is a file."""
    is_numbered_file = text.startswith("/") and text[-1].isdecimal()
    return text.startswith(("GPU-", "MIG-")) or is_numbered_file


_FORMS: Final = {"capacity": "RESOURCE=N", "labels": "KEY=VALUE"}
_Value = TypeVar("_Value", int, str)


def _pairs(
    field: str, texts: Iterable[str], check: Callable[[str, str, str], _Value]
) -> Iterator[tuple[str, _Value]]:
    seen: set[str] = set()
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise SetupError(f"{shown(field)} {text}: it must be {_FORMS[field]}")
        if key in seen:
            raise SetupError(f"{shown(field)}: {key} is given twice")
        seen.add(key)
        if error := label_key_error(key):
            raise SetupError(f"{shown(field)} {text}: {error}")
        yield key, check(key, value, text)


def _amount(resource: str, written: str, text: str) -> int:
    if error := units.quantity_error(written):
        raise SetupError(f"{shown('capacity')} {text}: {error}")
    exact = units.units(resource, written)
    if not isinstance(exact, int):
        raise SetupError(f"{shown('capacity')} {text}: it must be a whole number")
    # A larger amount was cut to the largest one while it was read.
    if exact >= units.INT64_MAX:
        raise SetupError(f"{shown('capacity')} {text}: no machine has so much")
    return units.whole(exact)


def _label(_key: str, value: str, text: str) -> str:
    if error := label_value_error(value):
        raise SetupError(f"{shown('labels')} {text}: {error}")
    return value


def _taint(text: str) -> Taint:
    pair, colon, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not colon or effect not in EFFECTS:
        raise SetupError(
            f"{shown('taints')} {text}: it must be KEY=VALUE:EFFECT or KEY:EFFECT, with "
            f"one of the effects {', '.join(EFFECTS)}"
        )
    if error := label_key_error(key) or label_value_error(value):
        raise SetupError(f"{shown('taints')} {text}: {error}")
    return Taint(key=key, value=value, effect=effect)
