"""A job is placed where the folder of its submission is seen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.folders import FolderSight, MachineFacts, SubmittedFrom, written_folder
from admittance.placement.machines.folder_demands import folder_demand, host_of, submitted_folder
from admittance.workload.stored import StoredWorkload
from support.builders import a_manifest
from support.machines import a_machine


def stored_workload(manifest: dict[str, Any]) -> StoredWorkload:
    return StoredWorkload(
        api_version="", kind="Workload", spec=msgspec.Raw(msgspec.json.encode(manifest["spec"]))
    )


HERE = MachineFacts(host="a", boot_id="b1", mount_namespace="m", machine_id="i")
AGAIN = MachineFacts(host="a", boot_id="b2", mount_namespace="m", machine_id="i")
THERE = MachineFacts(host="z", boot_id="b9", mount_namespace="m", machine_id="j")


@pytest.mark.parametrize(
    ("runners", "seen_by"),
    [
        ([("one", HERE, ()), ("two", THERE, ())], ["one"]),
        ([("one", AGAIN, ()), ("two", THERE, ())], ["one"]),
        ([("one", THERE, ("/home",)), ("two", THERE, ())], ["one"]),
        ([("one", THERE, ()), ("two", MachineFacts(), ())], []),
    ],
    ids=["the machine of the submitter", "it was started again", "a shared folder", "none"],
)
def test_the_machines_that_see_the_folder(
    runners: list[tuple[str, MachineFacts, tuple[str, ...]]], seen_by: list[str]
) -> None:
    sights = {name: FolderSight(machine=of, shared=shared) for name, of, shared in runners}
    folder, host = folder_demand(SubmittedFrom(path="/home/ada", machine=HERE), sights.values())
    machines = [
        a_machine(name, host=host_of(sight), folders=sight.shared) for name, sight in sights.items()
    ]
    assert [machine.name for machine in machines if machine.sees(folder, host)] == seen_by


def test_the_folder_is_read_from_the_pod_templates() -> None:
    folder = SubmittedFrom(path="/home/ada", machine=HERE)
    manifest = a_manifest("w")
    assert submitted_folder(stored_workload(manifest)) is None
    template = manifest["spec"]["podSets"][0]["template"]
    template.setdefault("metadata", {})["annotations"] = {
        "admittance.dev/submitted-from": written_folder(folder)
    }
    assert submitted_folder(stored_workload(manifest)) == folder
