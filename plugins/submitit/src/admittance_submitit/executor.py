"""The side of the program: functions become workloads, several at once an array."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from submitit.core import core, utils
from submitit.core.core import EquivalenceDict

from admittance.client.requests.submissions.names import stem, suffix
from admittance.runtime.nats.contexts import BadContext, current_name
from admittance_submitit.environment import (
    ARRAY,
    JOB,
    NODES,
    AdmittanceJobEnvironment,
    is_checkpointable,
)
from admittance_submitit.job import AdmittanceJob, client

GENERIC: Final = frozenset(EquivalenceDict.__annotations__) | {"stderr_to_stdout"}
PASSED: Final = ("queue", "priority", "priority_class", "labels", "flavors", "anyway")
"""The parameters that are arguments of `Client.submit`."""
OWN: Final = frozenset((*PASSED, "namespace", "env", "signal_delay_s", "array_parallelism"))
TIMEOUT_MIN: Final = 5
SIGNAL_DELAY: Final = 90


class AdmittanceExecutor(core.PicklingExecutor):
    """Each function runs as a workload; those of a batch or of `map_array` as one array.

    ``folder``: for functions and results, on a file system that the program and the machines of
    jobs share. ``max_num_timeout``: how often a function with a checkpoint gets ``timeout_min``
    again. ``python``: the command that runs Python, by default the present one.
    """

    job_class = AdmittanceJob

    def __init__(
        self, folder: Path | str, max_num_timeout: int = 3, python: str | None = None
    ) -> None:
        super().__init__(folder, max_num_timeout=max_num_timeout)
        self.python = shlex.quote(sys.executable) if python is None else python

    @classmethod
    def affinity(cls) -> int:
        """2, which is a cluster, where a server is set up; else 0: it is there if it is named."""
        with suppress(BadContext):
            if os.environ.get("ADMIT_NATS_URL") or current_name(os.environ):
                return 2
        return 0

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(OWN)

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        if unknown := kwargs.keys() - GENERIC - OWN:
            raise ValueError(f"unknown parameters: {', '.join(sorted(unknown))}")
        if kwargs.get("tasks_per_node", 1) != 1:
            raise ValueError("each task is a pod of its own: use nodes, not tasks_per_node")
        super()._internal_update_parameters(**kwargs)

    def _num_tasks(self) -> int:
        nodes: int = self.parameters.get("nodes", 1)
        return nodes

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        name = f"{stem([self.parameters.get('name', 'submitit')])}-{suffix()}"
        space = self.parameters.get("namespace") or client().namespace
        whole, ids = f"{space}.{name}", [f"{space}.{name}"]
        if len(delayed_submissions) > 1:
            ids = [f"{whole}_{index}" for index in range(len(delayed_submissions))]
        for job_id, delayed in zip(ids, delayed_submissions, strict=True):
            delayed.set_timeout(self._minutes, self.max_num_timeout)
            path = utils.JobPaths(self.folder, job_id=job_id).submitted_pickle
            path.parent.mkdir(parents=True, exist_ok=True)
            delayed.dump(path)
        client().submit(
            shlex.split(self._submitit_command_str),
            name=name,
            namespace=space,
            **self.arguments(whole, delayed_submissions),
        )
        tasks = range(self._num_tasks())
        return [self.job_class(self.folder, job_id, tasks) for job_id in ids]

    @property
    def _minutes(self) -> int:
        minutes: int = self.parameters.get("timeout_min", TIMEOUT_MIN)
        return minutes

    @property
    def _submitit_command_str(self) -> str:
        return f"{self.python} -u -m submitit.core._submit {shlex.quote(str(self.folder))}"

    def arguments(
        self, job_id: str, submissions: Sequence[utils.DelayedSubmission]
    ) -> dict[str, Any]:
        """The arguments of `Client.submit` for these functions, beside command and name."""
        given = self.parameters
        several = len(submissions) > 1
        env = {"SUBMITIT_EXECUTOR": "admittance", NODES: str(self._num_tasks())}
        env[ARRAY if several else JOB] = job_id
        if path := os.environ.get("PYTHONPATH"):
            env["PYTHONPATH"] = path
        arguments: dict[str, Any] = {key: given[key] for key in PASSED if key in given}
        arguments |= {
            "cpu": given.get("cpus_per_task"),
            "gpu": given.get("gpus_per_node"),
            "count": self._num_tasks(),
            "chdir": str(Path.cwd()),
            "env": {**env, **given.get("env", {})},
            "max_seconds": 60 * self._minutes,
        }
        if "mem_gb" in given:
            arguments["memory"] = f"{round(given['mem_gb'] * 1024)}Mi"
        if any(map(is_checkpointable, submissions)):
            delay = given.get("signal_delay_s", SIGNAL_DELAY)
            arguments["max_seconds"] *= 1 + self.max_num_timeout
            arguments["signal"] = f"{AdmittanceJobEnvironment.USR_SIG}@{delay}"
        if several:
            parallel = given.get("array_parallelism")
            most = f"%{parallel}" if parallel else ""
            arguments["array"] = f"0-{len(submissions) - 1}{most}"
        return arguments

    # What submitit asks of executors with a file for each submission, which this one has not. ----

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        raise NotImplementedError

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        raise NotImplementedError

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        raise NotImplementedError
