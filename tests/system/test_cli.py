"""The command against a whole system: `admit up` as a process, and every other call as one."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from admittance.runtime.bus.streams import all_streams
from support.processes.fork_server import run_admit
from support.servers import LIMIT, answer_with

ADMIT = Path(sys.executable).parent / "admit"

pytestmark = pytest.mark.bus

QUEUES = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
---
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: spot
      resources:
      - {name: cpu, nominalQuota: 4}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: default}
spec: {clusterQueue: cq}
"""

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: two-pods
  labels: {kueue.x-k8s.io/queue-name: main}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: c
        command: [sh, -c]
        args: ["echo hello"]
        resources: {requests: {cpu: 1}}
"""


def fact_of(line: str) -> str:
    """The fact of a line of `admit events -o json`: ``submitted``, ``admitted``, …"""
    thing, *rest = json.loads(line)["subject"].split(".")[1:]
    return str(rest[1] if thing == "user" else rest[0])


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


class Up:
    """`admit up` on a data folder, and calls of `admit` against it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        # A user has exported the URL for the other commands. The lease is longer than any test: a
        # service that waits for leases of a dead process would not be ready in time.
        environ = {
            **os.environ,
            "ADMIT_NATS_URL": "nats://127.0.0.1:1",
            "ADMIT_LEASE_SECONDS": "120",
        }
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [ADMIT, "up", "--data-dir", self.folder / "data", "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environ,
            )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], LIMIT)
        line = self.process.stdout.readline() if ready else ""
        match = re.fullmatch(r"ready (nats://127\.0\.0\.1:\d+)\n", line)
        assert match, f"{line!r}; {(self.folder / 'log').read_text()[-2000:]}"
        self.url = match.group(1)

    def __enter__(self) -> Up:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            assert kind is not None or self.end(signal.SIGTERM) == 0
        finally:
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(LIMIT)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def __call__(self, *arguments: str, stdin: str = "", env: bool = True) -> Answer:
        variables = {"ADMIT_NATS_URL": self.url if env else ""}
        done = run_admit(*map(str, arguments), env=variables, stdin=stdin)
        assert "Traceback" not in done.err
        return Answer(status=done.status, out=done.out, err=done.err)

    def ok(self, *arguments: str, stdin: str = "") -> Answer:
        answer = self(*arguments, stdin=stdin)
        assert answer.status == 0, answer.err
        return answer


@pytest.fixture(scope="module")
def admit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("up")) as up:
        up.ok("apply", "-f", "-", stdin=QUEUES)
        yield up


def test_get_returns_objects_that_apply_has_reported(admit: Up) -> None:
    manifest = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-x, labels: {a: b}}\n"
    assert admit.ok("apply", "-f", "-", stdin=manifest).lines == ["namespace/team-x created"]
    assert admit.ok("get", "ns", "team-x", "-o", "json").json()["metadata"]["labels"] == {"a": "b"}
    changed = admit.ok("apply", "-f", "-", stdin=manifest.replace("a: b", "a: c"))
    assert changed.lines == ["namespace/team-x changed"]
    assert admit.ok("get", "namespaces", "-o", "name").lines == ["namespace/team-x"]
    assert admit.ok("delete", "ns/team-x").lines == ["namespace/team-x deleted"]
    assert admit("get", "ns", "team-x").status == 1


