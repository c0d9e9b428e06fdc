"""The executor ``admittance`` of Snakemake: ``snakemake --executor admittance --jobs 100``."""

# Snakemake reads the annotations of the settings as types: no `from __future__ import annotations`.

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from admittance.client import ClientError, NotFound, SyncClient
from admittance.client.requests.submissions.names import stem, suffix
from admittance.workload.stored import StoredWorkload
from admittance_snakemake import arguments_of, end_of


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """The options ``--admittance-…``."""

    queue: str = field(
        default="",
        metadata={"help": "The LocalQueue of jobs; a resource `queue` of a rule goes before it."},
    )
    namespace: str = field(
        default="default", metadata={"help": "The namespace of the queue and of the jobs."}
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    auto_deploy_default_storage_provider=False,
)


class Executor(RemoteExecutor):
    """Each job of the workflow is a workload. Its id is the name of the workload."""

    def __post_init__(self) -> None:
        if not self.workflow.storage_settings.assume_common_workdir:
            raise WorkflowError(
                "the executor admittance needs a folder that this program and the machines share"
            )
        try:
            self._client = SyncClient.connect(namespace=self.workflow.executor_settings.namespace)
        except ClientError as error:
            raise WorkflowError(f"admittance: {error}") from None

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submits a job, unless an earlier run of the workflow has submitted it and it has not
        failed."""
        name = f"{stem([job.name])}-{suffix()}"
        asked: dict[str, Any] = {"queue": self.workflow.executor_settings.queue or None}
        asked |= arguments_of(job.threads, job.resources)
        command = ["sh", "-c", self.format_job_exec(job)]
        info = SubmittedJobInfo(job, external_jobid=name)
        try:
            earlier = self.dag.incomplete_external_jobid(job)
            if earlier and not end_of(self._workload(earlier)):
                self.report_job_submission(SubmittedJobInfo(job, external_jobid=earlier))
                return
            self._client.submit(command, name=name, chdir=self.workflow.workdir_init, **asked)
        except ClientError as error:
            self.report_job_error(info, msg=f"admittance: {error}. ")
            return
        self.logger.info(f"Job {job.jobid} is workload {name}.")
        self.report_job_submission(info)

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncIterator[SubmittedJobInfo]:
        """Reports the jobs that have ended, after one look at all; yields the others."""
        async with self.status_rate_limiter:
            try:
                ends = await asyncio.to_thread(self._ends, active_jobs)
            except ClientError as error:
                self.logger.info(f"admittance: {error}; it will be tried again")
                ends = [None] * len(active_jobs)
        for info, end in zip(active_jobs, ends, strict=True):
            if end is None:
                yield info
            elif end:
                name = info.external_jobid
                self.report_job_error(
                    info, msg=f"{end}; `admit logs workload {name}` shows its output. "
                )
            else:
                self.report_job_success(info)

    def _ends(self, active_jobs: Sequence[SubmittedJobInfo]) -> list[str | None]:
        """How each job ended, as `end_of` says it."""
        if not active_jobs:
            return []
        stored = {each.name: each for each in self._client.list()}
        return [
            end_of(each.workload() if (each := stored.get(name)) else self._workload(name))
            for name in (info.external_jobid for info in active_jobs)
        ]

    def _workload(self, name: str) -> StoredWorkload | None:
        """The workload, which no list has; None if it is deleted."""
        try:
            return self._client.job(name).get()
        except NotFound:
            return None

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Stops the jobs."""
        for info in active_jobs:
            try:
                self._client.stop(info.external_jobid)
            except ClientError as error:
                self.logger.info(f"admittance: {error}")
