"""Which jobs a runner may start, by namespace, Unix user, image and working folder. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Final

import msgspec

from admittance.events.facts import Admitted
from admittance.events.system import RunnerStarts
from admittance.folders import FolderSight, MachineFacts
from admittance.job_rules.hooks import JobHooks
from admittance.job_rules.limits import JobLimits

EVERY: Final = "*"
NO_LOGIN: Final = ("", "nologin", "false")
"""Names of shells of Unix users that may not log in; "": not known."""
UNKNOWN: Final = "unknown"
"""The key of `JobRules.run_as` for jobs with a submitter that the server does not know."""


class CannotRun(ValueError):
    """The error that this runner cannot run the job of an admission; the message says why."""


class UnixUser(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Unix user as which jobs run. ``groups``: the ids of all groups of the user. ``home``: the
    path of the user's home folder. ``shell``: the path of its login shell; "": not known."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""
    home: str = "/"
    shell: str = ""

    def variables(self) -> dict[str, str]:
        """The variables by which programs know their Unix user."""
        names = {"USER": self.name, "LOGNAME": self.name} if self.name else {}
        # Programs start commands by this shell, which a user without a login has none of.
        shell = "/bin/sh" if PurePath(self.shell).name in NO_LOGIN else self.shell
        return {"HOME": self.home, "SHELL": shell, **names}


class UnixUsers(msgspec.Struct, frozen=True):
    """A range of ids of Unix users, ``low`` to ``high``: the jobs of each namespace run as one user
    of the range."""

    low: int
    high: int

    def of_namespace(self, namespace: str) -> UnixUser:
        """The Unix user of the range that belongs to the namespace: the same at every runner. The
        probability that some two of ``n`` namespaces share a Unix user is about n² / (2 · size of
        the range)."""
        digest = hashlib.blake2b(namespace.encode(), digest_size=8).digest()
        number = self.low + int.from_bytes(digest) % (self.high - self.low + 1)
        return UnixUser(uid=number, gid=number, groups=(number,))


class JobRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that limit which jobs a runner may start; an empty field limits nothing but where it
    says so.

    ``namespaces``: the namespaces of the jobs that the runner starts; it leaves all other jobs to
    other runners. ``run_as``: the Unix user of a job, by the keys ``user:NAME`` (the submitter),
    ``namespace:NAME``, ``unknown`` (no known submitter) and ``*``; the first of these keys that
    matches the job counts, and a job without a matching key is refused. A range gives each
    namespace a Unix user of its own. ``groups``: Unix groups; a submitter with the name of a member
    runs as that Unix user, unless a key ``user:NAME`` names another one. ``members``: the members
    of these groups by name, without root. ``file``: the path of a file with more rules of
    ``run_as`` and ``groups``, which count before those of options; "": no file. ``broken``: the
    keys of rules in this file that the runner cannot follow, with the reasons. ``images``: patterns
    of allowed images, such as ``registry.example.com/team/*``. ``folders``: paths, without symbolic
    links, of allowed working folders; the folders inside an allowed folder are allowed, too.
    ``host_paths``: paths, without symbolic links, that jobs may mount by ``hostPath``; empty: no
    path. ``env_files``: the folder with the values of ConfigMaps and Secrets; "": none.
    ``checkpoint_folder``: where workloads have folders that outlive their runs; "": in the data
    folder. ``shared_folders``: paths of folders that are the same on other machines.
    ``limits``: what the jobs may use. ``hooks``: what runs before and after each job.
    """

    namespaces: tuple[str, ...] = ()
    run_as: Mapping[str, UnixUser | UnixUsers] = msgspec.field(default_factory=dict)
    groups: tuple[str, ...] = ()
    members: Mapping[str, UnixUser] = msgspec.field(default_factory=dict)
    file: str = ""
    broken: Mapping[str, str] = msgspec.field(default_factory=dict)
    images: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    host_paths: tuple[str, ...] = ()
    env_files: str = ""
    checkpoint_folder: str = ""
    shared_folders: tuple[str, ...] = ()
    limits: JobLimits = JobLimits()
    hooks: JobHooks = JobHooks()

    @property
    def names_unix_users(self) -> bool:
        """Whether jobs run only as the Unix users that the rules name. False: every job runs as the
        Unix user of the runner."""
        return bool(self.run_as or self.groups or self.file)

    def unix_user(self, admitted: Admitted) -> UnixUser | None:
        """The Unix user of the job; None: the job runs as the runner's Unix user. Raises
        CannotRun."""
        if not self.names_unix_users:
            return None
        by = admitted.submitted_by
        first = f"user:{by}" if by else UNKNOWN
        if by in self.members and first not in self.run_as and first not in self.broken:
            return self.members[by]
        namespace = f"namespace:{admitted.namespace}"
        for key in (first, namespace, EVERY) if by else (namespace, first, EVERY):
            if key in self.broken:
                raise CannotRun(f"the runner cannot follow the rule {key}: {self.broken[key]}")
            if key in self.run_as:
                user = self.run_as[key]
                return (
                    user.of_namespace(admitted.namespace) if isinstance(user, UnixUsers) else user
                )
        who = f"the user {by}" if by else "an unknown submitter"
        raise CannotRun(
            f"the runner has no Unix user for jobs of {who} in namespace {admitted.namespace}: "
            f"name one with --run-as {first if by else namespace}=UNIX_USER"
        )

    def starts(self) -> RunnerStarts | None:
        """Which jobs the runner starts, by submitter, namespace, image, what they get and their
        number of pods; None: all jobs."""
        has = {"hostPath": self.host_paths, "values": self.env_files}
        lacks = tuple(name for name, given in has.items() if not given)
        if not self.names_unix_users:
            if not (self.namespaces or self.images or lacks or self.limits.pods):
                return None
            return RunnerStarts(
                namespaces=self.namespaces,
                images=self.images,
                every=True,
                lacks=lacks,
                pods=self.limits.pods,
            )
        broken = {key[5:] for key in self.broken if key.startswith("user:")}
        named = {"user": self.members.keys() - broken, "namespace": set[str]()}
        for key in self.run_as:
            kind, _, name = key.partition(":")
            if name:
                named[kind].add(name)
        return RunnerStarts(
            namespaces=self.namespaces,
            submitters=tuple(sorted(named["user"])),
            refused=tuple(sorted(broken)),
            all_of=tuple(sorted(named["namespace"])),
            unknown=UNKNOWN in self.run_as,
            every=EVERY in self.run_as,
            images=self.images,
            lacks=lacks,
            pods=self.limits.pods,
        )

    def sight(self, machine: MachineFacts, own: int) -> FolderSight:
        """Which folders of the machine local processes see. ``own``: the Unix user of the
        runner."""
        uids = {f"user:{name}": user.uid for name, user in self.members.items()}
        for key, user in self.run_as.items():
            if isinstance(user, UnixUser):
                uids[key] = user.uid
        for key in self.broken:
            uids.pop(key, None)
        return FolderSight(
            machine=machine,
            shared=self.shared_folders,
            allowed=self.folders,
            uids=uids if self.names_unix_users else {EVERY: own},
        )

    def check_image(self, image: str) -> None:
        """Raises CannotRun if the rules do not allow the image."""
        if self.images and not any(fnmatchcase(image, pattern) for pattern in self.images):
            raise CannotRun(
                f"the runner may not run the image {image}: allowed are {', '.join(self.images)}"
            )


NO_RULES: Final = JobRules()
