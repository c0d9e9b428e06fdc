"""Reads the tables of test cases of Kueue, and makes a scheduler with the objects of a case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.api.reading.manifest import decode_object
from admittance.quota.cell import Cell
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo
from admittance.workload import stored

ROOT = Path(__file__).parents[3] / "shared" / "conformance"
KINDS = ("namespaces", "resourceFlavors", "admissionChecks", "cohorts", "clusterQueues")
START = datetime(2026, 1, 1, tzinfo=UTC)

needs_data = pytest.mark.skipif(
    not ROOT.is_dir(), reason="the conformance data is not beside this tree"
)


def read(table: str) -> list[dict[str, Any]]:
    """The cases of a table such as ``preemption/TestPreemption``; none when there is no data."""
    path = ROOT / f"{table}.json"
    return json.loads(path.read_text())["cases"] if path.is_file() else []


def cases(table: str, without: Mapping[str, object] = {}) -> list[Any]:
    """The cases as parameters, but for those named in ``without``."""
    return [pytest.param(row, id=row["name"]) for row in read(table) if row["name"] not in without]


def time_of(text: str | None) -> datetime:
    """A time of the data."""
    return START if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))


class Given:
    """A scheduler that owns every domain and has all objects of a case."""

    def __init__(self, given: Mapping[str, Any], config: Config) -> None:
        self.core = Scheduler(config)
        self.world = self.core._state
        self.now = time_of(given.get("now"))
        self.revision = 0
        for group in (*KINDS, "localQueues"):
            for obj in given.get(group, ()):
                self.put(obj)
        for domain in self.core.domains():
            self.core.own(domain)
        for group in ("admitted", "workloads"):
            for obj in given.get(group, ()):
                self.workload(obj)

    def put(self, obj: Mapping[str, Any]) -> None:
        """Applies an object of the configuration."""
        manifest = decode_object(obj).manifest
        meta = manifest.metadata
        self.revision += 1
        self.core.apply_object(manifest.kind, meta.namespace, meta.name, manifest, self.revision)

    def workload(self, obj: Mapping[str, Any]) -> WorkloadInfo:
        """A workload as it stands."""
        workload = stored.decode(msgspec.json.encode(obj))
        meta = workload.metadata
        self.revision += 1
        self.core.apply_workload(meta.namespace, meta.name, workload, self.revision, now=self.now)
        return self.world.workloads[(meta.namespace, meta.name)]

    def queue(self, name: str) -> Queue:
        """The queue of a ClusterQueue."""
        return self.world.queues[name]

    def cell(self, queue: str, flavor: str, resource: str) -> Cell:
        """The numbers of one flavor and resource in a ClusterQueue."""
        return self.core.catalog.tree.queues[queue].cell((flavor, resource))

    def use(self, queue: str, amounts: list[Mapping[str, Any]]) -> None:
        """Usage without workloads behind it."""
        for amount in amounts:
            self.cell(queue, amount["flavor"], amount["resource"]).charge(amount["value"])

    def usage(self) -> dict[tuple[str, str, str], int]:
        """All that is charged, cohorts included."""
        tree = self.core.catalog.tree
        return {
            (node.name, *fr): cell.usage
            for node in (*tree.queues.values(), *tree.cohorts.values())
            for fr, cell in node.cells.items()
            if cell.usage
        }
