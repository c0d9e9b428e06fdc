"""Which runners see the folder in which a job is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admittance.api.checks import MACHINES_CHECK, MACHINES_CONTROLLER
from admittance.api.meta import ObjectMeta
from admittance.api.reading.manifest import decode_object
from admittance.api.runners import Runner
from admittance.control.user_requests.folder_views import (
    FRESH,
    NO_PROCESSES,
    FolderSights,
    runners_of_other_flavors,
)
from admittance.events.requests.reading import FolderView
from admittance.events.system import RunnerAnnouncement, RunnerStarts
from admittance.folders import (
    OTHER_USER,
    BadFolder,
    FolderSight,
    MachineFacts,
    SubmittedFrom,
    is_proven,
    noted_folder,
    sees_folder,
    uid_of,
    written_folder,
)
from admittance.quota.catalog import Catalog

NOW = datetime(2026, 11, 27, tzinfo=UTC)
HERE = MachineFacts(host="a", boot_id="b1", mount_namespace="m1", machine_id="i1")
RESTARTED = MachineFacts(host="a", boot_id="b2", mount_namespace="m1", machine_id="i1")
CONTAINED = MachineFacts(host="a", boot_id="b1", mount_namespace="m2", machine_id="i1")
OTHER = MachineFacts(host="z", boot_id="b9", mount_namespace="m1", machine_id="i9")
FOLDER = SubmittedFrom(path="/home/ada/x", machine=HERE, inode=7, owner=1000, uid=1000, umask=0o27)
MOUNTS = "it sees other mounts of the machine, and no --shared-folder has it"
AWAY = "it is on another machine, and no --shared-folder has it"


@pytest.mark.parametrize(
    ("sight", "uid", "why", "proven"),
    [
        pytest.param(FolderSight(machine=HERE), 1000, "", True, id="the same machine"),
        pytest.param(FolderSight(machine=HERE), 1001, OTHER_USER, True, id="another Unix user"),
        pytest.param(FolderSight(machine=HERE), None, OTHER_USER, True, id="an unknown Unix user"),
        pytest.param(FolderSight(machine=RESTARTED), 1000, "", False, id="after a restart"),
        pytest.param(FolderSight(machine=CONTAINED), 1000, MOUNTS, False, id="other mounts"),
        pytest.param(FolderSight(machine=OTHER), 1000, AWAY, False, id="another machine"),
        pytest.param(
            FolderSight(machine=OTHER, shared=("/home",)), 1000, "", False, id="a shared folder"
        ),
        pytest.param(
            FolderSight(machine=OTHER, shared=("/home/ad", "/srv")), 1000, AWAY, False, id="beside"
        ),
        pytest.param(FolderSight(), 1000, AWAY, False, id="a machine that says nothing"),
        pytest.param(
            FolderSight(machine=HERE, allowed=("/srv",)),
            1000,
            "its --job-folder allows only /srv",
            True,
            id="a folder that is not allowed",
        ),
        pytest.param(
            FolderSight(machine=HERE, allowed=("/home/ada",)), 1000, "", True, id="an allowed one"
        ),
    ],
)
def test_a_runner_sees_a_folder_by_machine_mounts_user_and_declaration(
    sight: FolderSight, uid: int | None, why: str, proven: bool
) -> None:
    assert sees_folder(sight, uid, FOLDER) == why
    assert is_proven(sight, FOLDER) is proven


def test_a_folder_that_leads_out_of_a_shared_one_is_not_shared() -> None:
    folder = SubmittedFrom(path="/home/../etc", machine=HERE)
    assert sees_folder(FolderSight(machine=OTHER, shared=("/home",)), 0, folder) == AWAY


@pytest.mark.parametrize(
    ("user", "namespace", "uid"),
    [("ada", "x", 1), ("eve", "team", 2), ("eve", "x", 4), ("", "x", 3), ("", "team", 2)],
)
def test_the_unix_user_follows_the_keys_of_run_as(user: str, namespace: str, uid: int) -> None:
    uids = {"user:ada": 1, "namespace:team": 2, "unknown": 3, "*": 4}
    assert uid_of(uids, user, namespace) == uid
    assert uid_of({}, user, namespace) is None


def announcement(
    name: str,
    machine: MachineFacts | None = HERE,
    *,
    minutes: int = 0,
    starts: RunnerStarts | None = None,
    uid: int = 1000,
) -> RunnerAnnouncement:
    folders = None if machine is None else FolderSight(machine=machine, uids={"*": uid})
    at = NOW - timedelta(minutes=minutes)
    return RunnerAnnouncement(consumer=name, folders=folders, at=at, starts=starts)


@pytest.mark.parametrize(
    ("announced", "views"),
    [
        pytest.param([], [], id="none"),
        pytest.param([announcement("a")], [FolderView(runner="a")], id="one that sees it"),
        pytest.param(
            [announcement("a", uid=0)], [FolderView(runner="a", other_user=True)], id="another user"
        ),
        pytest.param(
            [announcement("b", OTHER), announcement("a")],
            [FolderView(runner="a"), FolderView(runner="b", why=AWAY)],
            id="two",
        ),
        pytest.param(
            [announcement("a", None)], [FolderView(runner="a", why=NO_PROCESSES)], id="containers"
        ),
        pytest.param(
            [announcement("a", OTHER, minutes=5), announcement("a")],
            [FolderView(runner="a")],
            id="one that started again with another folder",
        ),
        pytest.param([announcement("a", minutes=26)], [], id="one that is gone"),
        pytest.param([RunnerAnnouncement(root="/x")], [], id="one of an older version"),
        pytest.param(
            [announcement("a", OTHER, starts=RunnerStarts(namespaces=("other",), every=True))],
            [],
            id="one of another namespace",
        ),
        pytest.param(
            [announcement("a", starts=RunnerStarts(namespaces=("team",), every=True))],
            [FolderView(runner="a", why="")],
            id="one of this namespace",
        ),
        pytest.param(
            [announcement("a", OTHER, starts=RunnerStarts(submitters=("eve",)))],
            [],
            id="one of other submitters",
        ),
    ],
)
def test_the_runners_that_may_start_the_job_say_whether_they_see_its_folder(
    announced: Sequence[RunnerAnnouncement], views: Sequence[FolderView]
) -> None:
    sights = FolderSights()
    for number, one in enumerate(announced):
        sights.note(str(number), one)
    assert sights.views("ada", "team", FOLDER, NOW) == tuple(views)
    sights.forget("0")
    assert len(sights.views("ada", "team", FOLDER, NOW)) <= max(0, len(announced) - 1)
    assert timedelta(minutes=20) < FRESH
    assert sights.views("ada", "team", FOLDER, NOW, {one.consumer for one in announced}) == ()


@pytest.mark.parametrize(
    ("queue", "covered", "left_out"),
    [
        pytest.param("q-a", "ab", {"b", "none"}, id="a queue of one covered flavor"),
        pytest.param("q-ab", "ab", {"none"}, id="a queue of two covered flavors"),
        pytest.param("q-ab", "a", set(), id="a queue with a flavor that is not covered"),
        pytest.param("", "ab", {"none"}, id="all queues of the namespace"),
        pytest.param("missing", "ab", set(), id="a queue that does not exist"),
    ],
)
def test_a_runner_of_other_flavors_does_not_count(
    queue: str, covered: str, left_out: set[str]
) -> None:
    catalog = Catalog()
    applied: list[tuple[str, str, str, dict[str, Any]]] = [
        ("ResourceFlavor", "", name, {"nodeLabels": {"pool": name}}) for name in "ab"
    ]
    for names in ("a", "ab"):
        offered = [
            {"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}]} for name in names
        ]
        groups = [{"coveredResources": ["cpu"], "flavors": offered}]
        applied.append(("ClusterQueue", "", names, {"resourceGroups": groups}))
        applied.append(("LocalQueue", "team", f"q-{names}", {"clusterQueue": names}))
    check = {"controllerName": MACHINES_CONTROLLER, "onFlavors": list(covered)}
    applied.append(("AdmissionCheck", "", MACHINES_CHECK, check))
    for kind, namespace, name, spec in applied:
        meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
        given = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind}
        manifest = decode_object({**given, "metadata": meta, "spec": spec}).manifest
        catalog.apply(kind, namespace, name, manifest, 1)
    runners = [
        Runner(metadata=ObjectMeta(name=name, labels={"pool": name} if name in "ab" else {}))
        for name in ("a", "b", "none")
    ]
    assert runners_of_other_flavors(catalog, runners, "team", queue) == left_out


def test_a_folder_in_an_annotation_is_read_as_it_was_written() -> None:
    name = "admittance.dev/submitted-from"
    assert noted_folder({name: written_folder(FOLDER)}) == FOLDER
    assert noted_folder({}) is None
    for wrong in (
        "",
        "{}",
        '{"path": "a"}',
        '{"path": "/a", "umask": 512}',
        '{"path": "/\\u0000"}',
    ):
        with pytest.raises(BadFolder):
            noted_folder({name: wrong})
