"""How much the jobs of a runner may use of what quota does not count: pods, processes, output, disk
and rights. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from admittance.api.fields import units
from admittance.runtime.errors import SetupError

VARIABLES: Final[Mapping[str, str]] = {
    "pods": "ADMIT_POD_LIMIT",
    "processes": "ADMIT_PROCESS_LIMIT",
    "output": "ADMIT_OUTPUT_LIMIT",
    "namespace_output": "ADMIT_NAMESPACE_OUTPUT_LIMIT",
    "scratch": "ADMIT_SCRATCH_LIMIT",
    "free_space": "ADMIT_FREE_SPACE",
    "privilege_escalation": "ADMIT_ALLOW_PRIVILEGE_ESCALATION",
    "cgroup": "ADMIT_CGROUP",
}
"""For each field of `LimitTexts` the environment variable that has its value."""
OPTIONS: Final[Mapping[str, str]] = {
    "pods": "--pod-limit",
    "processes": "--process-limit",
    "output": "--output-limit",
    "namespace_output": "--namespace-output-limit",
    "scratch": "--scratch-limit",
    "free_space": "--free-space",
    "privilege_escalation": "--allow-privilege-escalation",
    "cgroup": "--cgroup",
}
NO_GROUPS: Final = "none"
COUNT_MAX: Final = 2**31 - 1
SIZE_MAX: Final = 2**62
OUTPUT_MIN: Final = 64 << 10
"""The smallest limit of output: the runner keeps output in blocks of several KiB."""


class JobLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one runner; 0 means no limit.

    ``pods``: pods of one namespace that run at once; a pod with several containers counts once for
    each. ``processes``: processes and threads that each
    other Unix user of `JobRules.run_as` may have (RLIMIT_NPROC), or each container. ``output``:
    bytes of output that are kept of one run. ``namespace_output``: bytes of output that are kept of
    all runs of one namespace. ``scratch``: bytes of files of one run in its scratch folders and
    ``emptyDir`` volumes. ``free_space``: bytes that must be free on the disk of the runner's
    data folder when a job starts. ``privilege_escalation``: whether programs such as ``sudo`` may
    give a job more rights. ``cgroup``: the control group below which those of pods lie; "": the
    runner's own; `NO_GROUPS`: the kernel limits no memory and cpu.
    """

    pods: int = 500
    processes: int = 16_384
    output: int = 100 << 20
    namespace_output: int = 10 << 30
    scratch: int = 50 << 30
    free_space: int = 256 << 20
    privilege_escalation: bool = False
    cgroup: str = ""

    def too_many_pods(self, pods: int, containers: int) -> str:
        """Why a job with so many pods, and containers in them, at once can never start; "" if it
        can."""
        if not self.pods or containers <= self.pods:
            return ""
        having = f" with {containers:,} containers" if containers > pods else ""
        return (
            f"the job runs {pods:,} pods{having} at once, and this runner starts at most "
            f"{self.pods:,} of one namespace: ask for fewer, or raise --pod-limit of the runner"
        )


class LimitTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a runner as texts of options; "": the option was not given."""

    pods: str = ""
    processes: str = ""
    output: str = ""
    namespace_output: str = ""
    scratch: str = ""
    free_space: str = ""
    privilege_escalation: str = ""
    cgroup: str = ""


def limits_of(texts: LimitTexts, env: Mapping[str, str]) -> JobLimits:
    """The limits that the options set; a limit without an option comes from its environment
    variable. Raises SetupError for a wrong value."""
    given = {name: getattr(texts, name) or env.get(VARIABLES[name], "") for name in VARIABLES}
    counts = {
        name: _count(name, given[name]) for name in ("pods", "processes") if given[name].strip()
    }
    sizes = {
        name: _size(name, given[name])
        for name in ("output", "namespace_output", "scratch", "free_space")
        if given[name].strip()
    }
    flag = given["privilege_escalation"].strip()
    if flag not in ("", "0", "1"):
        raise SetupError(f"{_shown('privilege_escalation')} {flag}: it must be 0 or 1")
    cgroup = given["cgroup"].strip()
    absolute = cgroup.startswith("/") and ".." not in cgroup.split("/")
    if cgroup and cgroup != NO_GROUPS and not absolute:
        raise SetupError(
            f"{_shown('cgroup')} {cgroup}: it must be the absolute path of a control group, "
            f"without .., or {NO_GROUPS}"
        )
    return JobLimits(**counts, **sizes, privilege_escalation=flag == "1", cgroup=cgroup)


def _count(name: str, text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal()) or int(text) > COUNT_MAX:
        raise SetupError(f"{_shown(name)} {text}: it must be a whole number; 0: no limit")
    return int(text)


def _size(name: str, text: str) -> int:
    text = text.strip()
    try:
        size = units.parse(text)
    except ValueError as error:
        raise SetupError(f"{_shown(name)}: {error}") from None
    if not 0 <= size <= SIZE_MAX:
        raise SetupError(f"{_shown(name)} {text}: it must be a size such as 100Mi; 0: no limit")
    if name == "output" and 0 < size < OUTPUT_MIN:
        raise SetupError(f"{_shown(name)} {text}: it must be at least 64Ki; 0: no limit")
    return int(size)


def _shown(name: str) -> str:
    return f"{OPTIONS[name]} ({VARIABLES[name]})"
