"""The plan of a pod's volumes: folders of the run, folders of the machine, and files of ConfigMaps
and Secrets. Pure, but for what `Inputs` reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import msgspec

from admittance.api.fields.struct_types import struct_type
from admittance.api.fields.units import BadQuantity, parse
from admittance.api.pods import Container, KeyToPath, Volume, VolumeMount
from admittance.api.reading.from_job import literal
from admittance.job_rules.rules import CannotRun
from admittance.runner.plans.inputs.host_inputs import Inputs

FILE_MODE: Final = 0o644
"""The rights of files of ConfigMaps and Secrets without ``defaultMode``, as in Kubernetes."""


FILES_MAX: Final = 5_000
"""The most files of ConfigMaps and Secrets in the volumes of a job's pod templates: the shim copies
them for each pod, as the runner's Unix user."""
FILE_BYTES_MAX: Final = 16 << 20
"""The most bytes of these files: a job may name one key thousands of times."""


class FileBudget:
    """How many files, with how many bytes, the volumes of one job may still have."""

    def __init__(self, files: int = FILES_MAX, size: int = FILE_BYTES_MAX) -> None:
        self._files = files
        self._size = size

    def take(self, size: int) -> None:
        """Counts one more file. Raises CannotRun if there are too many."""
        self._files -= 1
        self._size -= size
        if self._files < 0 or self._size < 0:
            raise CannotRun(
                "the ConfigMap and Secret volumes of the job have more than "
                f"{FILES_MAX:,} files or {FILE_BYTES_MAX:,} bytes for each pod"
            )


class FilePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the shim copies into a volume. ``path``: relative to the volume."""

    path: str
    source: str
    mode: int = FILE_MODE


class VolumePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of a pod. ``variable``: the name of the variable with the path of its folder.
    ``host``: the path on the machine; "": a new folder of the run, with the ``files`` and the
    ``folders`` in it. ``limit``: the most bytes of a pod's files in the new folder; 0: any number;
    ``limit_text``: the same as the manifest has it."""

    name: str
    variable: str
    host: str = ""
    files: tuple[FilePlan, ...] = ()
    folders: tuple[str, ...] = ()
    limit: int = 0
    limit_text: str = ""


class Mount(NamedTuple):
    """A volume as one container sees it. ``source``: the path on the machine, with references
    ``$(NAME)`` that the shim expands. ``inner``: the ``subPath``. ``has_files``: whether the
    volume has the files of a ConfigMap or Secret, which no container changes."""

    path: PurePosixPath
    source: str
    read_only: bool
    variable: str
    inner: str
    has_files: bool


def volume_plans(
    volumes: Sequence[Volume], containers: Sequence[Container], inputs: Inputs, budget: FileBudget
) -> tuple[VolumePlan, ...]:
    """The plans of the volumes that the containers mount. Raises CannotRun, also if the budget is
    used up."""
    mounts: dict[str, list[VolumeMount]] = {}
    for container in containers:
        for mount in container.volume_mounts:
            mounts.setdefault(mount.name, []).append(mount)
    plans = []
    for volume in volumes:
        if volume.name in mounts:
            plan = _plan(volume, mounts[volume.name], inputs)
            for file in plan.files:
                budget.take(inputs.size(file.source))
            plans.append(plan)
    return tuple(plans)


