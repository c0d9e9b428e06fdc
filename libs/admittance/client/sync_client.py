"""`SyncClient`: `Client` for programs without a loop.

Made by ``python -m tools.sync_client``; edit `client.py` or a module of `methods` instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Unpack, overload

from admittance.client.calls import Login, LoopThread
from admittance.client.client import Client
from admittance.client.health_report import HealthReport
from admittance.client.holding import (
    HoldOptions,
    Kept,
    OnEvicted,
    SyncHold,
    hold_on,
)
from admittance.client.requests.files import FetchedFile
from admittance.client.requests.objects import BucketObject, Change
from admittance.client.requests.past import History
from admittance.client.requests.queues.overview import QueueOverview
from admittance.client.requests.submissions.manifests import Manifests
from admittance.client.sync_job import SyncJob
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.forecast import ForecastReply
from admittance.events.requests.history import EventsReply, LogEntry, SettledReply
from admittance.events.requests.machines import MachinesReply
from admittance.events.requests.manifests import Applied, DeleteReply
from admittance.events.requests.past import Moment
from admittance.events.requests.queues import (
    LastDay,
    PendingReply,
    QueuesReply,
)
from admittance.events.requests.reading import UsageCheck, UsageReply
from admittance.events.requests.replays import ReplayReply
from admittance.events.requests.whatif import SimulateReply
from admittance.events.shapes import PodLog
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.workload.phase import Phase
from admittance.workload.stored import StoredWorkload


class SyncClient:
    """A connection to the system, as `Client` is, with methods that return
    results without ``await``. `connect` makes one; it is closed at the end of ``with``, or when
    Python ends.

    Its connection lives on a thread of its own, so that it works in a notebook, and several threads
    may use one. A call raises an error of `admittance.client.errors`."""

    def __init__(self, thread: LoopThread, client: Client) -> None:
        self._thread = thread
        self._inner = client
        thread.close_with(client.close)

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Open calls and iterations raise Closed. Closing again does
        nothing."""
        self._thread.end()

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        *,
        context: str | None = None,
        options: ConnectionOptions | None = None,
        namespace: str = "default",
        environ: Mapping[str, str] = os.environ,
    ) -> SyncClient:
        """Connects to a server.

        ``url``: the server; else that of ``context``, a name of `admit context list`; else
        ``$ADMIT_NATS_URL``; else the current context; else nats://127.0.0.1:4222. ``options``:
        login and TLS; else those of the context and of the variables ``ADMIT_NATS_…`` in
        ``environ``. ``namespace``: the namespace of calls that name none.

        Raises BadInput, NotAllowed if the server refuses the login, and Unavailable.
        """

        thread = LoopThread()
        try:
            return cls(
                thread,
                thread.run(
                    lambda: Client.connect(
                        url, context=context, options=options, namespace=namespace, environ=environ
                    )
                ),
            )
        except BaseException:
            thread.end()
            raise

    @property
    def namespace(self) -> str:
        """The namespace of calls that name none."""
        return self._inner.namespace

    @property
    def login(self) -> Login:
        """The user of the connection: its name, its role and its namespaces."""
        return self._inner.login

    def login_ended(self) -> str:
        """Waits until the server refuses to let this login connect again, since it expired or was
        revoked. Returns the server's reason."""
        return self._thread.run(self._inner.login_ended)

    def submit(
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
    ) -> SyncJob:
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
        return SyncJob(
            self._thread,
            self._thread.run(
                lambda: self._inner.submit(
                    command,
                    manifest=manifest,
                    name=name,
                    namespace=namespace,
                    queue=queue,
                    image=image,
                    cpu=cpu,
                    memory=memory,
                    gpu=gpu,
                    count=count,
                    priority=priority,
                    priority_class=priority_class,
                    env=env,
                    labels=labels,
                    flavors=flavors,
                    max_seconds=max_seconds,
                    chdir=chdir,
                    signal=signal,
                    inputs=inputs,
                    outputs=outputs,
                    array=array,
                    retries=retries,
                    fail_fast=fail_fast,
                    after=after,
                    after_unmet=after_unmet,
                    anyway=anyway,
                    key=key,
                )
            ),
        )

    def resubmit(
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
    ) -> SyncJob:
        """Submits a workload once more, as a new workload with the same spec that waits for no
        other; the arguments replace what it had.

        ``failed``: of an array only the elements that have failed, were deleted, or were ended by
        the array. ``new_name``: by default generated. The other arguments are those of `submit`; an
        amount of 0 takes the resource away. Raises NotFound, BadInput, and Refused, also if nothing
        has failed.
        """
        return SyncJob(
            self._thread,
            self._thread.run(
                lambda: self._inner.resubmit(
                    name,
                    failed=failed,
                    new_name=new_name,
                    queue=queue,
                    cpu=cpu,
                    memory=memory,
                    gpu=gpu,
                    max_seconds=max_seconds,
                    priority=priority,
                    priority_class=priority_class,
                    anyway=anyway,
                    namespace=namespace,
                )
            ),
        )

    def job(self, name: str, *, namespace: str | None = None) -> SyncJob:
        """A handle for the workload of that name, which need not exist yet."""
        return SyncJob(self._thread, self._inner.job(name, namespace=namespace))

    def explain(
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
        return self._thread.run(
            lambda: self._inner.explain(name, namespace=namespace, at=at, whole=whole, start=start)
        )

    def wait(
        self,
        name: str,
        phase: str = Phase.FINISHED,
        *,
        timeout: float | None = None,
        namespace: str | None = None,
    ) -> StoredWorkload:
        """Waits until the workload has a phase, as `Job.wait` does."""
        return self._thread.run(
            lambda: self._inner.wait(name, phase, timeout=timeout, namespace=namespace)
        )

    def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        pod: int | None = None,
        tail: int | None = None,
        previous: int = 0,
        namespace: str | None = None,
    ) -> Iterator[PodLog]:
        """The output of the workload's pods, as `Job.logs` gives it."""
        return self._thread.iterate(
            lambda: self._inner.logs(
                name, follow=follow, pod=pod, tail=tail, previous=previous, namespace=namespace
            )
        )

    def fetch(
        self, name: str, folder: str | os.PathLike[str] = ".", *, namespace: str | None = None
    ) -> tuple[FetchedFile, ...]:
        """Writes the files that the workload's job left below the folder, as `Job.fetch` does."""
        return self._thread.run(lambda: self._inner.fetch(name, folder, namespace=namespace))

    def get(
        self,
        kind: str,
        name: str,
        *,
        namespace: str | None = None,
        at: int | datetime | None = None,
    ) -> BucketObject:
        """The object of a kind, such as ``clusterqueue``. A runner has ``status.inUse`` and the
        condition Ready; a budget has in ``status`` what is used. ``at``: as it was stored at that
        moment of the past, as `moment` takes it. Raises NotFound."""
        return self._thread.run(lambda: self._inner.get(kind, name, namespace=namespace, at=at))

    def list(
        self,
        kind: str = "workloads",
        *,
        labels: str | Sequence[str] = (),
        states: str | Sequence[str] = (),
        since: datetime | None = None,
        queue: str | None = None,
        sort_by: str | None = None,
        limit: int | None = None,
        name: str | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> Sequence[BucketObject]:
        """The objects of a kind: running workloads first, then waiting, then finished ones, each
        with the newest first; other objects by name.

        ``labels``: selectors such as ``team=vision`` or ``!draft``; ``states``: phases, Succeeded
        or Failed; ``since``: created from this time on; ``queue``: a LocalQueue or a ClusterQueue;
        ``sort_by``: name, namespace, queue, priority, state, created, started or duration, with
        ``-`` before it in reverse; ``name``: only objects of this name, which reads no others.
        Objects that cannot be read are left out.
        """
        return self._thread.run(
            lambda: self._inner.list(
                kind,
                labels=labels,
                states=states,
                since=since,
                queue=queue,
                sort_by=sort_by,
                limit=limit,
                name=name,
                namespace=namespace,
                all_namespaces=all_namespaces,
            )
        )

    def watch(
        self,
        kind: str = "workloads",
        name: str | None = None,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> Iterator[Change]:
        """The present objects of a kind, then every change, by revision, until the iteration ends.

        After a lost connection it continues after the last revision that it returned, and misses no
        object and no deletion. Writes to one object that follow each other fast may come as one
        change.
        """
        return self._thread.iterate(
            lambda: self._inner.watch(
                kind, name, namespace=namespace, all_namespaces=all_namespaces
            )
        )

    def apply(
        self,
        manifests: Manifests,
        *,
        expected: Sequence[int | None] = (),
        namespace: str | None = None,
    ) -> Sequence[Applied]:
        """Creates or changes objects. For a Workload or Job, a new workload is submitted, after all
        other objects.

        ``expected``: for each manifest the revision that its object must still have, compared in
        the step that writes it; 0: it must not exist; None: any, and for workloads. Returns an
        outcome for each object: created, changed or unchanged. Raises BadInput with all problems of
        the manifests, and Refused, also if an object has not the expected revision.
        """
        return self._thread.run(
            lambda: self._inner.apply(manifests, expected=expected, namespace=namespace)
        )

    def delete(self, kind: str, name: str, *, namespace: str | None = None) -> DeleteReply:
        """Deletes an object. The outcome is ``deleted``, or ``deferred`` while its job stops, or
        while other objects, which ``error`` names, still need it. Raises NotFound and Refused."""
        return self._thread.run(lambda: self._inner.delete(kind, name, namespace=namespace))

    def simulate(
        self,
        manifests: Manifests = (),
        *,
        deletes: Iterable[str] = (),
        changes: Iterable[Mapping[str, Any]] = (),
        limit: int = 0,
        namespace: str | None = None,
    ) -> SimulateReply:
        """What would start, wait or be evicted if the manifests were applied now, the workloads
        changed, and then the objects deleted. Nothing is changed.

        ``deletes``: objects as ``kind/name``. ``changes``: of existing workloads, such as
        ``{"workload": "train", "priority": 100}`` or ``{"workload": "train", "queue": "other"}``;
        with a queue the workload is submitted again there. ``limit``: the most rows of each list;
        0: all. Raises BadInput with the problems of the manifests.
        """
        return self._thread.run(
            lambda: self._inner.simulate(
                manifests, deletes=deletes, changes=changes, limit=limit, namespace=namespace
            )
        )

    def machines(self, *, lacking: int = 100) -> MachinesReply:
        """What runs on each machine, by the name of its runner, and whether its runner is alive;
        and the first ``lacking`` workloads that hold quota and that no machine has room for, with
        what they miss. `list` of the kind ``runners`` has what each machine offers."""
        return self._thread.run(lambda: self._inner.machines(lacking=lacking))

    def answering_providers(self, classes: Sequence[str]) -> frozenset[str]:
        """The provisioning classes, of these, for which a provider answers within a second. Only
        logins that may read all namespaces may ask. Raises Unavailable if the provisioning check,
        which asks the providers, does not answer."""
        return self._thread.run(lambda: self._inner.answering_providers(classes))

    def cordon(self, runner: str) -> bool:
        """Gives the machine of a runner no new jobs; those that run stay. Returns False if it was
        cordoned already. Raises NotFound and Refused."""
        return self._thread.run(lambda: self._inner.cordon(runner))

    def uncordon(self, runner: str) -> bool:
        """Gives the machine of a runner new jobs again. Returns False if it was not cordoned.
        Raises NotFound and Refused."""
        return self._thread.run(lambda: self._inner.uncordon(runner))

    def drain(self, runner: str, *, deadline: datetime | None = None, reason: str = "") -> bool:
        """Gives the machine of a runner no new jobs, and evicts those that still run there at
        ``deadline``; None: they may end by themselves. Returns False if it is drained in the same
        way already. Raises NotFound, Refused, and BadInput."""
        return self._thread.run(lambda: self._inner.drain(runner, deadline=deadline, reason=reason))

    def undrain(self, runner: str) -> bool:
        """Ends the drain of a machine. Returns False if it was not drained. Raises NotFound and
        Refused."""
        return self._thread.run(lambda: self._inner.undrain(runner))

    def pending(
        self,
        queue: str | None = None,
        *,
        cluster_queue: str = "",
        limit: int | None = None,
        skip: int = 0,
        states: Sequence[str] = (),
        reasons: Sequence[str] = (),
        counts: bool = False,
        namespace: str | None = None,
        all_namespaces: bool = False,
        at: int | datetime | None = None,
    ) -> PendingReply:
        """The pending workloads in the order of their queues. ``queue``: a LocalQueue of the
        namespace, or a ClusterQueue; ``cluster_queue``: only a ClusterQueue. ``limit``: the most
        rows; None: all. ``skip``: leaves out the first so many.

        ``states``: of ``Pending``, ``QuotaReserved`` (waits for checks) and ``Held``; empty:
        Pending. ``reasons``: only workloads with one of these reasons; empty: all. ``counts``: the
        reply also says how many there are of each state and reason, whatever was chosen. ``at``:
        those of that moment of the past, as `moment` takes it, at most 1,000, with the reasons that
        were stored then; goes without ``states``, ``reasons`` and ``counts``.
        """
        return self._thread.run(
            lambda: self._inner.pending(
                queue,
                cluster_queue=cluster_queue,
                limit=limit,
                skip=skip,
                states=states,
                reasons=reasons,
                counts=counts,
                namespace=namespace,
                all_namespaces=all_namespaces,
                at=at,
            )
        )

    def queue(
        self,
        queue: str | None = None,
        *,
        mine: bool = False,
        limit: int = 50,
        brief: bool = False,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> QueueOverview:
        """One look at the queues of the namespace, or at one queue: their use, what holds quota,
        and what waits in the order in which it is tried; an array is one row.

        ``queue``: a LocalQueue of the namespace, or a ClusterQueue. ``mine``: only workloads that
        the user of the connection submitted. ``limit``: the most rows of what runs, and of what
        waits, up to 200. ``brief``: only these rows, without the use of the queues and expected
        starts, which costs less where there are many queues.
        """
        return self._thread.run(
            lambda: self._inner.queue(
                queue,
                mine=mine,
                limit=limit,
                brief=brief,
                namespace=namespace,
                all_namespaces=all_namespaces,
            )
        )

    def forecast(self, workloads: Sequence[str], *, namespace: str | None = None) -> ForecastReply:
        """When waiting workloads are expected to start, at most 1,000 at once: ``starts`` has each
        workload that waits. If ``starting`` is set, some of them have no forecast yet: ask again
        after some seconds. Raises NoResponder if the system has no forecast service."""
        return self._thread.run(lambda: self._inner.forecast(workloads, namespace=namespace))

    def moment(self, at: int | datetime, *, namespace: str | None = None) -> Moment:
        """A moment of the past: its sequence on the log, its time, and its revision of the bucket.
        ``at``: the sequence of a fact, after which it is, or a time with a zone. Raises
        RequestFailed with the first moment that is known for an earlier one."""
        return self._thread.run(lambda: self._inner.moment(at, namespace=namespace))

    def queues(
        self,
        cluster_queue: str = "",
        *,
        cohort: str = "",
        local_queues: bool = True,
        namespace: str | None = None,
        at: int | datetime | None = None,
    ) -> QueuesReply:
        """Counters, usage and activity of the queues; with ``cohort``, of every queue in its tree,
        and the sums of its cohorts; with ``namespace``, of its LocalQueues. ``local_queues`` False:
        only of ClusterQueues, which costs less where many workloads wait. ``at``: as they were at
        that moment of the past, as `moment` takes it."""
        return self._thread.run(
            lambda: self._inner.queues(
                cluster_queue, cohort=cohort, local_queues=local_queues, namespace=namespace, at=at
            )
        )

    def last_day(
        self,
        resource: str,
        cluster_queues: Sequence[str] = (),
        *,
        cohorts: Sequence[str] = (),
        namespace: str | None = None,
    ) -> LastDay:
        """The last 24 hours of ClusterQueues and cohorts in half hours, together at most 500: how
        many workloads waited, and how much of ``resource`` was held, as the scheduler that answers
        has counted since its start. Names that do not exist are left out. ``namespace``: asks as a
        user of this namespace, which may ask about ClusterQueues."""
        return self._thread.run(
            lambda: self._inner.last_day(
                resource, cluster_queues, cohorts=cohorts, namespace=namespace
            )
        )

    def quota_changes(self) -> Iterator[frozenset[str]]:
        """The names of domains (cohort trees, and ClusterQueues without a cohort) in which quota or
        queues just changed, also by workloads of other namespaces: at most four times a second for
        each domain. What changed while the connection was lost does not come later, so ask for the
        numbers first, and again after each item."""
        return self._thread.iterate(self._inner.quota_changes)

    def history(
        self,
        *,
        user: str | None = None,
        queue: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        states: str | Sequence[str] = (),
        sort: str = "ended",
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> History:
        """The workloads of which runs ended in a time, each with its runs and evictions, as far
        back as the log reaches.

        ``since``, ``until``: from the first time on and before the second, by default in the last
        day. ``user``: submitted by this user. ``queue``: a LocalQueue or ClusterQueue. ``states``:
        succeeded, failed, evicted. ``sort``: ended, submitted, name, user and queue, the first one
        first; waited, ran, cpu, gpu and evictions, the greatest first.
        """
        return self._thread.run(
            lambda: self._inner.history(
                user=user,
                queue=queue,
                since=since,
                until=until,
                states=states,
                sort=sort,
                namespace=namespace,
                all_namespaces=all_namespaces,
            )
        )

    def replay(self, sequence: int, *, namespace: str | None = None) -> ReplayReply:
        """The scheduler's decision at a sequence of the log, decided again from the inputs that it
        had: whether it is the same, and where it differs.

        ``impossible`` has the reason if there is no such decision, or its inputs are gone.
        ``namespace``: of the decision, for a user that may ask only about some namespaces. Takes
        seconds.
        """
        return self._thread.run(lambda: self._inner.replay(sequence, namespace=namespace))

    def usage(
        self,
        by: str | Sequence[str] = (),
        *,
        since: date | None = None,
        until: date | None = None,
        unit: str | None = None,
        prices: Mapping[str, Any] | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> UsageReply:
        """How much quota workloads held, for how long, and what came of them: a sum for each value
        of the words ``by``, or one of all.

        ``by``: cluster-queue, namespace, queue, user, flavor, day, month, and labels such as
        ``label:team``.
        ``since``, ``until``: the first and the last day, in UTC; by default the first of the month
        of the last day, and today. ``unit``: such as ``gpu-hours``; each sum has what it used and
        its share, and with ``all_namespaces`` what its queues are entitled to. ``prices``: the
        content of a price list (docs/usage.md); each sum has its cost.
        """
        return self._thread.run(
            lambda: self._inner.usage(
                by,
                since=since,
                until=until,
                unit=unit,
                prices=prices,
                namespace=namespace,
                all_namespaces=all_namespaces,
            )
        )

    def check_usage(self) -> UsageCheck:
        """Compares the sums of used quota with the single runs on the log, as far as the log
        reaches, and corrects those that differ. Only logins that may read all namespaces may ask.
        """
        return self._thread.run(self._inner.check_usage)

    def events(
        self,
        name: str | None = None,
        *,
        follow: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int = 0,
        types: str | Sequence[str] = (),
        queue: str | None = None,
        at: int | datetime | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> Iterator[LogEntry]:
        """The facts of the log about a workload and its variants, or about all workloads, oldest
        first; with ``follow`` also new ones, as they come.

        ``since``, ``until``: only facts from this time on, and before this time; ``after``: only
        facts after this sequence of the log; ``types``: only facts of these types, such as
        ``admitted`` or ``check_reported``; ``queue``: only facts about workloads of this LocalQueue
        or ClusterQueue, of deleted workloads only those that name it. ``at``: only facts up to this
        sequence or time. Each fact comes once, also after a lost connection; a later call with
        ``after`` misses none.
        """
        return self._thread.iterate(
            lambda: self._inner.events(
                name,
                follow=follow,
                since=since,
                until=until,
                after=after,
                types=types,
                queue=queue,
                at=at,
                namespace=namespace,
                all_namespaces=all_namespaces,
            )
        )

    def last_answers(self, controllers: Sequence[str]) -> dict[str, datetime]:
        """When each of these check controllers last reported a verdict on any workload; one of
        which the log has none is left out. Raises NotAllowed for logins of single namespaces."""
        return self._thread.run(lambda: self._inner.last_answers(controllers))

    def newest_events(
        self,
        name: str | None = None,
        *,
        limit: int = 100,
        before: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        types: str | Sequence[str] = (),
        queue: str | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> EventsReply:
        """The newest facts of the log in ``entries``, the newest first, however long the log is.

        ``limit``: at most this many, up to 500. ``before``: only facts before this sequence of the
        log; with the ``before`` of an answer the next call goes on where it ends, until an answer
        is ``complete``. An answer that is not may have fewer facts than ``limit``, or none, where
        few facts match. The other arguments are as those of `events`.
        """
        return self._thread.run(
            lambda: self._inner.newest_events(
                name,
                limit=limit,
                before=before,
                since=since,
                until=until,
                types=types,
                queue=queue,
                namespace=namespace,
                all_namespaces=all_namespaces,
            )
        )

    def newest_sequences(
        self, *, after: int = 0, namespace: str | None = None, all_namespaces: bool = False
    ) -> Iterator[int]:
        """The sequence of the newest fact of the log: the first item says which it is now (0: there
        is none), each further one that there are newer facts. Programs that ask for something else
        after a change take this in place of `events`: each step costs one request, however many
        facts there are, and nothing is received between two steps.

        ``after``: facts up to this sequence are not looked for, as if it were the newest.
        """
        return self._thread.iterate(
            lambda: self._inner.newest_sequences(
                after=after, namespace=namespace, all_namespaces=all_namespaces
            )
        )

    @overload
    def hold(
        self, queue: str | None = None, *, name: str | None = None, namespace: str | None = None
    ) -> Kept: ...

    @overload
    def hold(
        self,
        queue: str | None = None,
        *,
        name: str | None = None,
        namespace: str | None = None,
        **options: Unpack[HoldOptions],
    ) -> SyncHold: ...

    def hold(
        self,
        queue: str | None = None,
        *,
        name: str | None = None,
        namespace: str | None = None,
        **options: Unpack[HoldOptions],
    ) -> Kept | SyncHold:
        """``hold(name)`` keeps a waiting workload out of its queue until `release`.

        With an amount of ``cpu``, ``memory`` or ``gpu`` it is `hold_quota`, and takes its
        arguments: ``async with client.hold(queue, gpu=1) as held``, with a `SyncClient` ``with``.
        """
        return hold_on(
            self._thread, lambda: self._inner.hold(queue, name=name, namespace=namespace, **options)
        )

    def hold_quota(
        self,
        queue: str | None = None,
        *,
        cpu: str | float | None = None,
        memory: str | int | None = None,
        gpu: str | int | None = None,
        name: str | None = None,
        priority: int | None = None,
        priority_class: str | None = None,
        labels: Mapping[str, str] | None = None,
        flavors: Sequence[str] = (),
        max_seconds: int | None = None,
        lease_seconds: int = 60,
        on_evicted: OnEvicted | None = None,
        timeout: float | None = None,
        anyway: bool = False,
        namespace: str | None = None,
    ) -> SyncHold:
        """Quota, and devices of this machine if a runner serves it, for this program while a block
        runs: ``async with client.hold_quota(…) as held``, with a `SyncClient` ``with``. The block
        begins once there is quota.

        ``held.devices`` has the devices, ``held.environ()`` the variables that show them. The lease
        is renewed all the time; if the program dies, the quota is free after ``lease_seconds``.
        ``on_evicted``: called once, with the reason, when the program must give the quota up, as
        ``held.evicted`` then says; it should leave the block soon. ``timeout``: the most seconds to
        wait for quota. The other arguments are those of `submit`.

        The block raises BadInput, NotFound, Refused and TimedOut before it begins.
        """
        return SyncHold(
            self._thread,
            lambda: self._inner.hold_quota(
                queue,
                cpu=cpu,
                memory=memory,
                gpu=gpu,
                name=name,
                priority=priority,
                priority_class=priority_class,
                labels=labels,
                flavors=flavors,
                max_seconds=max_seconds,
                lease_seconds=lease_seconds,
                on_evicted=on_evicted,
                timeout=timeout,
                anyway=anyway,
                namespace=namespace,
            ),
        )

    def health(self, *, thorough: bool = False) -> HealthReport:
        """What `admit doctor` finds, as rows, with the instances of services, consumers, leaders,
        streams and dead letters. It takes a second. ``thorough``: every stored value is read, too,
        and a message is written to each stream, which a full disk refuses. Raises NotAllowed for a
        role other than viewer and admin."""
        return self._thread.run(lambda: self._inner.health(thorough=thorough))

    def stop(self, name: str, *, namespace: str | None = None) -> SettledReply:
        """Stops a workload: it is evicted, and not admitted again until `activate`. The outcome is
        ``ignored`` if it is stopped already."""
        return self._thread.run(lambda: self._inner.stop(name, namespace=namespace))

    def activate(self, name: str, *, namespace: str | None = None) -> SettledReply:
        """Puts a stopped or rejected workload back into its queue."""
        return self._thread.run(lambda: self._inner.activate(name, namespace=namespace))

    def release(self, name: str, *, gate: str = "", namespace: str | None = None) -> SettledReply:
        """Puts a held or gated workload back into its queue. ``gate``: opens only this admission
        gate, also one that a service opens, such as that of an array."""
        return self._thread.run(lambda: self._inner.release(name, gate=gate, namespace=namespace))

    def set_priority(
        self, name: str, priority: int, *, namespace: str | None = None
    ) -> SettledReply:
        """Changes the priority of a workload."""
        return self._thread.run(
            lambda: self._inner.set_priority(name, priority, namespace=namespace)
        )

    def finish(
        self, name: str, *, succeeded: bool = True, message: str = "", namespace: str | None = None
    ) -> SettledReply:
        """Declares a workload finished; its quota is released at once."""
        return self._thread.run(
            lambda: self._inner.finish(
                name, succeeded=succeeded, message=message, namespace=namespace
            )
        )

    def approve(
        self,
        name: str,
        *,
        check: str | None = None,
        message: str = "",
        user: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Approves a workload: its approval check becomes Ready. ``check``: by default the pending
        approval check, or the only pending one. ``user``: who approves, on a server without users;
        by default ``$ADMIT_USER``, or the login."""
        return self._thread.run(
            lambda: self._inner.approve(
                name, check=check, message=message, user=user, namespace=namespace
            )
        )

    def deny(
        self,
        name: str,
        *,
        check: str | None = None,
        message: str = "",
        user: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Denies a workload: it is Rejected, and not admitted again until `activate`. The arguments
        are those of `approve`."""
        return self._thread.run(
            lambda: self._inner.deny(
                name, check=check, message=message, user=user, namespace=namespace
            )
        )
