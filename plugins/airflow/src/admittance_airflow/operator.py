"""A task that is a job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from admittance.client import Client, ClientError, SyncClient
from admittance_airflow.trigger import AdmittanceTrigger, ended


class AdmittanceOperator(BaseOperator):
    """Runs a command as a job: ``AdmittanceOperator(task_id="train", command=["python",
    "train.py"], local_queue="research", gpu=1)``.

    ``local_queue`` is the queue; ``server`` a context of `admit context list`, by default the
    server is found as commands find it; the other arguments are those of `Client.submit`. While the
    job waits and runs, the task uses no worker, unless ``deferrable`` is False. The task returns
    the name and exit code of the job, and its log has the output of the job. A worker that begins
    the same try again finds the job of that try.
    """

    template_fields = ("command", "env", "local_queue", "namespace", "labels", "chdir")

    def __init__(
        self,
        *,
        command: Sequence[str],
        local_queue: str | None = None,
        namespace: str = "default",
        cpu: str | float | None = None,
        memory: str | int | None = None,
        gpu: str | int | None = None,
        count: int = 1,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        flavors: Sequence[str] = (),
        job_priority: int | None = None,
        priority_class: str | None = None,
        max_seconds: int | None = None,
        chdir: str | None = None,
        server: str | None = None,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.command = command
        self.local_queue = local_queue
        self.namespace = namespace
        self.cpu = cpu
        self.memory = memory
        self.gpu = gpu
        self.count = count
        self.env = env
        self.labels = labels
        self.flavors = flavors
        self.job_priority = job_priority
        self.priority_class = priority_class
        self.max_seconds = max_seconds
        self.chdir = chdir
        self.server = server
        self.deferrable = deferrable
        self.job_name = ""

    def execute(self, context: Any) -> dict[str, Any]:
        """Submits the job, and waits for it in the triggerer."""
        ti = context["ti"]
        with self._client() as client:
            job = client.submit(
                list(self.command),
                queue=self.local_queue,
                cpu=self.cpu,
                memory=self.memory,
                gpu=self.gpu,
                count=self.count,
                env=self.env,
                labels=self.labels,
                flavors=self.flavors,
                priority=self.job_priority,
                priority_class=self.priority_class,
                max_seconds=self.max_seconds,
                chdir=self.chdir,
                key=f"{ti.task_id[-100:]} {ti.id}",  # Airflow has an id for each try.
            )
        self.job_name = job.name
        self.log.info("the task is workload %s of namespace %s", job.name, self.namespace)
        if self.deferrable:
            self.defer(
                trigger=AdmittanceTrigger(job.name, self.namespace, self.server),
                method_name="execute_complete",
                timeout=self.execution_timeout,
            )
        return self.execute_complete(context, asyncio.run(self._ended()))

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Ends the task as its job ended."""
        name = event["name"]
        try:
            with self._client() as client:
                for piece in client.logs(name):
                    self.log.info("%s", piece.text.rstrip("\n"))
        except ClientError as error:
            self.log.warning("the output of the job cannot be read: %s", error)
        if event["failed"]:
            raise AirflowException(f'workload "{name}" failed: {event["failed"]}')
        return {"name": name, "exit_code": event["exit_code"]}

    def on_kill(self) -> None:
        """Stops the job of a task that is ended while it does not defer."""
        if self.job_name:
            with self._client() as client:
                client.stop(self.job_name)

    def _client(self) -> SyncClient:
        return SyncClient.connect(context=self.server, namespace=self.namespace)

    async def _ended(self) -> dict[str, Any]:
        async with await Client.connect(context=self.server) as client:
            return await ended(client, self.job_name, self.namespace)
