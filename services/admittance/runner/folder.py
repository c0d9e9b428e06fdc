"""The runner's data folder: who it is, its lease, and one folder for each run.

```text
runner/
  id        the runner's name, for ever
  lock      held while a runner uses the folder
  lease     the moment of the last renewal of all claims, in seconds since boot
  notify    a named pipe: shims name the run that has news
  runs/<ns>.<name>.<revision>/
    spec.json  what to run; there before anything runs
    stop       that it is to stop, and why
    shim       the shim's pid; there before any process      alive   locked while the shim lives
    journal    what happened                                 out/    output, one file per pod
    said       everything is said; kept for its output only  scratch/
    earlier.json  in place of spec.json: it was stopped when its runner ended, and may run again
               here; kept for its output, to which that of the next run is added
```
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from admittance.events.names import token
from admittance.runner.journal import Journal
from admittance.runner.plan import Plan
from admittance.runtime.errors import SetupError

NAME_MAX: Final = 200
"""Bytes of a folder's name; file systems allow 255."""


class Spec(Plan, frozen=True, kw_only=True):
    """A plan and whose it is. ``mark`` is in the environment of every process of the run
    (ADMITTANCE_RUN). ``lease_stop`` and ``lease_kill``: seconds after the last renewal at which the
    shim ends its pods, softly and for good."""

    key: str
    mark: str
    namespace: str
    name: str
    uid: str
    revision: int
    notify: str
    lease: str
    lease_stop: float
    lease_kill: float


