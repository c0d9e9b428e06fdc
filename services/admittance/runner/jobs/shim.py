# ruff: noqa: PTH110, PTH118
# (pathlib and contextlib are not worth their import time here)
"""The shim: keeps the processes of one admission running, also when the runner dies.

The runner starts the fork server (`jobs/fork_server.py`) once, in a process without site packages:
the fork server forks a shim for each run, which is ten times faster than a new process, and ends
what a shim leaves behind that is killed.

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
- A run ends only when its containers are gone: while the engine does not answer, the shim waits.
  An engine that was lost is no result of the job.
- Without a renewed lease the shim ends all pods and starts none: another runner may hold the claim.

The lines of the journal are those of `admittance.runner.jobs.journal`.
"""

from __future__ import annotations

import json
import os
import signal
import time

from admittance.runner.disk.scratch import ScratchDisk
from admittance.runner.disk.small_files import read_bytes
from admittance.runner.files.pod_files import FileCarrier
from admittance.runner.groups.job_groups import Usage
from admittance.runner.groups.run_groups import OOM_KILLED, GroupError, RunGroups, oom_text
from admittance.runner.jobs.container_starts import ContainerStarts
from admittance.runner.jobs.engine_programs import (
    end_containers,
    end_text,
    ended_containers,
    lost_engine,
    run_program,
)
from admittance.runner.jobs.hooks import RunHooks
from admittance.runner.jobs.job_policy import (
    DEADLINE_EXCEEDED,
    DISK_LIMIT_EXCEEDED,
    FAILED_TO_START,
    NEVER,
    PodSetProgress,
)
from admittance.runner.jobs.journal import JournalWriter, read_drain, read_lease
from admittance.runner.jobs.pod import Pod
from admittance.runner.jobs.pod_process import (
    FolderError,
    handle_signals,
    signal_group,
    start_code,
    start_problem,
    start_time,
)
from admittance.runner.jobs.pod_volumes import (
    remove_empty_checkpoint,
)
from admittance.runner.jobs.strays import (
    end_strays,
    forbid_new_privileges,
    tag_processes,
)
from admittance.runner.jobs.time_warnings import TimeWarnings
from admittance.runner.output.collector import OutputCollector

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from typing import Any

STOPS = ("stopped", "lost")
"""Reasons to end a run that lie outside the job: the exit of a container after such a stop is not a
result of the job."""
RESULTS = ("succeeded", "failed")
"""The kinds of ends that are a result of the job."""
MESSAGE_MAX = 1_000
"""The most characters of a message: the name of a program may have a hundred thousand."""
STARTS_MAX = 64
"""The most pods that start before the shim looks at its lease, at signals and at output again."""
NO_ROOM_SECONDS = 1.0
"""Seconds between two attempts to write the journal to a disk without room: the job goes on."""
FULL_GRACE_SECONDS = 1.0
"""The grace period of a pod that has written more than it may: it would go on writing."""


