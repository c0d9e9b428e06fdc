"""Makes groups again from their folders. The shim imports this module, so the module imports
little."""

from __future__ import annotations

from admittance.runner.groups.cgroup_v1 import CgroupV1
from admittance.runner.groups.cgroup_v2 import CgroupV2
from admittance.runner.groups.job_groups import JobGroups, NoGroups

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from typing import Any


def groups_of(plan: dict[str, Any] | None) -> JobGroups:
    """The groups that a plan names by their version and folders."""
    if not plan or not plan["folders"]:
        return NoGroups("the plan of the run names none")
    folders: dict[str, str] = plan["folders"]
    if plan["version"] == "v2":
        return CgroupV2(next(iter(folders.values())), list(folders))
    return CgroupV1(folders)