def test_a_command_runs_in_its_folder_through_quota_to_its_end(admit: Up) -> None:
    submitted = admit.ok(
        *("submit", "--name", "hello", "--wait", "--timeout", "50s", "--time", "1h"),
        *("--env", "A=$(B) $$", "--", "sh", "-c", 'echo "from $A"; pwd'),
    )
    here = os.environ.get("PWD", "")
    here = here if here and Path(here).samefile(Path.cwd()) else str(Path.cwd())
    assert f"folder: {here}\n" in submitted.err
    assert submitted.lines == [
        "workload.kueue.x-k8s.io/hello created",
        "workload.kueue.x-k8s.io/hello finished",
    ]
    assert admit.ok("logs", "workload", "hello").lines == ["from $(B) $$", str(Path.cwd())]
    events = admit.ok("events", "workload", "hello", "-o", "json")
    told = [fact_of(line) for line in events.lines]
    assert admit("events", "--workload", "missing").status == 1
    # An object that is applied is on the log as well, and no workload: the queue of that name.
    assert admit("events", "--workload", "main").status == 1
    assert told[0] == "submitted"
    assert told.index("quota_reserved") < told.index("admitted") < told.index("finished")
    story = admit.ok("describe", "wl", "hello").out
    assert "Phase:" in story
    assert "Succeeded" in story
    spans = admit.ok("trace", "workload", "hello", "-o", "json").json()["spans"]
    names = ["workload", "queue", "attempt", "reservation", "admission", "start", "run"]
    assert [*dict.fromkeys(span["name"] for span in spans)] == names
    assert spans[0]["attributes"]["admittance.outcome"] == "Succeeded"
    shown = admit.ok("trace", "workload", "hello").lines
    assert shown[0].startswith(f"trace {spans[0]['traceId']} of default/hello, from ")
    assert re.fullmatch(r"workload +0s +\S+ +█+ +Succeeded, queue main", shown[2])
    unknown = admit("trace", "workload", "missing")
    assert (unknown.status, unknown.out) == (1, "")
    assert "no workload missing in namespace default" in unknown.err


def test_a_machine_is_shown_cordoned_and_drained(admit: Up) -> None:
    [named] = admit.ok("get", "runners", "-o", "name").lines
    name = named.partition("/")[2]
    shown = admit.ok("get", "runner", name, "-o", "json").json()
    assert shown["status"]["capacity"].keys() >= {"cpu", "memory"}
    assert [each["status"] for each in shown["status"]["conditions"]] == ["True"]
    assert admit.ok("cordon", "runner", name).lines == [f"{named} cordoned"]
    assert admit.ok("cordon", f"runner/{name}").lines == [f"{named} unchanged"]
    [drained] = admit.ok("drain", "runner", name, "--deadline", "2h", "--reason", "fan").lines
    assert drained.startswith(f"{named} drained, empty at 20")
    described = admit.ok("describe", "runner", name).out
    assert "yes,cordoned,drained" in described
    assert "(fan)" in described
    assert admit.ok("undrain", "runner", name).lines == [f"{named} undrained"]
    assert admit.ok("uncordon", "runner", name).lines == [f"{named} uncordoned"]
    assert admit.ok("get", "runners").lines[1].split()[:2] == [name, "yes"]
    wrong = admit("drain", "runner", name, "--deadline", "soon")
    assert (wrong.status, wrong.err.count("\n")) == (2, 1)
    assert admit("cordon", "workload", name).status == 2


def test_a_submission_is_part_of_the_trace_of_its_caller(admit: Up) -> None:
    context = f"00-{'a' * 32}-{'b' * 16}-01"
    submit = ("submit", "--name", "traced", "--wait", "--timeout", "50s", "--", "true")
    run_admit(*submit, env={"ADMIT_NATS_URL": admit.url, "TRACEPARENT": context})
    admit.ok("delete", "wl", "traced")
    spans = admit.ok("trace", "workload", "traced", "-o", "json").json()["spans"]
    assert {span["traceId"] for span in spans} == {"a" * 32}
    assert (spans[0]["name"], spans[0]["parentId"]) == ("workload", "b" * 16)
    logged = map(json.loads, admit.ok("events", "--workload", "traced", "-o", "json").lines)
    traces = {entry["trace"][3:35] for entry in logged if ".deleted." not in entry["subject"]}
    assert traces == {"a" * 32}


@pytest.mark.parametrize(
    ("script", "status"),
    [pytest.param("exit 3", 3, id="exit code"), pytest.param("kill -9 $$", 137, id="signal")],
)
def test_submit_with_wait_returns_the_exit_status_of_the_job(
    admit: Up, script: str, status: int
) -> None:
    name = f"bad-{status}"
    failed = admit("submit", "--name", name, "--wait", "--", "sh", "-c", script)
    assert failed.status == status
    assert f'error: workload "{name}" failed: pod main-0 failed: ' in failed.err
    stored = admit.ok("get", "wl", name, "-o", "json").json()
    assert stored["status"]["exitCode"] == status
    for goal, why in (("Finished", "failed"), ("Succeeded", "has finished and failed")):
        waited = admit("wait", "workload", name, "--for", goal)
        assert (waited.status, waited.out) == (1, "")
        assert why in waited.err
    assert admit("wait", "workload", name, "--for", "Failed").status == 0


