"""Rules of the containers of a pod template: everything that a runner reads to start their
programs. A container that passes has a plan, or a runner says in one sentence why it has none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from admittance.api.pods import Container, EnvVar, PodSpec
from admittance.api.problems import FORBIDDEN, NOT_SUPPORTED, REQUIRED, TYPE, Problem, shown

SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "fieldRef": ("fieldPath",),
    "resourceFieldRef": ("resource",),
    "configMapKeyRef": ("key",),
    "secretKeyRef": ("key",),
    "fileKeyRef": ("volumeName", "path", "key"),
}
"""The sources of a variable's value in ``valueFrom``, each with the fields that it must have."""


def check_containers(pod: PodSpec, path: str) -> list[Problem]:
    """The problems of all containers of a pod. ``path``: the place of the pod's spec."""
    found: list[Problem] = []
    for field, containers in (
        ("initContainers", pod.init_containers),
        ("containers", pod.containers),
    ):
        for i, container in enumerate(containers):
            found += _container(container, f"{path}.{field}[{i}]")
    return found


def _container(container: Container, path: str) -> list[Problem]:
    found = [
        *_texts([container.image], f"{path}.image"),
        *_texts([container.working_dir], f"{path}.workingDir"),
        *_texts(container.command, f"{path}.command"),
        *_texts(container.args, f"{path}.args"),
    ]
    for i, var in enumerate(container.env):
        found += _variable(var, f"{path}.env[{i}]")
    return found


def _texts(texts: Iterable[str], field: str) -> list[Problem]:
    if any("\0" in text for text in texts):
        return [Problem(field, "must have no zero byte: no program can be started with it")]
    return []


def _variable(var: EnvVar, path: str) -> list[Problem]:
    found = _texts([var.name], f"{path}.name") + _texts([var.value], f"{path}.value")
    if not var.name:
        found.append(Problem(f"{path}.name", "must be set", REQUIRED))
    elif "=" in var.name:
        message = f"must have no equals sign, not {shown(var.name)}"
        found.append(Problem(f"{path}.name", message))
    if var.value_from is not None:
        if var.value:
            message = "must be left out while value is set"
            found.append(Problem(f"{path}.valueFrom", message, FORBIDDEN))
        found += _source(var.value_from, f"{path}.valueFrom")
    return found


def _source(source: Any, path: str) -> list[Problem]:
    if not isinstance(source, dict):
        return [Problem(path, f"must be a mapping, not {shown(source)}", TYPE)]
    given = {name: value for name, value in source.items() if value is not None}
    unknown = [name for name in given if name not in SOURCES]
    if unknown:
        message = f"{shown(unknown[0])} is not one of the sources {', '.join(SOURCES)}"
        return [Problem(path, message, NOT_SUPPORTED)]
    if len(given) != 1:
        message = f"must name one source: {', '.join(SOURCES)}"
        return [Problem(path, message, FORBIDDEN if given else REQUIRED)]
    ((name, value),) = given.items()
    path = f"{path}.{name}"
    if not isinstance(value, dict):
        return [Problem(path, f"must be a mapping, not {shown(value)}", TYPE)]
    found = []
    for field in SOURCES[name]:
        text = value.get(field)
        if text is None or text == "":
            found.append(Problem(f"{path}.{field}", "must be set", REQUIRED))
        elif not isinstance(text, str):
            found.append(Problem(f"{path}.{field}", f"must be a string, not {shown(text)}", TYPE))
        else:
            found += _texts([text], f"{path}.{field}")
    return found