def _plan(volume: Volume, mounts: Sequence[VolumeMount], inputs: Inputs) -> VolumePlan:
    variable = variable_of(volume.name)
    try:
        if any(mount.sub_path_expr for mount in mounts):
            raise CannotRun("the runner does not follow a subPathExpr")
        if volume.host_path is not None:
            host = inputs.host_path(volume.host_path.path, volume.host_path.type)
            return VolumePlan(name=volume.name, variable=variable, host=host)
        folders = tuple(dict.fromkeys(mount.sub_path for mount in mounts if mount.sub_path))
        if volume.config_map is not None:
            config = volume.config_map
            files = _files("ConfigMap", config.name, config.items, config.default_mode, inputs,
                           optional=config.optional)  # fmt: skip
        elif volume.secret is not None:
            secret = volume.secret
            files = _files("Secret", secret.secret_name, secret.items, secret.default_mode, inputs,
                           optional=secret.optional)  # fmt: skip
        elif _kind(volume) in ("", "emptyDir"):
            limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
            return VolumePlan(
                name=volume.name,
                variable=variable,
                folders=folders,
                limit=_size(limit),
                limit_text="" if limit is None else str(limit),
            )
        else:
            raise CannotRun(f"a {_kind(volume)} exists only in a cluster")
    except CannotRun as error:
        raise CannotRun(f"volume {volume.name}: {error}") from error
    return VolumePlan(name=volume.name, variable=variable, files=files)


def _kind(volume: Volume) -> str:
    """The first source of the volume; "": it has none, and is an ``emptyDir`` as in Kubernetes."""
    for field in struct_type(Volume).fields:
        if field.name != "name" and getattr(volume, field.name) is not None:
            return field.encode_name
    return ""


def _files(
    kind: str,
    name: str,
    items: Sequence[KeyToPath],
    default_mode: str | int | None,
    inputs: Inputs,
    *,
    optional: bool,
) -> tuple[FilePlan, ...]:
    keys = inputs.keys(kind, name)
    if keys is None and not optional:
        raise CannotRun(inputs.missing(kind, name))
    keys = keys or {}
    mode = FILE_MODE if default_mode is None else _mode(default_mode)
    if not items:
        return tuple(FilePlan(path=key, source=at, mode=mode) for key, at in keys.items())
    plans = []
    for item in items:
        if item.key in keys:
            own = mode if item.mode is None else _mode(item.mode)
            plans.append(FilePlan(path=item.path, source=keys[item.key], mode=own))
        elif not optional:
            raise CannotRun(f"there is no key {item.key} of the {kind} {name}")
    return tuple(plans)


def _mode(written: str | int) -> int:
    return (int(written, 8) if isinstance(written, str) else written) & 0o777


def _size(limit: str | int | float | None) -> int:
    """The bytes of a ``sizeLimit``; 0: no limit, as 0 in Kubernetes."""
    try:
        return math.ceil(parse(limit)) if limit is not None else 0
    except BadQuantity as error:
        raise CannotRun(f"sizeLimit: {error}") from error


def variable_of(volume: str) -> str:
    """The name of the variable with the path of a volume."""
    return f"ADMITTANCE_VOLUME_{volume.upper().replace('-', '_')}"


def mounts_of(container: Container, plans: Mapping[str, VolumePlan], inputs: Inputs) -> list[Mount]:
    """What the container mounts. Raises CannotRun."""
    mounts = []
    for mount in container.volume_mounts:
        plan = plans[mount.name]
        source = f"$({plan.variable})"
        if plan.host and mount.sub_path:
            # The path is checked again: a part of it may be a link to somewhere else.
            source = literal(inputs.host_path(f"{plan.host}/{mount.sub_path}", ""))
        elif mount.sub_path:
            source = f"{source}/{literal(mount.sub_path)}"
        mounts.append(
            Mount(
                path=PurePosixPath(mount.mount_path),
                source=source,
                read_only=mount.read_only or bool(plan.files),
                variable=plan.variable,
                inner=mount.sub_path,
                has_files=bool(plan.files),
            )
        )
    return mounts


def local_folder(working_dir: str, mounts: Sequence[Mount]) -> str:
    """The path of a working folder inside a volume, with references that the shim expands; "": the
    folder is in no volume."""
    path = PurePosixPath(working_dir)
    inside = [
        mount for mount in mounts if path.is_relative_to(mount.path) and ".." not in path.parts
    ]
    if not working_dir or not inside:
        return ""
    deepest = max(inside, key=lambda one: len(one.path.parts))
    rest = path.relative_to(deepest.path)
    return deepest.source if rest == PurePosixPath() else f"{deepest.source}/{literal(str(rest))}"
