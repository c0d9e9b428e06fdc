"""Rules of the containers of a pod template: everything that a runner reads to start their
programs. A container that passes has a plan, or a runner says in one sentence why it has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Final

import msgspec

from admittance.api.fields.names import check_unique
from admittance.api.fields.problems import FORBIDDEN, NOT_SUPPORTED, REQUIRED, Problem, shown
from admittance.api.fields.struct_types import struct_type
from admittance.api.pods import (
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    PodSpec,
    Volume,
    VolumeMount,
)

ENTRIES_MAX: Final = 1_000
"""The most files and folders that a pod template names in ``items`` and ``subPath``: a runner makes
them for each pod."""


def check_containers(pod: PodSpec, path: str) -> list[Problem]:
    """The problems of all containers of a pod. ``path``: the place of the pod's spec."""
    problems: list[Problem] = []
    if pod.volumes:
        problems = _volumes(pod.volumes, f"{path}.volumes") + _entries(pod, f"{path}.volumes")
    volumes = frozenset(volume.name for volume in pod.volumes)
    for field, containers in (
        ("initContainers", pod.init_containers),
        ("containers", pod.containers),
    ):
        for i, container in enumerate(containers):
            problems += _container(container, volumes, f"{path}.{field}[{i}]")
    return problems


def _container(container: Container, volumes: Set[str], path: str) -> list[Problem]:
    # A manifest may have thousands of containers and variables, and nearly all are valid: the path
    # of a field is made only for a problem.
    problems: list[Problem] = []
    if _has_zero((container.image, container.working_dir, *container.command, *container.args)):
        problems += [
            *_texts([container.image], f"{path}.image"),
            *_texts([container.working_dir], f"{path}.workingDir"),
            *_texts(container.command, f"{path}.command"),
            *_texts(container.args, f"{path}.args"),
        ]
    if container.working_dir:
        problems += _absolute(container.working_dir, f"{path}.workingDir")
    for i, var in enumerate(container.env):
        if not _is_plain(var):
            problems += _variable(var, f"{path}.env[{i}]")
    for i, source in enumerate(container.env_from):
        problems += _env_from(source, f"{path}.envFrom[{i}]")
    if container.volume_mounts:
        problems += _mounts(container.volume_mounts, volumes, f"{path}.volumeMounts")
    return problems


def _is_plain(var: EnvVar) -> bool:
    """Whether the variable has a name and a text that `_variable` does not refuse."""
    name = var.name
    return (
        bool(name) and "=" not in name and not _has_zero((name, var.value)) and not var.value_from
    )


def _has_zero(texts: Iterable[str]) -> bool:
    return "\0" in "".join(texts)


def _texts(texts: Iterable[str], field: str) -> list[Problem]:
    if _has_zero(texts):
        return [Problem(field, "must have no zero byte: no program can be started with it")]
    return []


def _absolute(folder: str, field: str) -> list[Problem]:
    """The problem of a relative working folder: no manifest says below which folder it lies."""
    if not folder.startswith("/"):
        return [Problem(field, f"must be an absolute path, not {shown(folder)}")]
    return []


def _variable(var: EnvVar, path: str) -> list[Problem]:
    problems = _texts([var.name], f"{path}.name") + _texts([var.value], f"{path}.value")
    if not var.name:
        problems.append(Problem(f"{path}.name", "must be set", REQUIRED))
    elif "=" in var.name:
        message = f"must have no equals sign, not {shown(var.name)}"
        problems.append(Problem(f"{path}.name", message))
    if var.value_from is not None:
        if var.value:
            message = "must be left out while value is set"
            problems.append(Problem(f"{path}.valueFrom", message, FORBIDDEN))
        problems += _source(var.value_from, f"{path}.valueFrom")
    return problems


def _source(source: EnvVarSource, path: str) -> list[Problem]:
    problems = one_source(source, path)
    for name, given in sources_in(source):
        problems += _texts_of(given, f"{path}.{name}")
    return problems


def _texts_of(given: msgspec.Struct, path: str) -> list[Problem]:
    """The problems of the texts of a Struct."""
    problems: list[Problem] = []
    for field in struct_type(type(given)).fields:
        text = getattr(given, field.name)
        if isinstance(text, str):
            problems += _texts([text], f"{path}.{field.encode_name}")
    return problems


