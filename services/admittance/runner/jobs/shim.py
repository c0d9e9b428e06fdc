# ruff: noqa: PTH108, PTH110, PTH208, PTH118, PTH123, SIM105
# (pathlib and contextlib are not worth their import time here)
"""The shim: keeps the processes of one admission running, also when the runner dies.

The runner starts `fork_server` once, in a process without site packages: the fork server reads
folders of runs from standard input and forks a shim for each folder, which is ten times faster than
a new process.

What a shim guarantees, and how:

- A run starts once: the shim links its pid to ``shim`` in the run's folder; a second shim exits.
  The shim holds a lock on ``alive``, which the kernel frees when the shim dies.
- Every pod is a session of its own; to end a pod, the shim sends SIGTERM to its process group, and
  SIGKILL after the grace period. The shim adopts processes that leave the process group of a pod,
  and kills them when the run ends.
- The shim appends events to the file ``journal``, one JSON object per line; the end of a pod is on
  disk before the runner is notified. A last line of the journal without its newline does not count.
- A stop wins over a later exit. Before the shim sends SIGTERM to the pods, it records the pods that
  have ended already, then writes the event ``stop`` to the journal. A pod that ends after this
  event has not succeeded, whatever its exit code: it may only have saved its state.
- Without a renewed lease the shim ends all pods and starts none: another runner may hold the claim.

Journal: ``{"e": "start", "p": pod, "pid": …, "t": start time}``, ``{"e": "end", "p": pod,
"code": …, "whole": counts as a success}``, ``{"e": "up"}`` once the first processes run,
``{"e": "ready"}`` once every pod runs or has succeeded, ``{"e": "stop", "why": "stopped" | "lost",
"pods": […]}`` before these pods are stopped, and last ``{"e": "outcome", "kind": "succeeded" |
"failed" | "stopped" | "lost", "message": …, "code": exit code that failed the job, or 0}``.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time

from admittance.runner.jobs.pod_process import (
    expand,
    find_program,
    make_scratch,
    pod_env,
    signal_group,
    start_process,
    start_time,
)

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from typing import Any

NEVER = float("inf")
STOPS = ("stopped", "lost")
"""Reasons to end a run that lie outside the job: the exit of a container after such a stop is not a
result of the job."""
PROBE_SECONDS = 5.0
"""Longest wait in seconds for the answers of all probes: after this time the shim stops the pods
without the missing answers."""
SUBREAPER = 36  # the number of PR_SET_CHILD_SUBREAPER in linux/prctl.h
NO_NEW_PRIVS = 38  # the number of PR_SET_NO_NEW_PRIVS in linux/prctl.h


def boot_seconds() -> float:
    """Seconds since the machine's boot, sleep included: the same in all processes, and independent
    of changes of the system time."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class PodSetState:
    """Progress of one pod set: the index of its next pod, and the numbers of active and of
    succeeded pods."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.next_index = 0
        self.succeeded = 0
        self.active = 0


class Pod:
    """One pod of a run: the init containers of the pod run in order, then all its other containers
    at once."""

    def __init__(self, pod_set: PodSetState, index: int) -> None:
        self.set = pod_set
        self.index = index
        self.name = f"{pod_set.spec['name']}-{index}"
        self.inits = list(pod_set.spec["init"])
        self.running: set[int] = set()
        self.probes: dict[int, list[str]] = {}
        self.told_to_stop = False
        self.main_started = False
        self.ended = False
        self.code = 0


class Shim:
    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, "spec.json"), "rb") as file:
            self.spec = json.load(file)
        if self.spec.get("noNewPrivs"):
            forbid_new_privileges()
        self.folder = folder
        self.sets = [PodSetState(each) for each in self.spec["sets"]]
        self.pods: dict[int, Pod] = {}
        self.lines: list[dict[str, object]] = []
        self.durable = False
        self.asked: list[int] = []
        self.ready_said = False
        self.why_ending = ""  # why the run ends: "failed", "stopped" or "lost"; "" until it ends
        self.message = ""
        self.code = 0
        self.kill_at = NEVER
        self.journal = os.open(
            os.path.join(folder, "journal"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )

    def write(self, *, durable: bool = False, **line: object) -> None:
        self.lines.append(line)
        self.durable = self.durable or durable

    def flush(self) -> None:
        """Appends collected lines to the journal, synced if ``durable``; notifies the runner."""
        if not self.lines:
            return
        data = "".join(json.dumps(line) + "\n" for line in self.lines).encode()
        while data:
            data = data[os.write(self.journal, data) :]
        if self.durable:
            os.fsync(self.journal)
        self.lines, self.durable = [], False
        try:
            # Without a runner the pipe cannot be opened; the next runner reads the journal anyway.
            pipe = os.open(self.spec["notify"], os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return
        try:
            os.write(pipe, (self.spec["key"] + "\n").encode())
        except OSError:
            pass  # the pipe is full, but the runner also checks every run from time to time
        finally:
            os.close(pipe)

    def fill(self) -> None:
        """Starts pods up to the parallelism and the completions of each pod set."""
        for each in self.sets:
            spec = each.spec
            while (
                not self.why_ending
                and not self.asked
                and each.active < spec["parallel"]
                and each.succeeded + each.active < spec["completions"]
            ):
                pod = Pod(each, each.next_index)
                each.next_index += 1
                each.active += 1
                self.advance(pod)
                if each.next_index % 32 == 0:
                    self.flush()

    def advance(self, pod: Pod) -> None:
        """Takes a pod's next step: starts the next init container or all other containers, or
        records the pod's end."""
        while not pod.running and not pod.ended:
            if pod.code or self.why_ending or self.asked or pod.main_started:
                self.end_pod(pod)
                return
            try:
                if pod.inits:
                    self.spawn(pod, pod.inits.pop(0))
                else:
                    pod.main_started = True
                    for container in pod.set.spec["main"]:
                        self.spawn(pod, container)
            except Exception as error:
                # Whatever prevents a start ends the job: if the shim died of it, the job would
                # count as lost and start again. Python raises ValueError for a zero byte in an
                # argument or variable, and for an equals sign in a variable's name.
                self.fail(pod, 127, str(error) or type(error).__name__)

    def fail(self, pod: Pod, code: int, how: str) -> None:
        """Records a failed container: its pod fails, and the job too unless the pod was stopped."""
        if pod.code:
            return
        pod.code = code
        message = f"pod {pod.name} failed: {how}"
        if pod.told_to_stop or self.why_ending not in STOPS:
            if not self.why_ending:
                self.code = code
            self.end_all("failed", message)
        else:
            # The container failed before the stop; the shim notices the failure only now.
            self.why_ending, self.message, self.code = "failed", message, code

    def end_pod(self, pod: Pod) -> None:
        """Records the end of a pod: no container of it runs or will start."""
        pod.ended = True
        pod.set.active -= 1
        whole = pod.main_started and not pod.code and not pod.told_to_stop
        if whole:
            pod.set.succeeded += 1
        self.write(durable=True, e="end", p=pod.name, code=pod.code, whole=whole)

    def spawn(self, pod: Pod, container: dict[str, Any]) -> None:
        user = self.spec.get("runAs")
        scratch = make_scratch(os.path.join(self.folder, "scratch", pod.name), user)
        cwd = container["cwd"] or scratch
        own = {
            **pod.set.spec["env"],
            "JOB_COMPLETION_INDEX": str(pod.index),
            "ADMITTANCE_POD_INDEX": str(pod.index),
            "ADMITTANCE_POD": pod.name,
            "ADMITTANCE_RUN": self.spec["mark"],
            "ADMITTANCE_CONTAINER": container["name"],
        }
        env = pod_env(self.spec["given"], container["env"], own)
        argv = [expand(word, env) for word in container["argv"]]
        output = os.path.join(self.folder, "out", pod.name + ".log")
        program = find_program(argv[0], env, cwd)
        limit = self.spec.get("processLimit", 0)
        pid = start_process(program, argv, env, (scratch, cwd), output, user, limit)
        pod.running.add(pid)
        if container.get("probe"):
            pod.probes[pid] = [expand(word, env) for word in container["probe"]]
        self.pods[pid] = pod
        self.write(e="start", p=pod.name, pid=pid, t=start_time(pid))

    def end_all(self, why: str, message: str, *, until: float = NEVER) -> None:
        """Stops all pods: SIGTERM now, SIGKILL after the grace period, but at the latest at
        ``until``."""
        if self.why_ending:
            self.kill_at = min(self.kill_at, until)
            return
        self.why_ending, self.message = why, message
        self.kill_at = min(boot_seconds() + self.spec["grace"], until)
        pods = sorted(set(self.pods.values()), key=lambda pod: pod.name)
        if why in STOPS:
            pods = self.note_stop(why, pods)
        for pid in [pid for pod in pods for pid in pod.running]:
            signal_group(pid, signal.SIGTERM)

    def note_stop(self, why: str, pods: list[Pod]) -> list[Pod]:
        """Writes a stop to the journal before pods get SIGTERM; returns the pods to stop, without
        pods whose containers have all ended."""
        ended = self.probe(pods)
        pods = [pod for pod in pods if not pod.running <= ended]
        for pod in pods:
            pod.told_to_stop = True
        if pods:
            self.write(durable=True, e="stop", why=why, pods=[pod.name for pod in pods])
            self.flush()
        return pods

    def probe(self, pods: list[Pod]) -> set[int]:
        """The pids of processes whose containers have ended already, according to their probes."""
        asked = {}
        for pod in pods:
            for pid in pod.running & pod.probes.keys():
                argv = pod.probes[pid]
                os.chdir(os.path.join(self.folder, "scratch", pod.name))
                try:
                    asked[os.posix_spawn(argv[0], argv, dict(os.environ), setsid=True)] = pid
                except OSError:
                    pass
        ended = set()
        until = boot_seconds() + PROBE_SECONDS
        for prober, pid in asked.items():
            found, status = os.waitpid(prober, os.WNOHANG)
            while not found and boot_seconds() < until:
                time.sleep(0.01)
                found, status = os.waitpid(prober, os.WNOHANG)
            if not found:
                os.killpg(prober, signal.SIGKILL)
                _, status = os.waitpid(prober, 0)
            if os.waitstatus_to_exitcode(status) == 0:
                ended.add(pid)
        return ended

    def kill_all(self) -> None:
        for pid in self.pods:
            signal_group(pid, signal.SIGKILL)
        for argv in self.spec["cleanup"]:
            try:
                os.waitpid(os.posix_spawn(argv[0], argv, dict(os.environ), setsid=True), 0)
            except OSError:
                pass

    def reap(self) -> None:
        """Handles every process of the run that has ended."""
        while self.pods:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            pod = self.pods.pop(pid, None)
            if pod is not None:
                # The process is not reaped yet, so no other process has its pid.
                signal_group(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if pod is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            pod.running.discard(pid)
            if code:
                signal_name = f"signal {-code}" if code < 0 else f"exit code {code}"
                self.fail(pod, 128 - code if code < 0 else code, signal_name)
            self.advance(pod)

    def lease_deadline(self) -> float:
        """When the shim must send SIGTERM to all pods because the lease was not renewed, in seconds
        since boot."""
        try:
            with open(self.spec["lease"], encoding="ascii") as lease:
                return float(lease.read()) + float(self.spec["leaseStop"])
        except (OSError, ValueError):
            return 0.0

    def is_over(self) -> bool:
        return all(each.succeeded >= each.spec["completions"] for each in self.sets)

    def run(self) -> None:
        wake, poke = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(poke, False)
        signal.set_wakeup_fd(poke, warn_on_full_buffer=False)
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, lambda number, _: self.asked.append(number))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        deadline = self.lease_deadline()
        if os.path.exists(os.path.join(self.folder, "stop")):
            self.end_all("stopped", "stopped before it started")
        elif boot_seconds() >= deadline:
            # Without a renewed lease, another runner may run the job.
            self.end_all("lost", "the runner's lease ran out")
        self.fill()
        if not self.why_ending:
            self.write(e="up")
        while True:
            if not self.ready_said and not self.why_ending and self.is_ready():
                self.ready_said = True
                self.write(e="ready")
            if not self.pods:
                break
            self.flush()
            due = min(self.kill_at, deadline)
            select.select([wake], [], [], min(3600.0, max(0.0, due - boot_seconds())))
            try:
                while os.read(wake, 512):
                    pass
            except BlockingIOError:
                pass
            self.reap()  # before the stop: a pod that has ended by now counts as not stopped
            if self.asked and self.pods:
                self.end_all("stopped", "stopped")
            now = boot_seconds()
            if now >= deadline and self.pods:
                deadline = self.lease_deadline()  # the runner may have renewed the lease by now
                if now >= deadline:
                    limit = self.spec["leaseKill"] - self.spec["leaseStop"]
                    self.end_all("lost", "the runner's lease ran out", until=now + limit)
                    deadline = NEVER
            if now >= self.kill_at:
                # All pods are killed again in a second: a kill may miss a process just forked.
                self.kill_at = now + 1.0
                self.kill_all()
            self.reap()
            self.fill()
        kind = "succeeded" if self.is_over() else self.why_ending or "stopped"
        if self.spec["cleanup"] and kind != "succeeded":
            self.kill_all()
        end_strays()
        message = "" if kind == "succeeded" else self.message or "stopped"
        code = self.code if kind == "failed" else 0
        self.write(durable=True, e="outcome", kind=kind, message=message, code=code)
        self.flush()

    def is_ready(self) -> bool:
        waiting = any(not pod.main_started for pod in self.pods.values())
        return not waiting and all(
            each.active + each.succeeded >= min(each.spec["parallel"], each.spec["completions"])
            for each in self.sets
        )


