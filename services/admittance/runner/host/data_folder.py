"""The runner's data folder: its id, its lease, and one folder with a journal for each run.

```text
runner/
  trash/    what a program of its own removes: `admittance.runner.disk.trash`
  id        the runner's name; it never changes
  lock      held while a runner uses the folder
  lease     time of the last renewal of all claims, in seconds since boot
  failure.json  why the machine is drained: its prolog or epilog failed
  notify    a named pipe: a shim writes the key of a run when its journal has grown
  runs/<ns>.<name>.<revision>/
    spec.json     what to run; written before any process of the run starts
    stop          the stop note: the run must stop, and why
    drain         when the machine must be empty, in seconds since boot, for warnings
    shim          the pid of the run's shim; written before any process of the run starts
    alive         locked while the shim lives
    journal       the events of the run; format: `admittance.runner.jobs.journal`
    out/          the output of the run: `admittance.runner.output.parts`
    scratch/      one scratch folder per pod
    inputs/       the inputs of the run by their digests: `admittance.runner.files`
    outputs/      the outputs of each pod; outputs.json: their list, once they are stored
    prolog.log, epilog.log  the end of what the hooks of the runner printed
    said          exists if all facts of the run are published; the run is kept for its output
    earlier.json  in place of spec.json: the run was stopped when its runner shut down, and may
                  run again here; kept for its output, to which the next run appends
```
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import structlog

from admittance.events.stored.machines import MachineFailure
from admittance.job_rules import runner_name
from admittance.job_rules.runner_name import replace_file
from admittance.runner.disk.trash import put_away, throw_away, trash_of
from admittance.runner.files.pod_files import INPUTS, OUTPUTS, STORED
from admittance.runner.host.port import OtherRun
from admittance.runner.host.processes import ProcessRef
from admittance.runner.host.records import RunIdentity, Spec, StopNote
from admittance.runner.host.run_journal import RunJournal
from admittance.runner.jobs.journal import DRAIN
from admittance.runtime import chance
from admittance.runtime.errors import SetupError
from admittance.runtime.telemetry.object_faults import faults

NAME_MAX: Final = 200
"""The most bytes of a folder's name; file systems allow 255."""
JOURNAL_BYTES: Final = 16 << 20
"""The most bytes that are read of a journal at once; the shim writes about 60 bytes for each pod. A
job with the runner's Unix user can make the file longer than the memory.
"""

FAILURE: Final = "failure.json"
HOOK_LOGS: Final = ("prolog.log", "epilog.log")
SMALL_BYTES: Final = 1 << 16
"""The most bytes that are read of a file with a name, a number or a note."""
NOT_KEPT: Final = ("scratch", INPUTS, OUTPUTS)
"""What is removed of a run when it has ended."""
LEASE_BYTES: Final = 32
"""The bytes of the lease file, which is longer than any number."""
SPEC_BYTES: Final = 256 << 20
"""The most bytes that are read of the spec of a run."""

log = structlog.get_logger(service="runner")
_identity = msgspec.json.Decoder(RunIdentity)


class NotPlain(OSError):
    """A pipe, a folder or a device is in the place of a file."""


