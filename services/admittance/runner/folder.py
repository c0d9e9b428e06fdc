"""The runner's data folder: its id, its lease, and one folder with a journal for each run.

```text
runner/
  id        the runner's name; it never changes
  lock      held while a runner uses the folder
  lease     time of the last renewal of all claims, in seconds since boot
  notify    a named pipe: a shim writes the key of a run when its journal has grown
  runs/<ns>.<name>.<revision>/
    spec.json  what to run; written before any process starts
    stop       the run is to stop, and why
    shim       the shim's pid; written before any process      alive   locked while the shim lives
    journal    what happened; format: `admittance.runner.shim` out/    output, one file per pod
    said       all facts are published; kept for its output    scratch/
    earlier.json  in place of spec.json: the run was stopped when its runner shut down, and may run
               again here; kept for its output, to which the next run appends
```
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from admittance.events.names import token
from admittance.events.subjects import CLAIMS
from admittance.runner.plan import Plan
from admittance.runtime import chance
from admittance.runtime.bus.bucket import put_message, read_all
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError


class RunOutcome(NamedTuple):
    """``kind``: succeeded, failed, stopped or lost."""

    kind: str
    message: str


class _Line(msgspec.Struct, frozen=True):
    e: str
    p: str = ""
    pid: int = 0
    t: int = 0
    code: int = 0
    kind: str = ""
    message: str = ""


_decoder = msgspec.json.Decoder(_Line)


class Journal:
    """The events that a shim has written about its run so far; `feed` takes the bytes from
    ``offset`` on."""

    def __init__(self) -> None:
        self.offset = 0
        self.up = False
        self.ready = False
        self.outcome: RunOutcome | None = None
        self.processes: dict[int, int] = {}
        """Every process group ever started: pid to start time in ticks."""
        self.ended: dict[str, int] = {}
        """Pods that have ended, with their exit codes."""
        self.exit_code = 0
        """Of the first container that failed; 0: no failure, or the journal of an older shim."""

    @property
    def is_result(self) -> bool:
        """True when the run ended by itself: its result counts, and it does not run again."""
        return self.outcome is not None and self.outcome.kind in ("succeeded", "failed")

    def feed(self, data: bytes) -> bool:
        """Reads new lines; True when there was one. A last line without its newline is left for
        later: it may be half written."""
        whole = data.rfind(b"\n") + 1
        self.offset += whole
        for text in data[:whole].splitlines():
            try:
                line = _decoder.decode(text)
            except msgspec.MsgspecError:
                continue  # half a line, written before a power failure
            match line.e:
                case "start":
                    self.processes[line.pid] = line.t
                case "end":
                    self.ended[line.p] = line.code
                case "up":
                    self.up = True
                case "ready":
                    self.ready = True
                case "outcome":
                    self.outcome = RunOutcome(line.kind, line.message)
                    self.exit_code = line.code
        return whole > 0


NAME_MAX: Final = 200
"""Bytes of a folder's name; file systems allow 255."""