def sources_in(holder: msgspec.Struct) -> list[tuple[str, msgspec.Struct]]:
    """The fields of a Struct that contain a Struct, by their names in a manifest."""
    given = [
        (field.encode_name, getattr(holder, field.name))
        for field in struct_type(type(holder)).fields
    ]
    return [(name, value) for name, value in given if isinstance(value, msgspec.Struct)]


def one_source(holder: msgspec.Struct, path: str) -> list[Problem]:
    """The problem that not exactly one of the fields of a Struct contains a Struct."""
    count = len(sources_in(holder))
    if count == 1:
        return []
    names = [
        field.encode_name
        for field in struct_type(type(holder)).fields
        if field.encode_name not in ("name", "prefix")
    ]
    message = f"must name one source: {', '.join(names)}"
    return [Problem(path, message, FORBIDDEN if count else REQUIRED)]


# Volumes. -------------------------------------------------------------------------------------


def _env_from(source: EnvFromSource, path: str) -> list[Problem]:
    problems = one_source(source, path)
    problems += _texts([source.prefix], f"{path}.prefix")
    if "=" in source.prefix:
        problems.append(Problem(f"{path}.prefix", "must have no equals sign"))
    for name, given in sources_in(source):
        if not getattr(given, "name", ""):
            problems.append(Problem(f"{path}.{name}.name", "must be set", REQUIRED))
    return problems


def _volumes(volumes: Sequence[Volume], path: str) -> list[Problem]:
    problems = check_unique([volume.name for volume in volumes], path, ".name")
    for i, volume in enumerate(volumes):
        at = f"{path}[{i}]"
        given = [
            field.encode_name
            for field in struct_type(Volume).fields
            if field.name != "name" and getattr(volume, field.name) is not None
        ]
        if len(given) > 1:
            message = f"must have one source, not {' and '.join(given)}"
            problems.append(Problem(at, message, FORBIDDEN))
        if volume.host_path is not None:
            problems += _whole_path(volume.host_path.path, f"{at}.hostPath.path")
        for name, files in (("configMap", volume.config_map), ("secret", volume.secret)):
            for j, item in enumerate(files.items if files is not None else ()):
                problems += _inner_path(item.path, f"{at}.{name}.items[{j}].path")
    return problems


def _entries(pod: PodSpec, path: str) -> list[Problem]:
    """The problem that a runner would have to make too many files and folders for each pod."""
    inner = {
        (mount.name, mount.sub_path)
        for container in (*pod.init_containers, *pod.containers)
        for mount in container.volume_mounts
        if mount.sub_path
    }
    paths = [sub_path for _, sub_path in inner]
    for volume in pod.volumes:
        for files in (volume.config_map, volume.secret):
            paths += [item.path for item in files.items] if files is not None else []
    count = sum(inner_path.count("/") + 1 for inner_path in paths)
    if count <= ENTRIES_MAX:
        return []
    message = f"must have at most {ENTRIES_MAX:,} files and folders in items and subPath"
    return [Problem(path, f"{message} of all volumes, not {count:,}")]


def _mounts(mounts: Sequence[VolumeMount], volumes: Set[str], path: str) -> list[Problem]:
    problems = check_unique([mount.mount_path for mount in mounts], path, ".mountPath")
    for i, mount in enumerate(mounts):
        at = f"{path}[{i}]"
        if mount.name not in volumes:
            message = f"no volume has the name {shown(mount.name)}"
            problems.append(Problem(f"{at}.name", message, NOT_SUPPORTED))
        problems += _whole_path(mount.mount_path, f"{at}.mountPath")
        if mount.sub_path:
            problems += _inner_path(mount.sub_path, f"{at}.subPath")
    return problems


def _whole_path(path: str, field: str) -> list[Problem]:
    if problems := _texts([path], field):
        return problems
    if not path.startswith("/"):
        return [Problem(field, f"must be an absolute path, not {shown(path)}")]
    if ".." in path.split("/"):
        return [Problem(field, "must have no part ..")]
    return []


def _inner_path(path: str, field: str) -> list[Problem]:
    if problems := _texts([path], field):
        return problems
    if not path or path.startswith("/") or ".." in path.split("/"):
        return [Problem(field, f"must be a path inside the volume, not {shown(path)}")]
    return []
