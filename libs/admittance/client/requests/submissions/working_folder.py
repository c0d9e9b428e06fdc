"""The folder in which a submitted command starts.

docs/decisions/0069-a-job-starts-in-the-folder-of-its-submission.md has the reasons.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.client.arguments.spelling import Spelling
from admittance.client.errors import BadInput, Refused, RequestFailed
from admittance.client.requests.link import Link
from admittance.events import reasons
from admittance.events.requests.reading import FolderView, Runners, RunnersReply
from admittance.folders import OTHER_USER, MachineFacts, SubmittedFrom
from admittance.runtime.process.this_machine import machine_facts

ASK_SECONDS: Final = 2.0
NAMED_MAX: Final = 3
_OF_RUN: Final = re.compile(r"/runner/runs/[^/]+/scratch(/|$)")
RUNNERS_OWN: Final = "an empty one of the run"
NO_RUNNER: Final = "no runner has announced that it sees it"


class Place(NamedTuple):
    """Where a command starts. ``path``: the working folder; "": the scratch folder of the pod.
    ``folder``: the folder of this machine that it must be; None: the path alone counts.
    ``said``: one line about it, for people. ``warning``: what may not work as intended; "":
    nothing. ``is_here``: the job runs in a folder of the submitter, as the submitter's Unix user.
    """

    path: str = ""
    folder: SubmittedFrom | None = None
    said: str = ""
    warning: str = ""
    is_here: bool = False


class Asked(NamedTuple):
    """The folder that a submitter asks for. ``path``: an absolute path. ``folder``: what it is on
    this machine; None: it does not exist here. ``chosen``: it was named, and is not only the one
    from which the submitter submits. ``of_run``: it is the scratch folder of a job, which submits
    another one and is removed with its run. ``is_file``: on this machine it is no folder."""

    path: str
    folder: SubmittedFrom | None
    chosen: bool
    of_run: bool = False
    is_file: bool = False


def asked_folder(
    named: str | None, environ: Mapping[str, str], machine: MachineFacts, option: str
) -> Asked:
    """The folder that the submitter asks for. ``named`` None: the one of this process. Raises
    BadInput for a relative path that is no folder."""
    try:
        here = os.getcwd()  # noqa: PTH109 - as a text
    except OSError as error:
        if named is None or not os.path.isabs(named):  # noqa: PTH117
            raise BadInput(
                f"the folder of this process is gone ({error.strerror}); name one with {option}"
            ) from None
        here = "/"
    shown = environ.get("PWD", "")
    # The path with links, as the user knows it, if it leads here: it may be shared by that name.
    here = shown if shown.startswith("/") and _same(shown, here) else here
    if named == "" or (named is not None and "\0" in named):
        raise BadInput(f"{option} is no path")
    path = here if named is None else os.path.join(here, named)  # noqa: PTH118
    plain = os.path.normpath(path)
    path = plain if _same(plain, path) else str(Path(path).resolve())
    try:
        status = Path(path).stat()
    except OSError:
        status = None
    if status is None or not stat.S_ISDIR(status.st_mode):
        if named is not None and not os.path.isabs(named):  # noqa: PTH117
            raise BadInput(f"{option} {named}: there is no folder {path}")
        if status is None:
            return Asked(path, None, named is not None)
        seen = SubmittedFrom(path=path, machine=machine)
        return Asked(path, seen, named is not None, is_file=True)
    folder = SubmittedFrom(
        path=path,
        machine=machine,
        inode=status.st_ino,
        owner=status.st_uid,
        uid=os.geteuid(),
        umask=_umask(),
    )
    of_run = named is None and "ADMITTANCE_RUN" in environ and bool(_OF_RUN.search(here))
    return Asked(path, folder, named is not None, of_run)


async def views_of(
    link: Link, folder: SubmittedFrom, namespace: str, queue: str | None
) -> Sequence[FolderView]:
    """Whether each runner that may start the submitter's jobs of the LocalQueue (None: any of the
    namespace) sees the folder; empty if no runner has announced itself, or if there is no
    answer."""
    request = Runners(user=link.user, folder=folder, queue=queue or "")
    try:
        reply = await link.ask(
            "runners", request, RunnersReply, namespace=namespace, timeout=ASK_SECONDS
        )
    except RequestFailed:
        return ()
    return () if reply.error else reply.folder


async def named_place(
    link: Link, named: str, namespace: str, queue: str | None, *, image: bool, anyway: bool
) -> Place:
    """Where a command of a program starts that names a folder. Raises BadInput and Refused."""
    asked = asked_folder(named, os.environ, machine_facts(), "chdir")
    return await asked_place(link, asked, namespace, queue, image=image, anyway=anyway)


async def asked_place(
    link: Link, asked: Asked, namespace: str, queue: str | None, *, image: bool, anyway: bool
) -> Place:
    """See `place_of`."""
    views: Sequence[FolderView] = ()
    if asked.folder is not None and not image:
        views = await views_of(link, asked.folder, namespace, queue)
    return place_of(asked, views, link.spelled, image=image, anyway=anyway)


def place_of(
    asked: Asked, views: Sequence[FolderView], spelled: Spelling, *, image: bool, anyway: bool
) -> Place:
    """Where the command starts. ``views``: what runners see of the folder. ``image``: whether the
    command runs in a container's image. Pure. Raises Refused for a folder of this machine that was
    named and that no runner sees, unless ``anyway``, and BadInput for a file that a runner sees.
    """
    path, folder = asked.path, None if asked.is_file else asked.folder
    whys = {view.runner: view.why for view in views if view.why}
    others = {view.runner: OTHER_USER for view in views if view.other_user}
    is_here = bool(views) and not whys and not others
    if not asked.chosen:
        if image:
            return Place(said="that of the image")
        if asked.of_run:
            return Place(said=f"{RUNNERS_OWN}, not {path}: it is removed with the run that has it")
        if is_here:
            return Place(path, folder, path, is_here=True)
        why = _why({**others, **whys}) if views else NO_RUNNER
        return Place(said=f"{RUNNERS_OWN}, not {path}: {why}")
    if image:
        return Place(path, None, f"{path} of the image")
    if asked.is_file and len(whys) < len(views):
        raise BadInput(f"the working folder {path} is a file")
    if folder is None:
        said = f"{path} of the machine that runs the job; this machine has no such folder"
        return Place(path, None, said)
    if len(whys) < len(views):
        warning = f"the job fails if another runner starts it: {_why(whys)}" if whys else ""
        if not is_here:
            # The folder is entered with the rights of whatever Unix user the job has.
            folder = replace(folder, uid=None, umask=None)
        return Place(path, folder, path, warning, is_here)
    why = _why(whys) if views else NO_RUNNER
    if not anyway:
        raise Refused(
            f"not submitted: no runner sees the folder {path} of this machine: {why}; declare it "
            f"with --shared-folder of a runner; {spelled.anyway} starts the job in the folder of "
            "that name of whatever machine runs it",
            reason=reasons.FOLDER_NOT_SEEN,
        )
    return Place(path, None, f"{path} of the machine that runs the job")


def _why(unseen: Mapping[str, str]) -> str:
    """Why runners do not see a folder, the first of them by name."""
    named = [f"runner {runner}: {why}" for runner, why in islice(unseen.items(), NAMED_MAX)]
    if len(unseen) > NAMED_MAX:
        named.append(f"and {len(unseen) - NAMED_MAX} more")
    return "; ".join(named)


def _same(first: str, other: str) -> bool:
    try:
        return os.path.samefile(first, other)  # noqa: PTH121
    except OSError:
        return False


def _umask() -> int:
    """The umask of this process, which Linux tells by setting another one only."""
    for line in _status():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def _status() -> list[str]:
    try:
        return Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return []