def boot_seconds() -> float:
    """Seconds since the machine's boot, sleep included: the same in all processes, and independent
    of changes of the system time."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Shim:
    def __init__(self, folder: str) -> None:
        self.spec = json.loads(read_bytes(os.path.join(folder, "spec.json")))
        if self.spec.get("tag"):
            tag_processes(self.spec["tag"])
        self.hooks = RunHooks(folder, self.spec)
        if self.spec.get("noNewPrivs") and not self.spec.get("hooks"):
            forbid_new_privileges()
        self.folder = folder
        self.sets = [PodSetProgress(each) for each in self.spec["sets"]]
        self.pods: dict[int, Pod] = {}
        self.timed: dict[str, Pod] = {}  # pods with a time at which the shim must look at them
        self.asked: list[int] = []
        self.news: list[int] = []
        self.ready_said = False
        # why the run ends: "succeeded", "failed", "stopped", "lost", "unprepared"; "" until it ends
        self.why_ending = ""
        self.message = ""
        self.reason = ""
        self.code = 0
        self.kill_at = NEVER
        self.job_deadline = NEVER
        self.journal = JournalWriter(folder)
        self.disk = ScratchDisk(
            os.path.join(folder, "scratch"), self.spec.get("scratchLimit", 0), boot_seconds
        )
        self.files = FileCarrier(folder, self.spec)
        self.output = OutputCollector(
            os.path.join(folder, "out"),
            self.spec.get("outputLimit", 0),
            sum(each["parallel"] for each in self.spec["sets"]),
        )
        self.groups = RunGroups(self.spec.get("groups"), folder, self.output, boot_seconds)
        self.starts = ContainerStarts(folder, self.spec, self.groups, self.files, self.output)

    def write(self, *, durable: bool = False, **line: object) -> None:
        self.journal.write(line, durable=durable)

    def flush(self) -> bool:
        return self.journal.flush(self.spec["notify"], self.spec["key"])

    def fill(self) -> None:
        """Starts pods up to the parallelism and the completions of each pod set, and containers
        that are due to start again."""
        now, starts = boot_seconds(), 0
        for pod in list(self.timed.values()):
            while not self.why_ending and not self.asked and (again := pod.take_restart(now)):
                self.try_spawn(pod, again)
        for each in self.sets:
            while not self.why_ending and not self.asked and starts < STARTS_MAX:
                index = each.take(now)
                if index is None:
                    break
                starts += 1
                pod = Pod(each, index, now)
                self.watch(pod)
                if pod.earlier_scratch:
                    self.disk.discard(pod.earlier_scratch, at_once=True)
                self.advance(pod)
                if each.next_index % 32 == 0:
                    self.flush()

    def watch(self, pod: Pod) -> None:
        """Makes the shim look at the pod when its next time comes."""
        if pod.next_time() < NEVER:
            self.timed[pod.name] = pod

    def advance(self, pod: Pod) -> None:
        """Takes a pod's next step: starts the next init container or all other containers, or
        records the pod's end."""
        while not pod.running and not pod.ended:
            if pod.code or self.why_ending or self.asked:
                self.end_pod(pod)
            elif pod.restarts:
                return
            elif pod.inits:
                self.try_spawn(pod, pod.inits.pop(0))
            elif not pod.main_started:
                pod.main_started = True
                for container in pod.set.spec["main"]:
                    self.try_spawn(pod, container)
            else:
                self.end_pod(pod)

    def try_spawn(self, pod: Pod, container: dict[str, Any]) -> None:
        """Starts a container of the pod; the container fails if its process cannot start."""
        if pod.code:
            return
        try:
            self.spawn(pod, container)
        except Exception as error:
            # If the shim died of it, the job would count as lost and start again. Python raises
            # ValueError for a zero byte in a word, and for an equals sign in a variable's name.
            reason = FAILED_TO_START if isinstance(error, FolderError | GroupError) else ""
            self.fail(pod, container, start_code(error), start_problem(error), reason=reason)
            if self.why_ending == "failed" and pod.code:
                # Nothing else would be in the output of the pod.
                self.output.note(pod.name, f"admittance: {self.message}")

    def fail(
        self,
        pod: Pod,
        container: dict[str, Any] | None,
        code: int,
        how: str,
        *,
        reason: str = "",
        until: float = NEVER,
    ) -> None:
        """Records a failed container, or a failed pod if ``container`` is None: the container or
        the pod runs again later, or the job fails, with the ``reason`` if no policy has one. The
        grace period of the pod ends at the latest at ``until``. The failure of a pod that was told
        to stop says nothing about the job."""
        if pod.code:
            return
        if pod.told_to_stop or (self.why_ending and self.why_ending not in STOPS):
            pod.code = code
            return
        now = boot_seconds()
        message = f"pod {pod.name} failed: {how}"[:MESSAGE_MAX]
        why = pod.set.fail(pod.index, container["name"] if container else "", code, now)
        if why is not None:
            pod.code = code
            self.fail_job(message, (why[0] or reason, why[1]), code, until=until)
        elif self.why_ending:
            pod.code = code  # the shim notices only after a stop that the container had failed
        elif container is not None and pod.set.restarts:
            self.note_in_output(pod, f"{message}; {pod.set.retry_text(pod.index, now)}")
            pod.restarts.append((pod.set.due(pod.index), container))
            pod.restart_code = code
            self.watch(pod)
        else:
            self.note_in_output(pod, f"{message}; {pod.set.retry_text(pod.index, now)}")
            pod.code = code
            pod.set.count_failed_pod(pod.index)
            if pod.running:
                pod.kill_at = min(now + self.spec["grace"], until)
                self.watch(pod)
                for pid in pod.running:
                    signal_group(pid, signal.SIGTERM)

    def fail_job(
        self, message: str, why: tuple[str, str], code: int = 0, *, until: float = NEVER
    ) -> None:
        """Ends the run as failed, with the reason and the explanation ``why``."""
        self.reason, explanation = why
        self.code = code
        message = (f"{message}; {explanation}" if explanation else message)[:MESSAGE_MAX]
        if self.why_ending:
            # The failure came before the stop; the shim notices the failure only now.
            self.why_ending, self.message = "failed", message
        else:
            self.end_all("failed", message, until=until)

    def note_in_output(self, pod: Pod, text: str) -> None:
        self.output.note(pod.name, f"admittance: {text}")
        due, left = pod.set.next_try(pod.index)
        failed = sum(each.failed for each in self.sets)
        self.write(e="retry", p=pod.name, message=text, failed=failed, due=due, left=left)

    def end_pod(self, pod: Pod) -> None:
        """Records the end of a pod: no container of it runs or will start."""
        pod.ended = True
        pod.set.free_slot(pod.slot)
        self.groups.end_pod(pod.scratch)
        self.output.close_pod(pod.name)
        self.timed.pop(pod.name, None)
        self.files.keep(pod)
        whole = pod.main_started and not pod.code and not pod.told_to_stop
        if whole or pod.set.due(pod.index) == NEVER:
            self.disk.discard(pod.scratch)
        pod.set.end(pod.index, whole=whole)
        self.write(durable=True, e="end", p=pod.name, code=pod.code, whole=whole)

    def spawn(self, pod: Pod, container: dict[str, Any]) -> None:
        pid = self.starts.start(pod, container)
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
        for pod in list(self.timed.values()):
            pod.give_up()
            if not pod.running:
                self.end_pod(pod)

    def note_stop(self, why: str, pods: list[Pod]) -> list[Pod]:
        """Writes a stop to the journal before pods get SIGTERM; returns the pods to stop, without
        pods whose containers have all ended."""
        probes = [
            (pid, pod.probes[pid], self.starts.scratch_of(pod))
            for pod in pods
            for pid in pod.running & pod.probes.keys()
        ]
        ended = ended_containers(probes)
        pods = [pod for pod in pods if not pod.running <= ended]
        for pod in pods:
            pod.told_to_stop = True
        if pods:
            self.write(durable=True, e="stop", why=why, pods=[pod.name for pod in pods])
            self.flush()
        return pods

    def kill_all(self) -> None:
        for pid in self.pods:
            signal_group(pid, signal.SIGKILL)
        self.groups.kill()
        for argv in self.spec["cleanup"]:
            run_program(argv, self.folder)

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
            self.disk.has_ended(pid)
            if pod is not None:
                # The process is not reaped yet, so no other process has its pid.
                signal_group(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if pod is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            pod.running.discard(pid)
            container = pod.containers.pop(pid)
            if oom := self.groups.oom_text(pod.scratch):
                # A shell may end well although the kernel has killed its child.
                code = 128 + signal.SIGKILL
                self.fail(pod, container, code, oom, reason=OOM_KILLED, until=boot_seconds())
            elif code:
                if code < 0 and pid in pod.kills:  # the container has lost its client, and runs on
                    run_program(pod.kills[pid], self.starts.scratch_of(pod))
                said = self.output.newest(pod.name) if container.get("probe") else b""
                lost = lost_engine(code, said)
                # A job may use an engine itself, and end as a client that has lost one.
                if lost and not ended_containers(
                    [(pid, pod.probes[pid], self.starts.scratch_of(pod))]
                ):
                    pod.told_to_stop = True
                    self.end_all("lost", lost[:MESSAGE_MAX])
                how, reason = end_text(code, said), ""
                if self.had_no_memory(pod, pid):
                    how, reason = oom_text(Usage(oom_kills=1), container["memory"]), OOM_KILLED
                code = 128 - code if code < 0 else code
                self.fail(pod, container, code, how, reason=reason)
            self.advance(pod)

    def had_no_memory(self, pod: Pod, pid: int) -> bool:
        """Whether an engine says that the container of a client had too little memory."""
        if pid not in pod.ooms:
            return False
        return run_program([*pod.ooms[pid], f"{time.time():.6f}"], self.starts.scratch_of(pod))

    def lease_deadline(self) -> float:
        """When the shim must send SIGTERM to all pods because the lease was not renewed, in seconds
        since boot."""
        renewed = read_lease(self.spec["lease"])
        return renewed + float(self.spec["leaseStop"]) if renewed else 0.0

    def is_over(self) -> bool:
        return all(each.is_over() for each in self.sets)

    def settle(self) -> None:
        """Ends the run if the policies of its pod sets say so."""
        if self.why_ending:
            return
        if why := next(filter(None, (each.failure() for each in self.sets)), None):
            self.fail_job("not every index succeeded", why)
        elif self.journal.is_full:
            self.fail_job("the job started more pods than one run can keep account of", ("", ""))
        elif self.pods and self.is_over():
            self.end_all("succeeded", "")

    def waits(self) -> bool:
        """Whether a pod or a container starts later although no process runs now."""
        if self.why_ending or self.asked:
            return False
        return bool(self.timed) or any(each.next_start() < NEVER for each in self.sets)

    def next_time(self) -> float:
        """When the shim has something to do if no process ends before."""
        times = [pod.next_time() for pod in self.timed.values()]
        if not self.why_ending:
            times += [self.job_deadline, *(each.next_start() for each in self.sets)]
            times += [self.warnings.next_time()]
            times += [self.disk.due] if self.pods else []
        times.append(self.groups.due())
        return min(times, default=NEVER)

    def keep_times(self, now: float) -> None:
        """Ends the job, pods and processes that have reached their times."""
        if now >= self.job_deadline and not self.why_ending:
            limit = self.spec["deadline"]
            self.fail_job(f"the job was active for {limit:g} s", (DEADLINE_EXCEEDED, ""))
        if now >= self.disk.due and self.pods and not self.why_ending:
            self.measure(now)
        if not self.why_ending:
            for name, number in self.warnings.take(now).items():
                self.warn(name, number, now)
        for pod in list(self.timed.values()):
            if now >= pod.end_by and not self.why_ending:
                pod.end_by = NEVER
                limit = pod.set.policy["podDeadline"]
                self.fail(pod, None, 128 + signal.SIGTERM, f"it was active for {limit:g} s")
                self.advance(pod)
            if now >= pod.kill_at:
                pod.kill_at = now + 1.0
                for pid in pod.running:
                    signal_group(pid, signal.SIGKILL)
                    if pid in pod.kills:
                        run_program(pod.kills[pid], self.starts.scratch_of(pod))

    def warn(self, pod_set: str, number: int, now: float) -> None:
        """Sends the signal ``number`` to all processes of a pod set: the time of the job ends soon,
        or its machine must be empty. It is no stop, so an exit afterwards is a result."""
        of_drain = self.warnings.of_drain
        self.write(e="warned", set=pod_set, signal=number, why="drain" if of_drain else "time")
        ends = "a machine of the job must be empty" if of_drain else "the time of the job ends"
        left = self.warnings.ends - now
        text = f"{ends} in {left:.0f} s: {signal.Signals(number).name} is sent"
        for pod in sorted(set(self.pods.values()), key=lambda pod: pod.name):
            if pod.set.spec["name"] == pod_set and not pod.told_to_stop:
                self.output.note(pod.name, f"admittance: {text}")
                for pid in pod.running:
                    signal_group(pid, number)

    def measure(self, now: float) -> None:
        """Fails pods with volumes above their limits, and the job if it has too many files."""
        pods = {pod.scratch: pod for pod in self.pods.values()}
        until = now + FULL_GRACE_SECONDS
        for name, how in self.disk.look({name: pod.volumes for name, pod in pods.items()}):
            code = 128 + signal.SIGKILL
            self.fail(pods[name], None, code, how, reason=DISK_LIMIT_EXCEEDED, until=until)
            self.advance(pods[name])
        if self.disk.too_much and not self.why_ending:
            self.fail_job(self.disk.too_much, (DISK_LIMIT_EXCEEDED, ""), until=until)

    def check_start(self) -> float:
        """Ends the run if it may not start; returns the deadline of the lease."""
        deadline = self.lease_deadline()
        if os.path.exists(os.path.join(self.folder, "stop")):
            self.end_all("stopped", "stopped before it started")
        elif boot_seconds() >= deadline:
            # Without a renewed lease, another runner may run the job.
            self.end_all("lost", "the runner's lease ran out")
        return deadline

    def prepare(self) -> None:
        """Runs the prolog. Its failure ends the run before any pod starts."""
        self.hooks.has_begun = True
        self.write(durable=True, e="begun")
        self.flush()
        if message := self.hooks.run("prolog"):
            self.end_all("unprepared", message)

    def clean_up(self, said: dict[str, object]) -> None:
        """Runs the epilog after all processes of the job. A result is in the journal before, so
        that it counts although the epilog takes its time. ``said``: the end of the job."""
        if said["kind"] in RESULTS and self.hooks.has("epilog"):
            self.write(durable=True, e="result", **said)
            self.flush()
        result = {"ADMITTANCE_RESULT": said["kind"], "ADMITTANCE_EXIT_CODE": said["code"]}
        self.hooks.run("epilog", **result)
        end_strays(self.hooks.left)

    def run(self) -> None:
        wake = handle_signals(self.asked, self.news)
        deadline = self.check_start()
        if self.spec.get("hooks") and not self.why_ending:
            self.prepare()
            deadline = self.check_start()
        self.job_deadline = boot_seconds() + (self.spec.get("deadline") or NEVER)
        self.warnings = TimeWarnings(self.spec, boot_seconds())
        self.warnings.set_drain(read_drain(self.folder))
        self.fill()
        if not self.why_ending:
            self.write(e="up")
        while True:
            self.settle()
            if not self.ready_said and not self.why_ending and self.is_ready():
                self.ready_said = True
                self.write(e="ready")
            if not self.pods and not self.waits():
                break
            due = min(self.kill_at, deadline, self.next_time())
            if not self.flush():
                due = min(due, boot_seconds() + NO_ROOM_SECONDS)
            self.output.wait(wake, min(3600.0, max(0.0, due - boot_seconds())))
            try:
                while os.read(wake, 512):
                    pass
            except BlockingIOError:
                pass
            if self.news:
                self.news.clear()
                self.warnings.set_drain(read_drain(self.folder))
            self.groups.look()
            self.reap()  # before the stop: a pod that has ended by now counts as not stopped
            if self.asked and self.pods:
                self.end_all("stopped", "stopped")
            now = boot_seconds()
            if now >= deadline and (self.pods or not self.why_ending):
                deadline = self.lease_deadline()  # the runner may have renewed the lease by now
                if now >= deadline:
                    limit = self.spec["leaseKill"] - self.spec["leaseStop"]
                    self.end_all("lost", "the runner's lease ran out", until=now + limit)
                    deadline = NEVER
            self.keep_times(now)
            if now >= self.kill_at:
                # All pods are killed again in a second: a kill may miss a process just forked.
                self.kill_at = now + 1.0
                self.kill_all()
            self.reap()
            self.fill()
        kind = self.why_ending or "stopped"
        if kind not in ("failed", "unprepared") and self.is_over():
            kind = "succeeded"
        if self.spec["cleanup"] and (self.why_ending or kind != "succeeded"):
            end_containers(self.spec["cleanup"], self.folder)
        self.groups.end()
        end_strays(self.hooks.left)
        if self.spec.get("checkpoint") and not self.spec.get("part"):
            remove_empty_checkpoint(self.spec["checkpoint"])  # most jobs write none
        self.output.close()
        message = "" if kind == "succeeded" else self.message or "stopped"
        code, reason = (self.code, self.reason) if kind == "failed" else (0, "")
        said: dict[str, object] = {"kind": kind, "message": message, "code": code, "reason": reason}
        if self.hooks.has_begun:
            self.clean_up(said)
        self.write(durable=True, e="outcome", drain=self.hooks.drain, **said)
        while not self.flush():
            time.sleep(NO_ROOM_SECONDS)

    def is_ready(self) -> bool:
        waiting = any(not pod.main_started for pod in self.pods.values())
        return not waiting and all(each.is_ready() for each in self.sets)
