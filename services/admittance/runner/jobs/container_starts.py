# ruff: noqa: PTH118
# (pathlib is not worth its import time here)
"""Starts the containers of the pods of a run. The shim imports this module, so the module imports
little."""

from __future__ import annotations

import os

from admittance.runner.disk.walk import VOLUMES
from admittance.runner.files.pod_files import FileCarrier
from admittance.runner.groups.run_groups import RunGroups
from admittance.runner.jobs.pod import Pod
from admittance.runner.jobs.pod_process import (
    enter_folder,
    expand,
    make_scratch,
    program_of,
    start_process,
)
from admittance.runner.jobs.pod_volumes import make_checkpoint_folder, make_volumes
from admittance.runner.jobs.strays import forbid_new_privileges
from admittance.runner.output.collector import OutputCollector

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class ContainerStarts:
    """Starts the containers of one run. ``folder``: that of the run; ``spec``: what the shim has
    read there."""

    def __init__(
        self,
        folder: str,
        spec: dict[str, Any],
        groups: RunGroups,
        files: FileCarrier,
        output: OutputCollector,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._groups = groups
        self._files = files
        self._output = output

    def scratch_of(self, pod: Pod) -> str:
        """The scratch folder of a pod."""
        return os.path.join(self._folder, "scratch", pod.scratch)

    def start(self, pod: Pod, container: dict[str, Any]) -> int:
        """Starts a container of the pod and notes it in the pod; returns the pid of its process.
        Raises OSError or ValueError if it cannot start."""
        spec = self._spec
        user = spec.get("runAs")
        scratch = make_scratch(self.scratch_of(pod), user)
        own = {
            **pod.variables(spec["mark"], container["name"]),
            **make_volumes(scratch + VOLUMES, pod.volumes, spec.get("volumesOf") or user),
        }
        if spec.get("checkpoint"):
            make_checkpoint_folder(
                spec["checkpoint"],
                spec.get("volumesOf") or user,
                in_container=bool(spec["cleanup"]),
            )
        env, argv = program_of(container, spec["given"], own, pod.devices(), pod.unset)
        cwd = expand(container.get("innerCwd") or "", own) or container["cwd"] or scratch
        limit = spec.get("processLimit", 0)
        join = self._join(pod)
        place = self._place_of(container) if cwd == container["cwd"] else None
        self._files.bring(pod, (scratch, cwd), lambda folder: enter_folder(folder, place or {}))
        output = self._output.pipe(pod.name)
        try:
            folders = scratch, cwd
            pid = start_process(argv, env, folders, output, user, limit, join, place)
        finally:
            os.close(output)
        pod.running.add(pid)
        pod.containers[pid] = container
        for programs, name in ((pod.probes, "probe"), (pod.kills, "kill"), (pod.ooms, "oom")):
            if container.get(name):
                programs[pid] = [expand(word, own) for word in container[name]]
        return pid

    def _join(self, pod: Pod) -> Callable[[], None] | None:
        """A function that moves a process into the group of its pod, before its program begins."""
        denied = pod.denied(self._spec.get("deviceFiles") or [])
        join = self._groups.enter(pod.scratch, pod.set.spec.get("limits") or {}, denied)
        if not (self._spec.get("noNewPrivs") and self._spec.get("hooks")):
            return join

        def join_without_privileges() -> None:
            # The shim itself may gain rights, since its hooks may.
            if join is not None:
                join()
            forbid_new_privileges()

        return join_without_privileges

    def _place_of(self, container: dict[str, Any]) -> dict[str, Any]:
        """What must be true of a folder outside of the run in which a container starts."""
        place = {name: container.get(name) for name in ("inode", "owner", "umask")}
        return {**place, "allowed": self._spec.get("folders") or []}
