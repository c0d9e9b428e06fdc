"""Which of the announced runners see the folder in which a job is submitted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from admittance.api.runners import Runner
from admittance.control.user_requests.runner_rules import starts_job
from admittance.events.requests.reading import FolderView
from admittance.events.system import RunnerAnnouncement
from admittance.folders import SubmittedFrom, sees_folder, uid_of
from admittance.quota.catalog import Catalog

FRESH: Final = timedelta(minutes=25)
"""For so long an announcement, which runners repeat every ten minutes, counts as one of a runner
that lives."""
NO_PROCESSES: Final = "it starts no local processes, or is of an older version"


def runners_of_other_flavors(
    catalog: Catalog, runners: Iterable[Runner], namespace: str, queue: str
) -> frozenset[str]:
    """The names of the runners on which no job of the LocalQueue is placed, since they have the
    labels of none of its flavors; with ``queue`` "" no job of the namespace. Empty if any runner
    may start jobs of one of the flavors."""
    queues = [
        local.spec.cluster_queue
        for (space, name), local in catalog.local_queues.items()
        if space == namespace and queue in ("", name)
    ]
    lists = [catalog.lists.get(name) for name in queues]
    if any(each is None or not each.covered.issuperset(each.flavors) for each in lists):
        return frozenset()
    names = {name for each in lists if each is not None for name in each.flavors}
    known = [flavor for name in names if (flavor := catalog.flavors.get(name)) is not None]
    labels = [flavor.spec.node_labels.items() for flavor in known]
    return frozenset(
        runner.metadata.name
        for runner in runners
        if labels and not any(each <= runner.metadata.labels.items() for each in labels)
    )


class FolderSights:
    """The announcements of runners, for the folders that they see."""

    def __init__(self) -> None:
        self._known: dict[str, RunnerAnnouncement] = {}

    def note(self, runner: str, announcement: RunnerAnnouncement) -> None:
        """Records an announcement."""
        self._known[runner] = announcement

    def forget(self, runner: str) -> None:
        """Forgets a runner."""
        self._known.pop(runner, None)

    def views(
        self,
        user: str,
        namespace: str,
        folder: SubmittedFrom,
        now: datetime,
        left_out: Collection[str] = (),
    ) -> tuple[FolderView, ...]:
        """Whether each runner that starts jobs of the user in the namespace sees the folder.
        ``user`` "": the submitter is unknown. ``left_out``: names of runners that start no jobs of
        the queue."""
        views = []
        for runner, announced in self._living(now):
            starts = announced.starts
            if runner in left_out:
                continue
            if starts is not None and (
                (starts.namespaces and namespace not in starts.namespaces)
                or not starts_job(starts, user, namespace)
            ):
                continue
            sight = announced.folders
            if sight is None:
                views.append(FolderView(runner=runner, why=NO_PROCESSES))
                continue
            other = folder.uid is not None and uid_of(sight.uids, user, namespace) != folder.uid
            why = sees_folder(sight, folder.uid, folder)
            views.append(FolderView(runner=runner, why=why, other_user=other))
        return tuple(views)

    def _living(self, now: datetime) -> list[tuple[str, RunnerAnnouncement]]:
        """The newest announcement of each name, in the order of the names. A runner that starts
        again with another data folder keeps its name."""
        newest: dict[str, tuple[datetime, RunnerAnnouncement]] = {}
        for runner, announced in self._known.items():
            name, at = announced.consumer or runner, announced.at
            if at is None or now - at > FRESH:
                continue
            if name not in newest or newest[name][0] < at:
                newest[name] = at, announced
        return [(name, announced) for name, (_, announced) in sorted(newest.items())]
