"""A submission with a missing priority class is refused before it is sent."""

from __future__ import annotations

from typing import Any, cast

import pytest

from admittance.api.reading.manifest import accept
from admittance.api.workload import Workload
from admittance.client import kinds
from admittance.client.errors import NotAllowed
from admittance.client.requests.link import Link
from admittance.client.requests.submissions.priority_classes import missing_class
from admittance.runtime.bus.bucket import Entry
from support.builders import a_manifest


class LinkWithClasses:
    """A bus on which these classes exist: ``w:name`` and ``p:name`` of pods."""

    def __init__(self, *classes: str) -> None:
        kind = {"w": kinds.PRIORITY_CLASS, "p": kinds.POD_PRIORITY_CLASS}
        self._keys = [kind[class_name[0]].object_key("", class_name[2:]) for class_name in classes]

    async def get(self, key: str) -> Entry | None:
        return Entry(key, b"{}", 1) if key in self._keys else None

    async def read_all(self, pattern: str) -> list[Entry]:
        start = pattern.removesuffix("*").removesuffix(">")
        return [Entry(key, b"{}", 1) for key in self._keys if key.startswith(start)]


class LinkWithoutRight:
    async def get(self, key: str) -> Entry:
        raise NotAllowed(key)


def workload(*, label: str = "", pods: str = "", **spec: Any) -> Workload:
    manifest = a_manifest("w", queueName="lq", **spec)
    if label:
        manifest["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": label}
    if pods:
        manifest["spec"]["podSets"][0]["template"]["spec"]["priorityClassName"] = pods
    return cast(Workload, accept(manifest).manifest)


@pytest.mark.parametrize(
    ("wanted", "classes", "said"),
    [
        (workload(), (), ""),
        (workload(pods="high"), ("p:high",), ""),
        (workload(pods="high"), ("w:default",), ""),
        (workload(pods="high", priority=3), (), ""),
        (workload(label="high"), ("w:high",), ""),
        (workload(pods="high"), (), "PriorityClass high does not exist: create it with `admit app"),
        (workload(pods="high"), ("p:low", "p:mid"), "name one of low, mid, or create it"),
        (workload(pods="high"), ("w:high",), "a pod template takes a PriorityClass"),
        (workload(label="high"), ("w:default",), "name one of default, or create it"),
        (
            workload(label="high"),
            ("p:high",),
            "high is a PriorityClass, and the option --pri",
        ),
    ],
)
async def test_a_missing_priority_class_is_named_with_a_remedy(
    wanted: Workload, classes: tuple[str, ...], said: str
) -> None:
    missing = await missing_class(cast(Link, LinkWithClasses(*classes)), wanted)
    assert said in missing
    assert bool(missing) == bool(said)


async def test_a_login_that_may_not_read_classes_leaves_them_to_the_server() -> None:
    assert await missing_class(cast(Link, LinkWithoutRight()), workload(pods="high")) == ""