def test_a_script_runs_as_it_was_submitted(admit: Up, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text('#ADMIT --cpu 2 -e A=1 -e B=2\n[ $$ -gt 1 ] && echo "$(id -u) $A $B $1"\n')
    words = ("submit", "-e", "A=3", "--name", "script", str(script), "0.1")
    planned = admit.ok(*words, "--dry-run", "-o", "json").json()
    script.write_text(f"{script.read_text()}exit 3\n")
    followed = admit(*words, "--follow", "--timeout", "50s")
    assert followed.status == 3
    assert f"{os.getuid()} 3 2 0.1" in followed.lines
    assert planned["metadata"]["name"] == "script"
    late = admit("submit", "--follow", "--timeout", "1s", "--name", "late", "--", "sleep", "60")
    assert late.status == 1
    assert 'workload "late" has not finished after 1 s, and continues' in late.err
    admit.ok("delete", "workload", "late")
    admit.ok("delete", "workload", "script")
    admit.ok("apply", "-f", "-", stdin=json.dumps(planned))
    changed = ("--cpu", "1", "--time", "1h", "--priority", "7", "--name", "again-2")
    admit.ok("resubmit", "workload", "script", *changed)
    spec = admit.ok("get", "wl", "again-2", "-o", "json").json()["spec"]
    assert (spec["priority"], spec["maximumExecutionTimeSeconds"]) == (7, 3600)
    too_large = admit("resubmit", "workload", "script", "--cpu", "100")
    assert (too_large.status, too_large.out) == (1, "")
    assert "not submitted: " in too_large.err
    admit.ok("wait", "workload", "script", "--for", "Succeeded", "--timeout", "50s")
    assert admit.ok("logs", "workload", "script").lines == [f"{os.getuid()} 3 2 0.1"]
    spec = admit.ok("get", "wl", "script", "-o", "json").json()["spec"]
    [container] = spec["podSets"][0]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "2"


def test_a_job_is_submitted_once(admit: Up) -> None:
    assert admit.ok("submit", "-f", "-", stdin=JOB).lines == [
        "workload.kueue.x-k8s.io/two-pods created"
    ]
    assert admit.ok("apply", "-f", "-", stdin=JOB).lines == [
        "workload.kueue.x-k8s.io/two-pods unchanged"
    ]
    admit.ok("wait", "workload", "two-pods", "--for", "finished", "--timeout", "50")
    assert sorted(admit.ok("logs", "wl", "two-pods").lines) == [
        "main-0 | hello",
        "main-1 | hello",
    ]
    assert admit.ok("logs", "wl", "two-pods", "--pod", "1").out == "hello\n"
    assert admit.ok("logs", "wl", "two-pods", "--pod", "1", "--tail", "0").out == ""


def test_files_go_to_a_job_and_come_back(admit: Up, tmp_path: Path) -> None:
    program = tmp_path / "double.sh"
    program.write_text("#!/bin/sh\nmkdir results && cat $0 $0 >results/twice")
    program.chmod(0o755)
    files = ("--input", str(program), "--output", "results/twice", "--output", "gone")
    answer = admit.ok(
        "submit", "--name", "files", *files, "--wait", "-o", "name", "--", "./double.sh"
    )
    assert answer.lines[0] == "workload.kueue.x-k8s.io/files"
    fetched = admit("fetch", "workload", "files", "--output-dir", str(tmp_path / "back"))
    twice = tmp_path / "back" / "results" / "twice"
    assert (fetched.status, fetched.lines) == (1, [f"{twice} fetched"])
    assert fetched.err == "error: gone: the job left no such file\n"
    assert twice.read_text() == 2 * program.read_text()
    assert re.search(r"gone +- +the job left no", admit.ok("describe", "workload", "files").out)
    admit.ok("submit", "--name", "plain", "--", "true")
    again = admit("fetch", "workload", "plain")
    assert (again.status, "keeps no files" in again.err) == (1, True)


def test_a_file_above_the_limit_is_refused_before_it_is_sent(admit: Up, tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate((100 << 20) + 1)
    answer = admit("submit", "--input", str(tmp_path / "big"), "--", "true")
    assert answer.status == 1
    assert "104,857,601 bytes, and a workload may have 104,857,600" in answer.err


def test_a_taken_name_is_refused(admit: Up) -> None:
    admit.ok("submit", "--name", "taken", "--", "true")
    again = admit("submit", "--name", "taken", "--", "false")
    assert (again.status, again.out) == (1, "")
    assert "another spec" in again.err
    for words in (("get", "workload", "taken"), ("events", "--workload", "taken")):
        said = admit(*words, "-n", "x").err
        assert " not found in namespace x at nats://127.0.0.1:" in said
        assert "; namespace default has one: use -n default" in said


@pytest.mark.parametrize(
    ("options", "status", "why"),
    [
        (("-l", "a b=c"), 2, "metadata.labels: 'a b' is not a label key"),
        (("--flavor", "No Name"), 2, "spec.admissionConstraints.allowedResourceFlavors"),
        (("--max-time", "0"), 2, "must be a whole number of seconds, at least 1"),
        (
            ("--priority-class", "none"),
            1,
            "not submitted: WorkloadPriorityClass none does not exist",
        ),
        (("--flavor", "none"), 1, "clusterqueue cq has no flavor none, it has spot; --anyway"),
    ],
    ids=["label", "flavor name", "time", "class", "flavor"],
)
def test_a_wrong_option_of_a_command_is_refused_in_one_line(
    options: tuple[str, ...], status: int, why: str, admit: Up
) -> None:
    refused = admit("submit", "-q", "main", *options, "--", "true")
    assert (refused.status, refused.out) == (status, "")
    [line] = refused.err.splitlines()
    assert line.startswith("error: ")
    assert why in line


def test_a_command_for_a_queue_that_does_not_exist_is_refused(admit: Up) -> None:
    typed = ("submit", "-q", "nowhere", "--name", "early")
    refused = admit(*typed, "--", "true")
    assert (refused.status, refused.out) == (1, "")
    assert "LocalQueue default/nowhere does not exist; --anyway submits it" in refused.err
    assert admit("get", "wl", "early").status == 1
    sent = admit(*typed, "--anyway", "--", "true")
    assert (sent.status, sent.lines) == (0, ["workload.kueue.x-k8s.io/early created"])
    assert "LocalQueue default/nowhere does not exist" in sent.err
    admit.ok("delete", "workload", "early")


def test_a_command_that_its_queue_can_never_hold_is_refused(admit: Up) -> None:
    refused = admit("submit", "--name", "big", "--cpu", "100", "--", "true")
    assert (refused.status, refused.out) == (1, "")
    assert "cpu: 100 > 4, the most that flavor spot can give" in refused.err
    assert "--anyway" in refused.err
    manifest = JOB.replace("two-pods", "big").replace("cpu: 1}", "cpu: 100}")
    for verb in ("submit", "apply"):
        accepted = admit.ok(verb, "-f", "-", stdin=manifest)
        assert accepted.lines[0].split()[0] == "workload.kueue.x-k8s.io/big"
        assert "cpu: 200 > 4, the most that flavor spot can give" in accepted.err
    admit.ok("delete", "workload", "big")


def test_a_job_of_an_image_only_warns_without_a_container_engine(admit: Up) -> None:
    manifest = JOB.replace("two-pods", "image").replace("command: [sh, -c]", "image: example/x")
    manifest = "".join(line for line in manifest.splitlines(True) if "args:" not in line)
    assert "image example/x cannot run" in admit.ok("submit", "-f", "-", stdin=manifest).err
    waited = admit("wait", "workload", "image", "--for", "Finished", "--timeout", "50")
    assert (waited.status, "FailedToStart" in waited.err) == (1, True)


def test_submit_warns_of_a_stopped_queue_and_events_mark_void_requests(admit: Up) -> None:
    manifest = QUEUES.partition("---")[2].replace("name: cq}", "name: closed}")
    closed = manifest.replace("name: main", "name: closed").replace(
        "namespaceSelector", "stopPolicy: Hold\n  namespaceSelector"
    ).replace("clusterQueue: cq", "clusterQueue: closed")  # fmt: skip
    admit.ok("apply", "-f", "-", stdin=closed)
    answer = admit.ok("submit", "-q", "closed", "--name", "waits", "--", "true")
    assert "warning: ClusterQueue closed has stopPolicy Hold" in answer.err
    admit("release", "workload", "waits")
    events = admit.ok("events", "--workload", "waits").lines
    (released,) = (line for line in events if " released " in line)
    assert "(does not count: NotHeld: " in released
    for object_name in ("wl/waits", "lq/closed", "cq/closed"):
        admit.ok("delete", object_name)


def test_events_of_a_recreated_workload_exclude_those_of_its_predecessor(admit: Up) -> None:
    for priority in ("1", "2"):
        admit.ok(*("submit", "--name", "twice", "--anyway", "--cpu", "100"), *("--", "true"))
        admit.ok("priority", "workload", "twice", priority)
        if priority == "1":
            admit.ok("delete", "wl", "twice")
    story = admit.ok("describe", "wl", "twice").out.partition("Last events")[2]
    assert [story.count(word) for word in ("submitted", "priority 1", "deleted")] == [1, 0, 0]
    assert "priority 2" in story
    assert admit.ok("events", "--workload", "twice").out.count("submitted") == 2
    spans = admit.ok("trace", "workload", "twice", "-o", "json").json()["spans"]
    assert [span["name"] for span in spans if "end" not in span] == ["workload", "queue"]
    priorities = [
        event["attributes"]["admittance.priority"]
        for span in spans
        for event in span.get("events", ())
        if event["name"] == "reprioritized"
    ]
    assert priorities == [2]
    admit.ok("delete", "wl", "twice")


def test_a_reason_has_the_same_name_in_every_view(admit: Up) -> None:
    stopped = QUEUES.replace("name: cq", "name: off").replace(
        "clusterQueue: cq", "clusterQueue: off"
    )
    stopped = stopped.replace("name: main", "name: off").replace(
        "spec:\n", "spec:\n  stopPolicy: Hold\n"
    )
    admit.ok("apply", "-f", "-", stdin=stopped)
    queues = {"huge": "main", "off": "off", "astray": "nowhere"}
    for name, queue in queues.items():
        typed = ("submit", "-q", queue, "--name", f"why-{name}", "--anyway", "--cpu", "100")
        admit.ok(*typed, "--", "true")
    wanted = {"huge": "ExceedsMaxQuota", "off": "Stopped", "astray": "Misconfigured"}
    pending = {
        row["name"]: row["reason"]
        for row in admit.ok("get", "pending", "-o", "json").json()["items"]
    }
    rows = {line.split()[0]: line.split()[-1] for line in admit.ok("get", "wl").lines[1:]}
    for name, reason in wanted.items():
        own = f"why-{name}"
        assert pending[own] == reason
        assert rows[own] == reason
        assert admit.ok("explain", "wl", own, "-o", "json").json()["reason"] == reason
        assert f" {reason}:" in admit.ok("describe", "wl", own).out
        admit.ok("delete", "wl", own)
    assert admit.ok("get", "wl", "-q", "off").lines == []
    admit.ok("delete", "lq/off", "cq/off")


def test_users_stop_activate_hold_and_release(admit: Up) -> None:
    def state() -> tuple[str, str]:
        row = admit.ok("get", "wl", "mine").lines[1].split()
        return row[3], row[-1]

    admit.ok("submit", "--name", "mine", "--anyway", "--cpu", "100", "--", "true")
    admit.ok("hold", "workload", "mine")
    assert state() == ("Pending", "OnHold")
    admit.ok("release", "workload", "mine")
    assert state() != ("Pending", "OnHold")
    admit.ok("stop", "workload", "mine")
    assert state()[0] == "Deactivated"
    again = admit("cancel", "workload", "mine")
    assert (again.status, again.err) == (0, 'workload "mine": it is not active\n')
    assert "`admit activate workload mine`" in admit.ok("explain", "workload", "mine").out
    waited = admit("wait", "workload", "mine", "--for", "Admitted")
    assert waited.status == 1
    assert "will not be Admitted" in waited.err
    admit.ok("activate", "workload", "mine")
    assert state()[0] == "Pending"
    admit.ok("priority", "workload", "mine", "-7")
    assert admit.ok("get", "wl", "mine", "-o", "json").json()["spec"]["priority"] == -7
    admit.ok("finish", "workload", "mine", "--failed")
    assert state() == ("Finished", "Failed")
    assert "mine is Finished (Failed" in admit.ok("explain", "workload", "mine").out
    for command in ("hold", "cancel"):
        late = admit(command, "workload", "mine")
        assert (late.status, late.out) == (1, "")
        assert f'workload "mine" is Finished: `admit {command}` changes nothing' in late.err


def test_a_job_too_big_for_the_bus_is_named_by_its_file(admit: Up) -> None:
    big = JOB.replace("echo hello", "x" * 5_000_000)
    answer = admit("submit", "-f", "-", stdin=big)
    assert answer.status == 2
    assert "document 1: workload default/" in answer.err
    assert "more than the bus takes" in answer.err
    assert answer.err.count("\n") == 1


def test_a_wait_that_times_out_is_an_answer(admit: Up) -> None:
    admit.ok("submit", "--name", "never", "--anyway", "--cpu", "100", "--", "true")
    waited = admit("wait", "workload", "never", "--for", "Admitted", "--timeout", "0.2s")
    assert waited.status == 1
    assert "not Admitted, after 0.2 s" in waited.err
    admit.ok("delete", "wl", "never")


def test_a_queue_in_use_is_deleted_later_unless_it_is_applied_again(admit: Up) -> None:
    admit.ok("submit", "--name", "sleeper", "--", "sleep", "300")
    admit.ok("wait", "wl/sleeper", "--for", "Admitted", "--timeout", "50")
    queue = admit.ok("get", "cq", "cq", "-o", "json").json()
    assert queue["status"]["reservingWorkloads"] == 1
    kept = admit.ok("delete", "cq", "cq")
    assert kept.lines == ["clusterqueue.kueue.x-k8s.io/cq deleting"]
    assert "still in use by Workload default/sleeper" in kept.err
    queue = admit.ok("get", "cq", "cq", "-o", "json").json()
    assert "deletionTimestamp" in queue["metadata"]
    applied = admit.ok("apply", "-f", "-", stdin=QUEUES)
    assert "clusterqueue.kueue.x-k8s.io/cq changed" in applied.lines
    assert admit.ok("delete", "wl", "sleeper").lines == ["workload.kueue.x-k8s.io/sleeper deleted"]


def test_events_are_followed_as_they_happen(admit: Up) -> None:
    following = subprocess.Popen(
        [ADMIT, "events", "--workload", "seen", "--follow", "-o", "json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ADMIT_NATS_URL": admit.url},
    )
    try:
        admit.ok("submit", "--name", "seen", "--", "true")
        printed = []
        assert following.stdout is not None
        for line in following.stdout:
            printed.append(fact_of(line))
            if printed[-1] == "finished":
                break
        assert printed[0] == "submitted"
        assert len(printed) == len(set(printed)), "nothing is printed twice"
    finally:
        following.kill()
        following.wait()
        assert following.stdout is not None
        following.stdout.close()


def test_an_interrupted_wait_says_that_the_job_continues(admit: Up) -> None:
    waiting = subprocess.Popen(
        [ADMIT, "submit", "-q", "main", "--name", "long", "--wait", "--", "sleep", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ADMIT_NATS_URL": admit.url},
    )
    try:
        assert waiting.stderr is not None
        for line in waiting.stderr:
            if "Running" in line:
                break
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=LIMIT)
    finally:
        waiting.kill()
        waiting.wait()
    assert waiting.returncode == 130
    [line] = said.splitlines()
    assert line.startswith("long continues; `admit wait workload long --for Finished` waits again")
    assert admit.ok("get", "wl", "--state", "Running", "-o", "name").lines == [
        "workload.kueue.x-k8s.io/long"
    ]
    admit.ok("cancel", "workload", "long")
    admit.ok("wait", "workload", "long", "--for", "Deactivated", "--timeout", "50")
    admit.ok("delete", "workload", "long")


def test_the_doctor_reports_a_healthy_system(admit: Up) -> None:
    reply = admit("doctor", "-o", "json").json()
    wrong = [check for check in reply["checks"] if check["state"] == "wrong"]
    assert wrong == []
    things = {check["what"] for check in reply["checks"]}
    assert {"scheduler", "workload-controller", "runner"} <= things
    assert {f"stream {stream.name}" for stream in all_streams()} <= things


def test_an_array_runs_its_elements_and_submits_again_what_failed(admit: Up) -> None:
    script = 'echo "$ADMITTANCE_ARRAY_INDEX of $ADMITTANCE_ARRAY_COUNT"; '
    script += "[ $ADMITTANCE_ARRAY_INDEX != 4 ]"
    asked = ("--array", "0-6:2%2")
    admit.ok("submit", "--name", "sweep", "-q", "main", *asked, "--", "sh", "-c", script)
    ended = admit("wait", "workload", "sweep", "--for", "Finished", "--timeout", "50s")
    assert "sweep" in ended.err
    assert "4 elements: 3 succeeded, 1 failed" in ended.err
    assert admit.ok("logs", "workload", "sweep[6]").out == "6 of 4\n"
    assert "an array" in admit("logs", "workload", "sweep").err
    assert "an array" in admit("fetch", "workload", "sweep").err
    listed = admit.ok("get", "workloads").lines
    assert [line.split()[0] for line in listed if line.startswith("sweep")] == ["sweep"]
    assert "3 succeeded, 1 failed of 4" in next(line for line in listed if "sweep" in line)
    label = ("-l", "admittance.dev/array=sweep", "-o", "name")
    assert len(admit.ok("get", "workloads", *label).lines) == 4
    waited = admit("wait", "workload", "sweep[2-6:2]", "--for", "Finished")
    assert waited.err.strip().endswith("1 of 3 elements did not succeed: sweep[4]")
    assert 'array "sweep" has no element 1' in admit("explain", "workload", "sweep[1]").err
    admit.ok("resubmit", "workload", "sweep", "--failed", "--name", "again")
    again = admit.ok("get", "workload", "again", "-o", "json").json()
    assert again["spec"]["array"]["indexes"] == "4"
    admit("wait", "workload", "again", "--for", "Finished", "--timeout", "50s")
    admit.ok("delete", "workload", "sweep", "again")
    answer_with(lambda: admit("get", "workloads", *label).out, lambda names: "sweep" not in names)


def test_a_second_up_on_the_same_folder_is_refused(admit: Up) -> None:
    second = admit("up", "--data-dir", str(admit.folder / "data"), "--port", "0")
    assert (second.status, second.out) == (1, "")
    assert "another `admit up`" in second.err.splitlines()[-1]


def test_without_services_the_answer_says_which_one_is_missing(tmp_path: Path) -> None:
    up = Up(tmp_path)
    up.start()
    assert up.process is not None
    assert up.end(signal.SIGKILL) == -signal.SIGKILL
    # The server lives on without its services, of which one lists objects.
    assert "workload-controller is not running" in up("get", "workloads").err
    assert '"x" not found in namespace default' in up("get", "workload", "x").err
    applied = up("apply", "-f", "-", stdin=QUEUES)
    assert applied.status == 1
    assert "workload-controller is not running" in applied.err
    assert "scheduler is not running" in up("get", "pending").err
    assert up("doctor").status == 1
    # The next one on the folder takes over, at once: see the lease above.
    up.start()
    up.ok("apply", "-f", "-", stdin=QUEUES)
    mark, log = tmp_path / "mark", tmp_path / "log"
    stays = f"trap '' TERM; touch {mark}; while [ -e {mark} ]; do sleep 0.1; done"
    up.ok("submit", "--name", "stays", "-q", "main", "--", "sh", "-c", stays)
    answer_with(mark.exists, bool)

    def is_ending() -> bool:
        assert up.process is not None
        up.process.send_signal(signal.SIGTERM)
        return "already ending" in log.read_text()

    answer_with(is_ending, bool)
    assert up.end(signal.SIGINT) == 128 + signal.SIGINT
    # The last line says what stays; the server is not among it.
    assert log.read_text().splitlines()[-1].startswith("error: ended at once by Ctrl-C: jobs")
    assert up("get", "wl").status == 1
