"""The side of the job: where it is, and how it saves its state before it stops."""

from __future__ import annotations

import os
import signal
import sys
from typing import ClassVar, Final

from submitit.core.job_environment import JobEnvironment, _checkpoint
from submitit.core.utils import DelayedSubmission, JobPaths, UncompletedJobError

JOB: Final = "SUBMITIT_ADMITTANCE_JOB_ID"
ARRAY: Final = "SUBMITIT_ADMITTANCE_ARRAY_ID"
NODES: Final = "SUBMITIT_ADMITTANCE_NODES"
STOPPED: Final = 128 + signal.SIGTERM


class AdmittanceJobEnvironment(JobEnvironment):
    """A job of submitit that Admittance runs. Each task is a pod, with the devices of its own."""

    _env: ClassVar[dict[str, str]] = {
        "job_id": JOB,
        "array_job_id": ARRAY,
        "array_task_id": "ADMITTANCE_ARRAY_INDEX",
        "num_tasks": NODES,
        "num_nodes": NODES,
        "node": "JOB_COMPLETION_INDEX",
        "global_rank": "JOB_COMPLETION_INDEX",
        "local_rank": "SUBMITIT_ADMITTANCE_LOCAL_RANK",
    }

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        """Saves a checkpoint when the job is warned, and before it stops. Admittance runs a
        preempted job again, from the checkpoint, so nothing is requeued here."""
        again = os.environ.get("ADMITTANCE_RESTART_COUNT", "0") != "0"
        if again and paths.result_pickle.exists():
            sys.exit(0)  # The function asked not to run again.
        half_saved = paths.submitted_pickle
        half_saved.with_suffix(f"{half_saved.suffix}.save_tmp").unlink(missing_ok=True)
        saving = stopping = False

        def save() -> str:
            """Saves a checkpoint; returns why the function must not run again, or ""."""
            nonlocal saving
            if self.global_rank or not is_checkpointable(submission):
                return ""
            saving = True
            try:
                left = submission._timeout_countdown
                return _checkpoint(submission, paths.submitted_pickle, left)
            finally:
                saving = False

        def warned(*_: object) -> None:
            save()
            if stopping:
                sys.exit(STOPPED)

        def stopped(*_: object) -> None:
            nonlocal stopping
            stopping = True
            if saving:
                return
            if why := save():
                raise UncompletedJobError(f"Job not requeued because: {why}.")
            sys.exit(STOPPED)

        signal.signal(signal.SIGTERM, stopped)
        signal.signal(self._usr_sig(), warned)


def is_checkpointable(submission: DelayedSubmission) -> bool:
    """Whether the function of the submission can save its state."""
    function = submission.function
    return any(hasattr(function, name) for name in ("__submitit_checkpoint__", "checkpoint"))