def open_plain(path: Path) -> BinaryIO:
    """Opens a file for reading. Raises NotPlain, and another OSError if it cannot be opened: a job
    with the runner's Unix user can put a pipe there, on which the runner would wait without end,
    and another runner can announce a folder with such files."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return os.fdopen(file, "rb")
    os.close(file)
    raise NotPlain(errno.EINVAL, "it is not a plain file", str(path))


def _read(path: Path, most: int = SMALL_BYTES) -> bytes:
    """The bytes of a file, at most ``most``. Raises OSError."""
    with open_plain(path) as file:
        return file.read(most)


def _make_folder(path: Path) -> bool:
    """Makes a folder that no other Unix user may list; returns whether it is new. If the runner is
    root, jobs that run as other Unix users may pass through the folder to their scratch folders."""
    is_new = True
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        is_new = False
    path.chmod(0o700 if os.geteuid() else 0o711)
    return is_new


class RunFolder:
    """The folder of one run in the data folder: a `RunFiles`."""

    def __init__(self, path: Path, identity: RunIdentity) -> None:
        self.path = path
        self.identity = identity
        self.journal = RunJournal()
        self._trash = trash_of(path.parent.parent)

    def write(self, spec: Spec) -> None:
        if not _make_folder(self.path) and not (self.path / "spec.json").exists():
            # An earlier run of the same admission may have been given back, perhaps not completely.
            self._clear()
        (self.path / "out").mkdir(mode=0o700, exist_ok=True)
        replace_file(self.path / "spec.json", msgspec.json.encode(spec))

    def note_stop(self, note: StopNote) -> None:
        replace_file(self.path / "stop", msgspec.json.encode(note))

    def stop_note(self) -> StopNote | None:
        try:
            return msgspec.json.decode(_read(self.path / "stop"), type=StopNote)
        except (OSError, msgspec.MsgspecError):
            return None

    def note_drain(self, ends: float | None) -> None:
        if ends is None:
            (self.path / DRAIN).unlink(missing_ok=True)
        else:
            replace_file(self.path / DRAIN, repr(ends).encode())

    def read_journal(self) -> bool:
        try:
            with open_plain(self.path / "journal") as file:
                grown = False
                file.seek(self.journal.offset)
                while self.journal.feed(file.read(JOURNAL_BYTES)):
                    grown = True
                    file.seek(self.journal.offset)
                return grown
        except FileNotFoundError:
            return False
        except OSError as error:
            # A job with the runner's Unix user can change the files of its run.
            faults.record("runner", "read a journal", f"run {self.identity.key}", error)
            return False

    def shim_pid(self) -> int:
        try:
            return int(_read(self.path / "shim").split()[0])
        except (OSError, ValueError, IndexError):
            return 0

    def fork_server(self) -> ProcessRef:
        try:
            _, _, pid, ticks = _read(self.path / "shim").split()
            return ProcessRef(int(pid), int(ticks))
        except (OSError, ValueError):
            return ProcessRef(0, 0)

    def shim_lives(self) -> bool:
        # The shim holds a lock as long as it lives. Its pid proves nothing, since another process
        # may have it by now.
        try:
            file = os.open(self.path / "alive", os.O_RDWR | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def give_back(self) -> None:
        # The file spec.json is renamed first: without this file the folder does not count as an
        # open run, even if the runner is interrupted now.
        with contextlib.suppress(FileNotFoundError):
            (self.path / "spec.json").replace(self.path / "earlier.json")
        self._clear()

    def _clear(self) -> None:
        for name in ("journal", "stop", "shim", "alive", "said", STORED, DRAIN, *HOOK_LOGS):
            (self.path / name).unlink(missing_ok=True)
        self._throw_away_files()

    def _throw_away_files(self) -> None:
        for name in NOT_KEPT:
            throw_away(self.path / name, self._trash)

    def closed_at(self) -> float:
        try:
            return (self.path / "said").stat().st_mtime
        except FileNotFoundError:
            return (self.path / "earlier.json").stat().st_mtime

    def close(self) -> bool:
        try:
            (self.path / "said").touch()
        except FileNotFoundError:
            pass
        except OSError as error:
            # Without the mark, the next start of the runner publishes the same facts again.
            log.warning("run_not_marked", run=self.identity.key, error=error.strerror)
        left = [name for name in NOT_KEPT if not put_away(self.path / name, self._trash)]
        return not left

    def free(self) -> None:
        self._throw_away_files()

    def mark_published(self) -> None:
        with contextlib.suppress(OSError):
            (self.path / "said").touch()

    def is_gone(self) -> bool:
        return not (self.path / "spec.json").exists()

    def is_closed(self) -> bool:
        return (self.path / "said").exists()

    def remove(self) -> None:
        # The file spec.json is removed first: a folder without this file does not count as a run,
        # even if the runner is interrupted now.
        for name in ("spec.json", "earlier.json"):
            (self.path / name).unlink(missing_ok=True)
        throw_away(self.path, self._trash)


def _path_of(root: Path, key: str) -> Path:
    name = key
    if len(name) > NAME_MAX:
        name = hashlib.sha256(name.encode()).hexdigest()
    return root / "runs" / name


def open_run(root: Path, key: str) -> RunFolder | None:
    """Returns the run with the key ``key`` from the data folder at ``root``, which may be another
    runner's; None if the folder does not have the run. Raises OSError when the run cannot be read.
    """
    path = _path_of(root, key)
    try:
        return RunFolder(path, _identity.decode(_read(path / "spec.json", SPEC_BYTES)))
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _unusable(root: Path, error: OSError) -> SetupError:
    return SetupError(
        f"the runner's folder {root} cannot be used ({error.strerror}): "
        "make room and set its rights, or give another one with --data-dir"
    )


class DataFolder:
    """The data folder of a runner, a `RunnerFiles`: make it with `open`, and call `close` at the
    end."""

    def __init__(self, root: Path, runner: str, lock: int) -> None:
        self.root = root
        self.runner = runner
        self._lock = lock

    @classmethod
    def open(cls, data_dir: Path) -> DataFolder:
        """Opens the runner's data folder in ``data_dir``. Raises SetupError if another runner uses
        the folder, or if the folder cannot be written.
        """
        root = (data_dir / "runner").absolute()
        try:
            _make_folder(root)
            _make_folder(root / "runs")
            lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unusable(root, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise SetupError(
                f"another runner uses {root}: stop it, or give another folder with --data-dir"
            ) from None
        try:
            name = runner_name.name_of(root)
            secret = root / "secret"
            if not secret.exists() or not secret.read_text().strip():
                replace_file(secret, chance.token_hex(32).encode())
            with contextlib.suppress(FileExistsError):
                os.mkfifo(root / "notify", 0o600)
        except OSError as error:
            os.close(lock)
            raise _unusable(root, error) from error
        return cls(root, name, lock)

    def close(self) -> None:
        os.close(self._lock)

    @property
    def secret(self) -> bytes:
        """The secret from which this runner computes its message ids: with a guessed message id,
        another program could make the server drop the runner's facts as duplicates. The secret is
        the same after a crash, so that a repeated fact has the same message id.
        """
        return (self.root / "secret").read_text().strip().encode()

    @property
    def lease(self) -> Path:
        return self.root / "lease"

    @property
    def notify(self) -> Path:
        return self.root / "notify"

    def touch_lease(self, boot_seconds: float) -> None:
        # The file is written in place: a disk without room has no room for another file, and the
        # shims would end all jobs.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(self.lease, flags, 0o600)
            try:
                os.pwrite(file, f"{boot_seconds!r:<{LEASE_BYTES}}".encode(), 0)
                os.ftruncate(file, LEASE_BYTES)
            finally:
                os.close(file)
        except OSError as error:
            # Without a renewed lease the shims end their jobs before the claims expire.
            log.warning("lease_not_renewed", folder=str(self.root), error=error.strerror)

    def failure(self) -> MachineFailure | None:
        try:
            return msgspec.json.decode(_read(self.root / FAILURE), type=MachineFailure)
        except (OSError, msgspec.MsgspecError):
            return None

    def note_failure(self, failure: MachineFailure | None) -> None:
        if failure is None:
            (self.root / FAILURE).unlink(missing_ok=True)
        else:
            replace_file(self.root / FAILURE, msgspec.json.encode(failure))

    def folder_of(self, identity: RunIdentity) -> RunFolder:
        return RunFolder(_path_of(self.root, identity.key), identity)

    def runs(self) -> Iterator[RunFolder]:
        """Also removes folders that are not runs, and leaves out runs that cannot be read, for
        example because their jobs took the right away."""
        for path in sorted((self.root / "runs").iterdir()):
            try:
                identity = _identity.decode(_read(path / "spec.json", SPEC_BYTES))
            except (FileNotFoundError, NotADirectoryError, NotPlain, msgspec.MsgspecError):
                if not (path / "earlier.json").exists():
                    throw_away(path, trash_of(self.root))
                continue
            except OSError as error:
                log.warning("run_not_readable", folder=str(path), error=error.strerror)
                continue
            yield RunFolder(path, identity)

    def given_back(self) -> Iterator[RunFolder]:
        for path in sorted((self.root / "runs").iterdir()):
            if (path / "spec.json").exists():
                continue
            with contextlib.suppress(
                FileNotFoundError, NotADirectoryError, NotPlain, msgspec.MsgspecError
            ):
                identity = _identity.decode(_read(path / "earlier.json", SPEC_BYTES))
                yield RunFolder(path, identity)


def find_run(roots: Mapping[str, str], key: str) -> OtherRun | None:
    """See `HostMachine.find_run`."""
    for runner, root in roots.items():
        path = Path(root)
        try:
            if not path.is_absolute() or _read(path / "id").decode().strip() != runner:
                continue
            run = open_run(path, key)
        except (OSError, ValueError):
            continue
        if run is None:
            continue
        try:
            return OtherRun(run, _read(path / "secret").strip())
        except (OSError, ValueError):
            return OtherRun(run, None)
    return None