class Spec(Plan, frozen=True, kw_only=True):
    """A plan with the identity of its run. ``mark`` is in the environment of every process of the
    run (ADMITTANCE_RUN). ``lease_stop`` and ``lease_kill``: seconds after the last renewal at which
    the shim sends SIGTERM and SIGKILL to its pods."""

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
    """The part of a spec that identifies the run."""

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
    part = path.with_name(f"{path.name}.{chance.token_hex(4)}")
    part.write_bytes(data)
    part.replace(path)


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self.path = path
        self.identity = identity
        self.journal = Journal()

    def write(self, spec: Spec) -> None:
        """Creates the run. No process may start before this returns."""
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
        """Reads new lines of the journal; True when there was one."""
        try:
            with (self.path / "journal").open("rb") as file:
                file.seek(self.journal.offset)
                return self.journal.feed(file.read())
        except FileNotFoundError:
            return False

    def shim_pid(self) -> int:
        """The pid of the shim; 0: no shim has started yet."""
        try:
            return int((self.path / "shim").read_text().split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            return 0

    def shim_lives(self) -> bool:
        """Whether the shim still holds its lock; its pid may belong to another process by now."""
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
        """Ends the run so that it may start again, here or elsewhere. Its output stays."""
        # The spec first: from here on the run does not count, even if we are interrupted.
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
        """Marks all facts as published and removes scratch folders; the output stays a while."""
        (self.path / "said").touch()
        shutil.rmtree(self.path / "scratch", ignore_errors=True)

    def mark_published(self) -> None:
        """Marks all facts as published, by another runner."""
        with contextlib.suppress(OSError):
            (self.path / "said").touch()

    def is_closed(self) -> bool:
        return (self.path / "said").exists()

    def remove(self) -> None:
        # The spec first: a folder without it is not a run, even if we are interrupted.
        for name in ("spec.json", "earlier.json"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


class ClosedRuns(dict[str, RunFolder]):
    """Closed runs by key; also found by their workload."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[tuple[str, str], set[str]] = {}

    def __setitem__(self, key: str, run: RunFolder) -> None:
        super().__setitem__(key, run)
        self._of.setdefault((run.identity.namespace, run.identity.name), set()).add(key)

    def drop(self, key: str) -> RunFolder | None:
        """Removes and returns a run; None: not found."""
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
    """The run of that key in the data folder at ``root``, also of another runner; None: not found.
    Raises OSError when it cannot be read."""
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
            _replace(name, chance.token_hex(6).encode())
        secret = root / "secret"
        if not secret.exists() or not secret.read_text().strip():
            _replace(secret, chance.token_hex(32).encode())
            secret.chmod(0o600)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(root / "notify", 0o600)
        return cls(root, name.read_text().strip(), lock)

    def close(self) -> None:
        os.close(self._lock)

    @property
    def secret(self) -> bytes:
        """Keys our message ids: with a guessed id, another program could suppress our facts. It is
        the same after a crash, so that a repeated fact has the same id."""
        return (self.root / "secret").read_text().strip().encode()

    @property
    def lease(self) -> Path:
        return self.root / "lease"

    @property
    def notify(self) -> Path:
        return self.root / "notify"

    def touch_lease(self, boot_seconds: float) -> None:
        """Notes a renewal of all claims that began at ``boot_seconds``."""
        _replace(self.lease, repr(boot_seconds).encode())

    def folder_of(self, identity: Identity) -> RunFolder:
        return RunFolder(_path_of(self.root, identity.key), identity)

    def runs(self) -> Iterator[RunFolder]:
        """Every run, open or closed; removes folders that are not runs."""
        for path in sorted((self.root / "runs").iterdir()):
            try:
                identity = _identity.decode((path / "spec.json").read_bytes())
            except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
                if not (path / "earlier.json").exists():
                    shutil.rmtree(path, ignore_errors=True)
                continue
            yield RunFolder(path, identity)

    def given_back(self) -> Iterator[RunFolder]:
        """Runs that were given back and have not started again here."""
        for path in sorted((self.root / "runs").iterdir()):
            if (path / "spec.json").exists():
                continue
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
                identity = _identity.decode((path / "earlier.json").read_bytes())
                yield RunFolder(path, identity)


FOLDER_PREFIX: Final = "_runner"
KNOWN_SECONDS: Final = 2 * 86_400.0
"""How long an announced folder is remembered."""
SHIM_END_SECONDS: Final = 60.0
"""Longest wait for a shim that has outlived its claim: twice the usual grace period."""
LOOK_SECONDS: Final = 0.2

log = structlog.get_logger(service="runner")


class _AnnouncedFolder(msgspec.Struct, frozen=True):
    root: str = ""


class OtherRun(NamedTuple):
    """A run in the folder of another runner. ``secret``: of that folder; None: not readable."""

    folder: RunFolder
    secret: bytes | None


class OtherFolders:
    """Folders that other runners have announced."""

    def __init__(self, bus: Bus, folder: DataFolder) -> None:
        self._bus = bus
        self._folder = folder

    async def announce(self) -> None:
        """Writes the path of our folder for other runners. Raises Unavailable."""
        value = msgspec.json.encode(_AnnouncedFolder(str(self._folder.root)))
        key = f"{FOLDER_PREFIX}.{self._folder.runner}"
        await self._bus.publish(
            put_message(key, value, expected=None, ttl_seconds=KNOWN_SECONDS, bucket=CLAIMS)
        )

    async def find(self, key: str) -> OtherRun | None:
        """The run of that key in a readable folder of another runner; None: not found.

        Raises Unavailable.
        """
        roots = {}
        for entry in await read_all(self._bus, f"{FOLDER_PREFIX}.>", bucket=CLAIMS):
            runner = entry.key.removeprefix(f"{FOLDER_PREFIX}.")
            if runner != self._folder.runner and entry.value is not None:
                with suppress(msgspec.MsgspecError):
                    roots[runner] = read_root(entry.value)
        return await asyncio.to_thread(find_run, roots, key)


def read_root(value: bytes) -> str:
    """The path of a runner's folder as stored in the bucket of claims. Raises MsgspecError."""
    return msgspec.json.decode(value, type=_AnnouncedFolder).root


async def wait_for_shim(run: OtherRun) -> None:
    """Waits until the run's shim has ended, at most SHIM_END_SECONDS. A shim ends by itself before
    the claim expires, but it may hang."""
    for _ in range(int(SHIM_END_SECONDS / LOOK_SECONDS)):
        run.folder.read_journal()
        if run.folder.journal.outcome is not None or not run.folder.shim_lives():
            break
        await asyncio.sleep(LOOK_SECONDS)
    else:
        log.warning("shim_outlives_its_claim", run=run.folder.identity.key)
    run.folder.read_journal()


def find_run(roots: Mapping[str, str], key: str) -> OtherRun | None:
    """The run of that key in one of the folders; ``roots``: runner id to path."""
    for runner, root in roots.items():
        path = Path(root)
        try:
            if not path.is_absolute() or (path / "id").read_text().strip() != runner:
                continue
            found = open_run(path, key)
        except (OSError, ValueError):
            continue
        if found is None:
            continue
        try:
            return OtherRun(found, (path / "secret").read_text().strip().encode())
        except (OSError, ValueError):
            return OtherRun(found, None)
    return None