class StopNote(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run was told to stop; see `admittance.runner.decide.Run`."""

    evicted: int = 0
    leaving: bool = False
    claim_lost: bool = False


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a spec that tells whose it is."""

    key: str
    namespace: str
    name: str
    uid: str
    revision: int
    mark: str = ""


_identity = msgspec.json.Decoder(Identity)


def run_key(namespace: str, name: str, revision: int) -> str:
    """The name of a run and of its claim: ``<ns>.<name>.<revision>``."""
    return f"{token(namespace)}.{token(name)}.{revision}"


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    part.write_bytes(data)
    part.replace(path)


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self.path = path
        self.identity = identity
        self.journal = Journal()

    def write(self, spec: Spec) -> None:
        """From here on the run exists. Nothing may run before."""
        if not (self.path / "spec.json").exists():
            self._clear()  # an earlier run may have been given back, also halfway
        (self.path / "out").mkdir(parents=True, exist_ok=True)
        _replace(self.path / "spec.json", msgspec.json.encode(spec))

    def note_stop(self, note: StopNote) -> None:
        _replace(self.path / "stop", msgspec.json.encode(note))

    def stop_note(self) -> StopNote | None:
        try:
            return msgspec.json.decode((self.path / "stop").read_bytes(), type=StopNote)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def read_journal(self) -> bool:
        """Reads on in the journal; True when there was something new."""
        try:
            with (self.path / "journal").open("rb") as file:
                file.seek(self.journal.offset)
                return self.journal.feed(file.read())
        except FileNotFoundError:
            return False

    def shim_pid(self) -> int:
        """0: no shim has begun yet."""
        try:
            return int((self.path / "shim").read_text().split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            return 0

    def shim_lives(self) -> bool:
        """Whether the shim still holds its lock, however many have had its pid since."""
        try:
            file = os.open(self.path / "alive", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def give_back(self) -> None:
        """The run is over and may begin anew, here or elsewhere. Its output stays."""
        # The spec first: from here on nothing of the run counts, whenever we are interrupted.
        (self.path / "spec.json").replace(self.path / "earlier.json")
        self._clear()

    def _clear(self) -> None:
        for name in ("journal", "stop", "shim", "alive", "said"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "scratch", ignore_errors=True)

    def closed_at(self) -> float:
        """When it was closed or given back, in seconds since 1970. Raises FileNotFoundError."""
        try:
            return (self.path / "said").stat().st_mtime
        except FileNotFoundError:
            return (self.path / "earlier.json").stat().st_mtime

    def close(self) -> None:
        """Everything is said. Scratch folders go, the output stays for a while."""
        (self.path / "said").touch()
        shutil.rmtree(self.path / "scratch", ignore_errors=True)

    def mark_said(self) -> None:
        """Everything about it is said, by another runner than its own."""
        with contextlib.suppress(OSError):
            (self.path / "said").touch()

    def is_closed(self) -> bool:
        return (self.path / "said").exists()

    def remove(self) -> None:
        # The spec first: a folder without one is no run, whenever we are interrupted.
        for name in ("spec.json", "earlier.json"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


class ClosedRuns(dict[str, RunFolder]):
    """Runs of which everything is said, by key; also found by their workload."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[tuple[str, str], set[str]] = {}

    def __setitem__(self, key: str, run: RunFolder) -> None:
        super().__setitem__(key, run)
        self._of.setdefault((run.identity.namespace, run.identity.name), set()).add(key)

    def drop(self, key: str) -> RunFolder | None:
        """Takes a run out, and answers it if it was there."""
        run = self.pop(key, None)
        if run is not None:
            which = run.identity.namespace, run.identity.name
            keys = self._of.get(which, set())
            keys.discard(key)
            if not keys:
                self._of.pop(which, None)
        return run

    def of(self, namespace: str, name: str) -> list[RunFolder]:
        """The closed runs of a workload."""
        return [self[key] for key in self._of.get((namespace, name), ())]


def _path_of(root: Path, key: str) -> Path:
    name = key
    if len(name) > NAME_MAX:
        name = hashlib.sha256(name.encode()).hexdigest()
    return root / "runs" / name


def open_run(root: Path, key: str) -> RunFolder | None:
    """The run of that key in the data folder at root, whichever runner has it; None: there is no
    such run. Raises OSError where it cannot be read."""
    path = _path_of(root, key)
    try:
        return RunFolder(path, _identity.decode((path / "spec.json").read_bytes()))
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


class DataFolder:
    """Use `open`; `close` at the end."""

    def __init__(self, root: Path, runner: str, lock: int) -> None:
        self.root = root
        self.runner = runner
        self._lock = lock

    @classmethod
    def open(cls, data_dir: Path) -> DataFolder:
        """Raises SetupError when another runner uses the folder, or it cannot be written."""
        root = (data_dir / "runner").absolute()
        try:
            (root / "runs").mkdir(parents=True, exist_ok=True)
            lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise SetupError(
                f"the runner's folder {root} cannot be used ({error.strerror}): "
                "give another one with --data-dir"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise SetupError(
                f"another runner uses {root}: stop it, or give another folder with --data-dir"
            ) from None
        name = root / "id"
        if not name.exists() or not name.read_text().strip():
            _replace(name, secrets.token_hex(6).encode())
        secret = root / "secret"
        if not secret.exists() or not secret.read_text().strip():
            _replace(secret, secrets.token_hex(32).encode())
            secret.chmod(0o600)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(root / "notify", 0o600)
        return cls(root, name.read_text().strip(), lock)

    def close(self) -> None:
        os.close(self._lock)

    @property
    def secret(self) -> bytes:
        """Keys our message ids: one that could be guessed would let anybody silence us. The same
        after a crash, so that what is said again has the same id."""
        return (self.root / "secret").read_text().strip().encode()

    @property
    def lease(self) -> Path:
        return self.root / "lease"

    @property
    def notify(self) -> Path:
        return self.root / "notify"

    def touch_lease(self, boot_seconds: float) -> None:
        """All claims were renewed; the renewal began at boot_seconds."""
        _replace(self.lease, repr(boot_seconds).encode())

    def folder_of(self, identity: Identity) -> RunFolder:
        return RunFolder(_path_of(self.root, identity.key), identity)

    def runs(self) -> Iterator[RunFolder]:
        """Every run, open or closed; what is no run is removed."""
        for path in sorted((self.root / "runs").iterdir()):
            try:
                identity = _identity.decode((path / "spec.json").read_bytes())
            except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
                if not (path / "earlier.json").exists():
                    shutil.rmtree(path, ignore_errors=True)
                continue
            yield RunFolder(path, identity)

    def given_back(self) -> Iterator[RunFolder]:
        """Runs that were given back and are not begun again here."""
        for path in sorted((self.root / "runs").iterdir()):
            if (path / "spec.json").exists():
                continue
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
                identity = _identity.decode((path / "earlier.json").read_bytes())
                yield RunFolder(path, identity)
