"""What jobs and shims get of the runner's own process: variables, and the Unix user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from admittance.events.facts import Admitted
from admittance.job_rules.rules import JobRules, UnixUser
from admittance.runner.disk.checkpoints import Owner

INHERITED: Final = ("PATH", "HOME", "TMPDIR")
"""The names of the runner's environment variables that shims and docker clients get. A local
process gets HOME from its Unix user."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The runner's environment variables that shims and docker clients get."""
    return {
        name: value
        for name, value in environ.items()
        if name in INHERITED or name.startswith("DOCKER_")
    }


def other_user(rules: JobRules, admitted: Admitted) -> UnixUser | None:
    """The Unix user of the job if it differs from that of the runner. Raises CannotRun."""
    user = rules.unix_user(admitted)
    return None if user is None or user.uid == os.geteuid() else user


def owner_of(admitted: Admitted) -> Owner:
    return Owner(admitted.namespace, admitted.name, admitted.uid)
