"""What jobs may read of the runner's machine: folders that the runner allows, and the values of
ConfigMaps and Secrets, which are files of the runner.

```text
DIR/                             the runner's --env-files, closed to all other Unix users
  <namespace>/configmaps/<name>/<key>
  <namespace>/secrets/<name>/<key>
```
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final, Protocol

from admittance.api.fields.names import name_error
from admittance.job_rules.rules import CannotRun, JobRules

VALUE_MAX: Final = 1 << 20
"""The most bytes of a ConfigMap or Secret, as in Kubernetes."""

FOLDERS: Final[Mapping[str, str]] = {"ConfigMap": "configmaps", "Secret": "secrets"}
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}", re.ASCII)


class Inputs(Protocol):
    """What the jobs of one namespace may read of the machine."""

    def host_path(self, path: str, kind: str) -> str:
        """The path without symbolic links. ``kind``: the ``type`` of a ``hostPath``. Raises
        CannotRun if jobs may not read it, or if it is not of that kind."""

    def keys(self, kind: str, name: str) -> Mapping[str, str] | None:
        """The path of the file of each key of a ConfigMap or Secret; None: there is none with that
        name. Raises CannotRun."""

    def size(self, path: str) -> int:
        """The bytes of the file of a key."""

    def missing(self, kind: str, name: str) -> str:
        """Why there is no ConfigMap or Secret with the name, as a sentence."""

    def value(self, path: str) -> str:
        """The text of a key, without a newline at its end. Raises CannotRun."""


class NoInputs:
    """A machine of which jobs may read nothing."""

    def host_path(self, path: str, kind: str) -> str:  # noqa: ARG002
        raise CannotRun(
            f"the runner allows no hostPath {path}: name its folder with --allow-host-path"
        )

    def keys(self, kind: str, name: str) -> Mapping[str, str] | None:  # noqa: ARG002
        return None

    def size(self, path: str) -> int:  # noqa: ARG002
        return 0

    def missing(self, kind: str, name: str) -> str:
        return (
            f"there is no {kind} {name}: the runner has no values of ConfigMaps and Secrets, name "
            "their folder with --env-files"
        )

    def value(self, path: str) -> str:
        raise CannotRun(f"the runner has no file {path}")


NO_INPUTS: Final = NoInputs()


class MachineInputs(NoInputs):
    """What the jobs of a namespace may read of this machine by the rules of the runner. ``exact``:
    whether only the allowed folders themselves may be mounted, and no folder below: a container
    that may write could put a link there, which the engine would follow as root."""

    def __init__(self, rules: JobRules, namespace: str, *, exact: bool) -> None:
        self._rules = rules
        self._namespace = namespace
        self._exact = exact
        # A job may name one Secret thousands of times.
        self._keys: dict[tuple[str, str], Mapping[str, str] | None] = {}
        self._sizes: dict[str, int] = {}

    def host_path(self, path: str, kind: str) -> str:
        allowed = self._rules.host_paths
        if not allowed:
            return super().host_path(path, kind)
        real = os.path.realpath(path)
        below = not self._exact and any(PurePath(real).is_relative_to(folder) for folder in allowed)
        if real not in allowed and not below:
            raise CannotRun(
                f"the runner does not allow the hostPath {path}: allowed are {', '.join(allowed)}"
            )
        checks = {
            "": os.path.exists,
            "Directory": os.path.isdir,
            "DirectoryOrCreate": os.path.isdir,
            "File": os.path.isfile,
            "FileOrCreate": os.path.isfile,
        }
        if kind not in checks:
            raise CannotRun(f"hostPath {path}: the runner mounts no {kind}")
        if not checks[kind](real):
            raise CannotRun(f"hostPath {path}: there is no such {_FOUND.get(kind, 'path')}")
        return real

    def keys(self, kind: str, name: str) -> Mapping[str, str] | None:
        if not self._rules.env_files:
            return None
        if (kind, name) not in self._keys:
            self._keys[kind, name] = self._read_keys(kind, name)
        return self._keys[kind, name]

    def size(self, path: str) -> int:
        return self._sizes.get(path, 0)

    def _read_keys(self, kind: str, name: str) -> Mapping[str, str] | None:
        # Each part of the path is checked: a namespace never reaches the files of another one.
        for part in (self._namespace, name):
            if wrong := name_error(part):
                raise CannotRun(f"{kind} {name!r}: {wrong}")
        folder = Path(self._rules.env_files, self._namespace, FOLDERS[kind], name)
        try:
            entries = sorted(entry for entry in folder.iterdir() if _KEY.fullmatch(entry.name))
            files = [entry for entry in entries if entry.is_file()]
            sizes = {str(file): file.stat().st_size for file in files}
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CannotRun(
                f"{kind} {name}: its folder cannot be read: {error.strerror}"
            ) from error
        if sum(sizes.values()) > VALUE_MAX:
            raise CannotRun(f"{kind} {name} has more than {VALUE_MAX:,} bytes")
        self._sizes.update(sizes)
        return {file.name: str(file) for file in files}

    def missing(self, kind: str, name: str) -> str:
        if not self._rules.env_files:
            return super().missing(kind, name)
        return f"there is no {kind} {name} of namespace {self._namespace}"

    def value(self, path: str) -> str:
        name = "/".join(PurePath(path).parts[-3:])
        try:
            with Path(path).open("rb") as file:
                data = file.read(VALUE_MAX + 1)
        except OSError as error:
            raise CannotRun(f"{name} cannot be read: {error.strerror}") from error
        if len(data) > VALUE_MAX:
            raise CannotRun(f"{name} has more than {VALUE_MAX} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise CannotRun(f"{name} is not UTF-8 text, so no variable can have it") from error
        if "\0" in text:
            raise CannotRun(f"{name} has a zero byte, so no variable can have it")
        return text.removesuffix("\n")


_FOUND: Final = {
    "Directory": "folder",
    "DirectoryOrCreate": "folder, and the runner makes none",
    "File": "file",
    "FileOrCreate": "file, and the runner makes none",
}
