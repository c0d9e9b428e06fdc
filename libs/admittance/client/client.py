"""`Client`: what programs may do with the system.

`tools/sync_client.py` makes `SyncClient` from the signatures and docstrings of this module, and of
those of `methods`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from admittance.api.workload import Workload
from admittance.client import opening
from admittance.client.arguments.checked import at_least, checked_methods, not_default, words
from admittance.client.calls import Calls, Login, Stream
from admittance.client.errors import BadInput
from admittance.client.job import Job
from admittance.client.methods.accounting import AccountingMethods
from admittance.client.methods.events import EventMethods
from admittance.client.methods.health import HealthMethods
from admittance.client.methods.holds import HoldMethods
from admittance.client.methods.machines import MachineMethods
from admittance.client.methods.objects import ObjectMethods
from admittance.client.methods.queues import QueueMethods
from admittance.client.methods.workload_changes import WorkloadChanges
from admittance.client.requests import files, then
from admittance.client.requests.files import FetchedFile
from admittance.client.requests.link import Link
from admittance.client.requests.submissions import commands, resubmission, submitting, warnings
from admittance.client.requests.submissions.commands import CommandOptions
from admittance.client.requests.submissions.fit import refuse_misfit
from admittance.client.requests.submissions.manifests import Manifests, only_run
from admittance.client.requests.submissions.working_folder import Place, named_place
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.whatif import FitReply
from admittance.events.shapes import PodLog
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.workload.phase import Phase
from admittance.workload.stored import StoredWorkload

BESIDE_A_MANIFEST: Final = ("self", "manifest", "namespace", "queue", "key")
"""The arguments of `Client.submit` that go with a manifest."""


@checked_methods
class Client(
    ObjectMethods,
    MachineMethods,
    QueueMethods,
    AccountingMethods,
    EventMethods,
    HoldMethods,
    HealthMethods,
    WorkloadChanges,
):
    """A connection to the system. `connect` makes one; it is closed at the end of ``async with``.

    A call raises an error of `admittance.client.errors`. A client belongs to the process and the
    event loop that connected it. After a lost connection it connects again by itself; a call during
    the loss raises `Unavailable` if the connection does not come back in time.
    """

    def __init__(self, link: Link) -> None:
        self._calls = Calls(link)
        self._namespace = link.namespace

    @classmethod
    async def connect(
        cls,
        url: str | None = None,
        *,
        context: str | None = None,
        options: ConnectionOptions | None = None,
        namespace: str = "default",
        environ: Mapping[str, str] = os.environ,
    ) -> Client:
        """Connects to a server.

        ``url``: the server; else that of ``context``, a name of `admit context list`; else
        ``$ADMIT_NATS_URL``; else the current context; else nats://127.0.0.1:4222. ``options``:
        login and TLS; else those of the context and of the variables ``ADMIT_NATS_…`` in
        ``environ``. ``namespace``: the namespace of calls that name none.

        Raises BadInput, NotAllowed if the server refuses the login, and Unavailable.
        """
        client = cls(await opening.open_link(url, context, options, namespace, environ))
        await client._calls.start()
        return client

    async def close(self) -> None:
        """Closes the connection. Open calls and iterations raise Closed. Closing again does
        nothing."""
        await self._calls.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def namespace(self) -> str:
        """The namespace of calls that name none."""
        return self._namespace

    @property
    def login(self) -> Login:
        """The user of the connection: its name, its role and its namespaces."""
        return self._calls.login

    async def login_ended(self) -> str:
        """Waits until the server refuses to let this login connect again, since it expired or was
        revoked. Returns the server's reason."""
        return await self._calls.login_ended()

    async def submit(
        self,
        command: Sequence[str] | None = None,
        *,
        manifest: Manifests | None = None,
        name: str | None = None,
        namespace: str | None = None,
        queue: str | None = None,
        image: str = "",
        cpu: str | float | None = None,
        memory: str | int | None = None,
        gpu: str | int | None = None,
        count: int = 1,
        priority: int | None = None,
        priority_class: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        flavors: Sequence[str] = (),
        max_seconds: int | None = None,
        chdir: str | None = None,
        signal: str | None = None,
        inputs: Sequence[str | os.PathLike[str]] = (),
        outputs: Sequence[str] = (),
        array: str | None = None,
        retries: int | None = None,
        fail_fast: bool = False,
        after: Sequence[str] = (),
        after_unmet: str | None = None,
        anyway: bool = False,
        key: str | None = None,
    ) -> Job:
        """Submits a job: a command, or a manifest of a Workload or Job.

        ``command``: the words of the command that each of ``count`` pods runs. ``cpu``, ``memory``,
        ``gpu``: for each pod, by default 1, 1Gi and none. ``queue``: the LocalQueue; by default the
        only one of the namespace. ``name``: by default generated. ``flavors``: the allowed
        ResourceFlavors; empty: all. ``max_seconds``: the most seconds that it may run in all.
        ``env``: its variables, which can be read in the log. ``chdir``: the folder in which it
        starts, by default an empty one; a folder of this machine that no runner sees is refused.
        ``signal``: such as ``USR1@120``, the signal that warns it so many seconds before
        ``max_seconds`` are over.
        ``inputs``: files of this machine that are in the folder of the job when it starts, under
        the same path if it is relative, else under the last part of the path. ``outputs``: paths in
        the folder of the job of the files that are kept at its end, for `Job.fetch`.
        ``array``: runs the command once for each index, such as ``0-99`` or ``0-99%10``, which is
        at most ten at once; `Job.element` is one of them. ``retries``: how many failed pods run
        again; with an array in each element. ``fail_fast``: the first failed element ends the
        array. ``after``: workloads that it waits for, such as ``prep``, ``prep:any``,
        ``prep:failed``, ``prep:started``, ``prep[3]``, or ``prep[=]`` for each element of an array
        the one with its index. ``after_unmet``: ``cancel`` (the default) stops it when that cannot
        happen any more, ``keep`` lets it wait.
        ``anyway``: submit also to a queue that does not exist or can never hold the job. A manifest
        takes only ``namespace``, ``queue`` and ``key`` beside it.

        ``key``: names the job. A later call of the same user and namespace with the key creates no
        second job, even if the earlier answer was lost: it returns a `Job` with ``created`` False.
        So does the submission of a workload that exists with the same name and spec. A name and a
        key do not go together. `Job.warnings` names what may not work as intended.

        Raises BadInput, NotFound for a missing queue or class, and Refused, with the reason
        ``AlreadyExists`` if a workload with another spec has the name or the key.
        """
        given = locals()
        async with self._calls.call() as link:
            space = opening.namespace_of(namespace, link.namespace)
            at_least(1, count=count, max_seconds=max_seconds)
            at_least(0, retries=retries)
            if key is not None:
                submitting.check_key(key)
            if manifest is not None:
                if others := not_default(Client.submit, given, but=BESIDE_A_MANIFEST):
                    raise BadInput(
                        f"the whole job comes from the manifest: leave out {', '.join(others)}"
                    )
                workload, told = only_run(manifest, space, queue, link.user, key)
                fit = None
            else:
                place = Place()
                if chdir is not None:
                    place = await named_place(
                        link, chdir, space, queue, image=bool(image), anyway=anyway
                    )
                told = (place.warning,) if place.warning else ()
                wanted = files.wanted_files(inputs, outputs)
                waits_for, unmet = commands.dependencies_of(words(after), after_unmet)
                options = CommandOptions(
                    command=command or (),
                    queue=queue,
                    name=name,
                    requests=commands.requests_of(cpu, memory, gpu),
                    count=count,
                    priority=priority,
                    priority_class=priority_class,
                    image=image,
                    env=env or {},
                    labels=labels or {},
                    max_seconds=max_seconds,
                    flavors=flavors,
                    working_dir=place.path,
                    folder=place.folder,
                    warning=commands.warning_of(signal),
                    array=commands.array_of(array, fail_fast=fail_fast),
                    retries=retries,
                    after=waits_for,
                    after_unmet=unmet,
                )
                workload, fit = await submitting.fitting_command(
                    link, options, space, key=key, anyway=anyway, files=wanted
                )
            return await self._submitted(link, workload, fit, key=key or "", told=told)

    async def resubmit(
        self,
        name: str,
        *,
        failed: bool = False,
        new_name: str | None = None,
        queue: str | None = None,
        cpu: str | float | None = None,
        memory: str | int | None = None,
        gpu: str | int | None = None,
        max_seconds: int | None = None,
        priority: int | None = None,
        priority_class: str | None = None,
        anyway: bool = False,
        namespace: str | None = None,
    ) -> Job:
        """Submits a workload once more, as a new workload with the same spec that waits for no
        other; the arguments replace what it had.

        ``failed``: of an array only the elements that have failed, were deleted, or were ended by
        the array. ``new_name``: by default generated. The other arguments are those of `submit`; an
        amount of 0 takes the resource away. Raises NotFound, BadInput, and Refused, also if nothing
        has failed.
        """
        async with self._calls.call() as link:
            at_least(1, max_seconds=max_seconds)
            changes = resubmission.Changes(
                queue=queue,
                requests=commands.requests_of(cpu, memory, gpu),
                priority=priority,
                priority_class=priority_class,
                max_seconds=max_seconds,
            )
            workload = await resubmission.again(
                link, name, namespace or "", failed=failed, new_name=new_name, changes=changes
            )
            fit = await refuse_misfit(link, workload, anyway=anyway)
            return await self._submitted(link, workload, fit)

    def job(self, name: str, *, namespace: str | None = None) -> Job:
        """A handle for the workload of that name, which need not exist yet."""
        return Job(self._calls, namespace or self._namespace, name)

    async def explain(
        self,
        name: str,
        *,
        namespace: str | None = None,
        at: int | datetime | None = None,
        whole: bool = True,
        start: bool = True,
    ) -> ExplainReply:
        """Why a workload waits: for each flavor and check, and what would unblock it. ``at``: why
        it waited at that moment of the past, as `moment` takes it, which takes seconds; without
        ``whole`` only the reason that was stored and the room that its flavors had. ``start``
        False: without the expected start, for which the answer may wait a third of a second."""
        if at is None:
            return await self.job(name, namespace=namespace).explain(start=start)
        async with self._calls.call() as link:
            return await then.explain_then(link, name, namespace or link.namespace, at, whole=whole)

    async def wait(
        self,
        name: str,
        phase: str = Phase.FINISHED,
        *,
        timeout: float | None = None,
        namespace: str | None = None,
    ) -> StoredWorkload:
        """Waits until the workload has a phase, as `Job.wait` does."""
        return await self.job(name, namespace=namespace).wait(phase, timeout=timeout)

    def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        pod: int | None = None,
        tail: int | None = None,
        previous: int = 0,
        namespace: str | None = None,
    ) -> Stream[PodLog]:
        """The output of the workload's pods, as `Job.logs` gives it."""
        job = self.job(name, namespace=namespace)
        return job.logs(follow=follow, pod=pod, tail=tail, previous=previous)

    async def fetch(
        self,
        name: str,
        folder: str | os.PathLike[str] = ".",
        *,
        namespace: str | None = None,
    ) -> tuple[FetchedFile, ...]:
        """Writes the files that the workload's job left below the folder, as `Job.fetch` does."""
        return await self.job(name, namespace=namespace).fetch(folder)

    async def _submitted(
        self,
        link: Link,
        workload: Workload,
        fit: FitReply | None,
        *,
        key: str = "",
        told: tuple[str, ...] = (),
    ) -> Job:
        """Submits the workload; returns its handle, with ``told`` and further warnings."""
        created = await submitting.submit(link, workload, key)
        meta = workload.metadata
        told = (*told, *await warnings.about(link, workload, fit))
        return Job(self._calls, meta.namespace, meta.name, created=created, warnings=told)