def forbid_new_privileges() -> None:
    """Makes ``sudo`` and other programs with more rights ineffective for this process and for all
    processes that it starts. Raises OSError."""
    try:
        refused = ctypes.CDLL(None).prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return  # Only Linux can do this.
    if refused:
        raise OSError("the kernel refuses PR_SET_NO_NEW_PRIVS")


def adopt_strays() -> None:
    """Makes this process the parent of orphaned processes, like the init of a container: otherwise
    a process that double-forks out of its group would outlive its job."""
    try:
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # Only Linux can adopt processes; elsewhere only the process group is ended.


def end_strays() -> None:
    """Kills all processes that this process has adopted, and the children of the killed
    processes."""
    me = os.getpid()
    for _ in range(100):  # a round kills one generation of processes
        try:
            with open(f"/proc/{me}/task/{me}/children", encoding="ascii") as file:
                strays = [int(pid) for pid in file.read().split()]
        except (OSError, ValueError):
            return
        if not strays:
            return
        for pid in strays:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, PermissionError, ChildProcessError):
                pass


def run_shim(folder: str) -> None:
    """Runs as the shim of the run in ``folder``, unless the run has a shim already."""
    adopt_strays()
    alive = os.open(os.path.join(folder, "alive"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    mine = os.path.join(folder, f"shim.{os.getpid()}")
    with open(mine, "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {start_time(os.getpid())}")
    try:
        os.link(mine, os.path.join(folder, "shim"))
    except FileExistsError:
        return
    finally:
        os.unlink(mine)
    Shim(folder).run()


def close_inherited_files() -> None:
    """Closes all open files but the standard ones: every job would inherit them. uvloop leaves open
    copies of standard input, by which the runner names runs, and of standard error."""
    try:
        found = [int(name) for name in os.listdir("/dev/fd")]
    except (OSError, ValueError):
        found = list(range(3, 1024))
    for one in found:
        if one > 2:
            try:
                os.close(one)
            except OSError:
                pass


def fork_server() -> None:
    """Forks a shim for every run folder named on standard input."""
    close_inherited_files()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that ended shims do not become zombies
    blocked = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD]
    pending = b""
    while True:
        data = os.read(0, 65536)
        if not data:
            return
        *folders, pending = (pending + data).split(b"\n")
        for folder in folders:
            # Signals stay blocked until the shim has handlers, so that no signal ends the shim
            # before.
            signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
            if os.fork() == 0:
                code = 1
                try:
                    os.setsid()
                    os.close(0)
                    os.open(os.devnull, os.O_RDONLY)
                    run_shim(os.fsdecode(folder))
                    code = 0
                except BaseException as error:
                    sys.stderr.write(f"shim of {os.fsdecode(folder)}: {error!r}\n")
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
