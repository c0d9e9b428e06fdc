"""`admit up` with a locked server: users, context, and data folders from before the lock."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import sys
import tarfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from getpass import getuser
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import pytest_asyncio

from admittance.bench.system import Child
from admittance.events.subjects import SUMMARIES
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.messages import SECRET_KEY
from admittance.runtime.bus.streams import KV_CLAIMS, all_streams
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from recorded.story import NAMESPACE
from support.needs import needs_root
from support.processes.fork_server import Answer, run_admit
from support.processes.forked_system import start
from support.programs.old_version import unpack
from support.programs.otlp_receiver import OtlpReceiver, otlp_receiver
from support.requests import eventually
from support.servers import LIMIT, until, within

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

ADMIT = Path(sys.executable).parent / "admit"
RECORDED = Path(__file__).parents[2] / "recorded"
SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: mine}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: mine}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: mine, resources: [{name: cpu, nominalQuota: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: mine, namespace: mine}
spec: {clusterQueue: mine}
"""
LIMITS = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
userLimits: {maxManifestBytes: 4096, maxPendingPerLocalQueue: 1}
"""
AS_ANOTHER_USER = """
import os, sys
from admittance.cli.commands.program import invoke
invoke(["get", "workloads"])
os.environ["XDG_CONFIG_HOME"] = sys.argv[1]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
status = invoke(["get", "workloads"])
print("as another user:", status, file=sys.stderr)
sys.exit(status)
"""


def read_text(url: str) -> str:
    """The text at a URL."""
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return str(answer.read().decode())


class Folder:
    """A data folder, and commands of the Unix user that starts `admit up` on it."""

    def __init__(self, root: Path, **env: str) -> None:
        """``env``: further variables of `admit up`."""
        self.env = env
        self.root = root
        self.data = root / "data"
        self.auth = self.data / "auth"

    @asynccontextmanager
    async def up(self, *options: str, runner: bool = False) -> AsyncIterator[Child]:
        options = options if runner else (*options, "--no-runner")
        arguments = ["up", "--port", "0", "--data-dir", str(self.data), *options]
        child = await start(arguments, self.root / "log", self.env)
        try:
            await child.ready()
            yield child
        finally:
            await child.stop()

    async def admit(self, *words: str, **env: str) -> Answer:
        env = {"ADMIT_NATS_URL": "", "XDG_CONFIG_HOME": str(self.root), **env}
        return await asyncio.to_thread(run_admit, *words, env=env)

    async def add_user(self, name: str, role: str, *words: str) -> str:
        """The credentials file of a new user that the server knows."""
        file = str(self.root / f"{name}.creds")
        added = ("auth", "add", role, name, *words, "--dir", str(self.auth), "-o", file)
        status, _, err = await self.admit(*added)
        if status != 0:
            # On a slow machine the server may answer late; `admit up` tells it again.
            assert "does not answer" in err, err

            async def is_known() -> bool:
                _, _, err = await self.admit("--creds", file, "get", "workloads")
                return "the server does not know them" not in err

            await eventually(is_known)
        return file

    def creds(self, name: str) -> ConnectionOptions:
        return ConnectionOptions(creds=str(self.auth / f"{name}.creds"))

    async def workloads(self) -> Any:
        status, out, err = await self.admit("get", "wl", "-n", NAMESPACE, "-o", "json")
        assert status == 0, err
        return json.loads(out)["items"]

    async def waits_for_quota(self, name: str) -> bool:
        (listed,) = [
            listed_workload
            for listed_workload in await self.workloads()
            if listed_workload["metadata"]["name"] == name
        ]
        conditions = listed["status"]["conditions"]
        return "WaitingForQuota" in {condition["reason"] for condition in conditions}


async def stored(url: str, access: ConnectionOptions) -> dict[str, Any]:
    """Sequences of all streams, the durables of checks and providers, and the secret of message
    ids."""
    bus = await Bus.connect(url, name="test", access=access)
    try:
        settings: dict[str, Any] = {}
        for stream in all_streams():
            info = await bus.api(f"STREAM.INFO.{stream.name}")
            # Every start writes leases anew, so the bucket of claims loses old messages, and a sum
            # of usage replaces the one before.
            replaces = stream.name in (KV_CLAIMS, SUMMARIES)
            first = None if replaces else info["state"]["first_seq"]
            settings[stream.name] = (info["created"], first)
        listed = await bus.api("CONSUMER.LIST.ADMITTANCE")
        settings["durables"] = {
            # One that were made anew would start at the first fact.
            consumer["name"]: (consumer["created"], consumer["delivered"]["stream_seq"] > 1)
            for consumer in listed["consumers"]
            if consumer["name"].startswith(("check-", "provider-"))
        }
        request = {"last_by_subj": f"$KV.admittance_claims.{SECRET_KEY}"}
        settings["secret"] = (await bus.api(f"STREAM.MSG.GET.{KV_CLAIMS}", request))["message"][
            "data"
        ]
        return settings
    finally:
        await bus.close()


async def test_a_folder_from_before_the_lock_works_locked_and_open_again(tmp_path: Path) -> None:
    with tarfile.open(RECORDED / "2026-11-22.tar.xz") as packed:
        unpack(packed, tmp_path)
    folder = Folder(tmp_path)
    async with folder.up("--insecure") as open_up:
        before = await stored(open_up.url, NO_OPTIONS)
        # Its runner is gone, so the start frees its quota, and it competes again.
        await eventually(lambda: folder.waits_for_quota("victim"))
        listed = await folder.workloads()
        # The open server stays behind, and the locked start ends it.
        open_up.kill()
    assert before["durables"]
    assert len(listed) > 5
    async with folder.up() as locked:
        assert await stored(locked.url, folder.creds("workload-controller")) == before
        assert await folder.workloads() == listed
        stranger = await folder.admit("get", "wl", XDG_CONFIG_HOME=str(tmp_path / "stranger"),
                                      ADMIT_NATS_URL=locked.url)  # fmt: skip
        assert stranger[0] == 1
        assert "demands signed credentials: name a credentials file with --creds" in stranger[2]
    async with folder.up("--insecure") as insecure:
        assert await stored(insecure.url, NO_OPTIONS) == before
        assert await folder.workloads() == listed
        assert "every program of this machine may do everything here" in insecure.log.read_text()
    async with folder.up() as locked:
        assert await stored(locked.url, folder.creds("workload-controller")) == before


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def folder(
    tmp_path_factory: pytest.TempPathFactory, receiver: OtlpReceiver
) -> AsyncIterator[Folder]:
    """A new folder with a locked `admit up` on it, which exports traces."""
    export = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "20"}
    made = Folder(tmp_path_factory.mktemp("locked_up"), **export)
    # Jobs of ada run as this Unix user, as those of the admin do.
    rules = [f"--run-as=user:{name}={getuser()}" for name in ("ada", "admin")]
    async with made.up(*rules, "--processes=2", runner=True):
        yield made


async def test_keys_are_readable_for_their_unix_user_only(folder: Folder) -> None:
    assert stat.S_IMODE(folder.auth.stat().st_mode) == 0o700
    files = list(folder.auth.iterdir())
    assert {"users.json", "auth.conf", "admin.creds", "scheduler.creds"} <= {f.name for f in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_commands_find_server_and_credentials_by_the_context(folder: Folder) -> None:
    status, shown, _ = await folder.admit("context", "show", "-o", "json")
    assert status == 0
    assert json.loads(shown)["creds"] == str(folder.auth / "admin.creds")
    assert (await folder.admit("get", "workloads"))[0] == 0


@needs_root
async def test_other_unix_user_of_the_machine_gets_one_refusal(folder: Folder) -> None:
    _, shown, _ = await folder.admit("context", "show", "-o", "json")
    # `su` keeps the environment, so the folder of contexts is that of the first user. The other
    # user may not read Python itself, so the command runs once before.
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", AS_ANOTHER_USER, str(folder.root)),
        env={**os.environ, "ADMIT_NATS_URL": json.loads(shown)["url"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await within(done.communicate())
    assert (done.returncode, out) == (1, b"")
    first, second, end = err.decode().splitlines()
    assert end == "as another user: 1"
    assert first == second
    assert "demands signed credentials: name a credentials file with --creds" in second


async def test_doctor_finds_a_locked_system_healthy(folder: Folder) -> None:
    status, out, err = await folder.admit("doctor", "-o", "json")
    assert (status, json.loads(out)["healthy"]) == (0, True), err


async def test_doctor_names_unreadable_data_under_a_login(folder: Folder) -> None:
    _, shown, _ = await folder.admit("context", "show", "-o", "json")
    viewer = await folder.add_user("v", "viewer")
    url, service = json.loads(shown)["url"], folder.creds("workload-controller")
    bus = await Bus.connect(url, name="test", access=service)
    key = "$KV.admittance.workload.default.broken"
    await bus.publish(Outgoing(key, b"junk"))
    for login in ((), ("--creds", viewer)):
        status, out, err = await folder.admit(*login, "doctor")
        assert status == 1, err
        (line,) = [shown for shown in out.splitlines() if shown.startswith("wrong: ")]
        assert "set aside: KV_admittance workload.default.broken" in line
        assert "JSON is malformed" in line
        assert "`admit delete --stored workload.default.broken`" in out
    await bus.close()
    status, out, err = await folder.admit("delete", "--stored", "workload.default.broken")
    assert (status, out) == (0, "workload.default.broken deleted\n"), err
    status, out, err = await folder.admit("doctor")
    assert status == 0, err
    assert "none: all entries can be read; " in out
    assert "which only services may read" in out


async def test_job_of_a_person_runs_and_the_log_names_its_user(folder: Folder) -> None:
    submit = ("submit", "-q", "research", "--name", "hello", "--wait", "--", "echo", "hello")
    wait = ("wait", "workload", "hello", "--for", "Finished")
    for words in (("apply", "-f", str(SAMPLES / "queues.yaml")), submit, wait):
        status, _, err = await folder.admit(*words)
        assert status == 0, err
    assert (await folder.admit("logs", "workload", "hello"))[1] == "hello\n"
    assert "by admin" in (await folder.admit("events", "--workload", "hello"))[1]
    assert (await folder.admit("explain", "workload", "hello"))[0] == 0


async def test_trace_of_a_job_reaches_the_receiver(folder: Folder, receiver: OtlpReceiver) -> None:
    submit = ("submit", "-q", "research", "--name", "traced", "--wait", "--", "true")
    for words in (("apply", "-f", str(SAMPLES / "queues.yaml")), submit):
        status, _, err = await folder.admit(*words)
        assert status == 0, err

    def names() -> set[str]:
        own = [
            span for span in receiver.spans if span.attributes["admittance.workload"] == "traced"
        ]
        return {entry.span.name for entry in own}

    await until(lambda: "workload" in names())
    assert names() >= {"queue", "reservation", "admission", "start", "run", "workload"}


async def test_admin_reads_objects_of_foreign_kinds(folder: Folder) -> None:
    file = folder.root / "weekly.yaml"
    file.write_text("apiVersion: example.com/v1\nkind: Budget\nmetadata: {name: weekly}\n")
    status, out, err = await folder.admit("apply", "-f", str(file))
    assert (status, "created (foreign parameters)" in out) == (0, True), err
    status, out, err = await folder.admit("get", "budget.example.com", "weekly", "-o", "name")
    assert (status, "weekly" in out) == (0, True), err


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(folder: Folder) -> str:
    """The credentials file of a user of the namespace default, with queues and a job there."""
    file = await folder.add_user("ada", "user", "--namespace", "default")
    for command in (
        ("apply", "-f", str(SAMPLES / "queues.yaml")),
        ("--creds", file, "submit", "-q", "research", "--name", "ada-1", "--", "true"),
        ("--creds", file, "wait", "workload", "ada-1", "--for", "Finished"),
    ):
        status, _, err = await folder.admit(*command)
        assert status == 0, err
    return file


@pytest.mark.parametrize(
    "words",
    [
        "get workloads",
        "get localqueues",
        "get pending",
        "get workload ada-1",
        "describe workload ada-1",
        "describe clusterqueue research",
        "explain workload ada-1",
        "events",
        "events --workload ada-1",
        "logs workload ada-1",
        f"simulate -f {SAMPLES / 'job.yaml'}",
        f"submit -f {SAMPLES / 'job.yaml'}",
        "submit -q research --name waits --cpu 100 --anyway -- true",
        "priority workload waits 5",
        "hold workload waits",
        "release workload waits",
        "stop workload waits",
        "activate workload waits",
        "delete workload waits",
    ],
)
async def test_user_of_a_namespace_uses_a_command(folder: Folder, ada: str, words: str) -> None:
    status, _, err = await folder.admit("--creds", ada, *words.split())
    assert status == 0, err


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("get workloads -A", "may not publish to admit.api.objects._"),
        ("get workloads -n other", "may not publish to admit.api.objects.other"),
        ("simulate --delete lq/research -n other", "may not publish to"),
        ("submit -q research -n other -- true", "may not publish to"),
        (f"apply -f {SAMPLES / 'queues.yaml'}", "may not publish to admit.user.ada.apply"),
        ("finish workload ada-1", "may not publish to admit.owner.ada.finished.default.ada-1"),
        ("doctor", "`admit doctor` needs a login with the role viewer or admin"),
        ("replay --from-log 1 -n other", "may not publish to admit.api.replay.other"),
    ],
)
async def test_command_without_a_right_is_one_refusal(
    folder: Folder, ada: str, words: str, refusal: str
) -> None:
    status, out, err = await folder.admit("--creds", ada, *words.split())
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert refusal in line


async def test_admin_sees_the_bookings_of_machines(folder: Folder) -> None:
    pools = str(SAMPLES / "provisioning" / "machines.yaml")
    assert (await folder.admit("apply", "-f", pools))[0] == 0
    status, out, err = await folder.admit("get", "machinepools", "-o", "json")
    assert (status, err) == (0, "")
    assert json.loads(out)["items"]


@pytest.mark.parametrize("login", ["admin", "ada"])
@pytest.mark.parametrize(
    ("words", "name"),
    [("get workload ", "ada-1"), ("submit -q ", "research"), ("auth show ", "ada")],
)
async def test_shell_completes_names_with_a_credentials_file(
    folder: Folder, ada: str, login: str, words: str, name: str
) -> None:
    typed = f"admit --creds {ada} {words}" if login == "ada" else f"admit {words}"
    shell = {"_ADMIT_COMPLETE": "complete_bash", "COMP_WORDS": typed}
    shell["COMP_CWORD"] = str(len(typed.split()))
    assert name in (await folder.admit(**shell))[1].split()


async def test_services_lack_no_permission(folder: Folder) -> None:
    log = (folder.root / "log").read_text().lower()
    assert [line for line in log.splitlines() if "permission" in line or "may not" in line] == []


async def test_jobs_of_a_new_colleague_run_without_a_restart(folder: Folder, ada: str) -> None:
    del ada  # the queues are there
    file = await folder.add_user("ben", "user", "--namespace", "default")
    submit = ("--creds", file, "submit", "-q", "research", "--name", "ben-1", "--", "id", "-u")
    assert (await folder.admit(*submit))[0] == 1
    uid = os.geteuid() or 65534
    rule = ("auth", "run-as", f"user:ben={uid}", "--dir", str(folder.auth))
    status, _, err = await folder.admit(*rule)
    assert status == 0, err

    async def is_submitted() -> bool:
        return (await folder.admit(*submit))[0] == 0

    await eventually(is_submitted)
    wait = ("--creds", file, "wait", "workload", "ben-1", "--for", "Finished")
    assert (await folder.admit(*wait))[0] == 0
    assert (await folder.admit("logs", "workload", "ben-1"))[1] == f"{uid}\n"

    large = ("--cpu", "100000", "--anyway", "--name", "ben-2", "--", "true")
    assert (await folder.admit("--creds", file, "submit", "-q", "research", *large))[0] == 0
    explain = ("--creds", file, "explain", "workload", "ben-2")
    assert "no runner" not in (await folder.admit(*explain))[1]
    without = ("auth", "run-as", "user:ben", "--remove", "--dir", str(folder.auth))
    assert (await folder.admit(*without))[0] == 0

    async def is_said() -> bool:
        said = (await folder.admit(*explain))[1]
        needed = "besides: a Unix user for its job: `admit auth run-as user:ben=UNIX_USER`"
        return "its job will fail: no runner has a Unix user" in said and needed in said

    await eventually(is_said)
    warned = (await folder.admit("--creds", file, "simulate", "-f", str(SAMPLES / "job.yaml")))[2]
    assert "its submission would be refused: no runner has a Unix user for jobs of" in warned
    assert (await folder.admit(*rule))[0] == 0
    gone = await folder.admit("auth", "revoke", "ben", "--dir", str(folder.auth))
    assert f"removed the rule user:ben={uid}" in gone[1]


async def test_user_is_disconnected_when_its_time_is_over(folder: Folder) -> None:
    file = folder.root / "guest.creds"
    began = monotonic()
    added = await folder.admit(
        *("auth", "add", "viewer", "guest", "--expires", "3s", "-o", str(file)),
        *("--dir", str(folder.auth)),
    )
    assert added == (0, f"added guest (viewer): credentials in {file}\n", "")
    status, _, _ = await folder.admit("--creds", str(file), "get", "workloads")
    assert status == 0 or monotonic() - began > 3.0

    async def is_gone() -> bool:
        return "guest" not in (await folder.admit("auth", "list", "--dir", str(folder.auth)))[1]

    await eventually(is_gone)

    async def is_refused() -> bool:
        status, _, err = await folder.admit("--creds", str(file), "get", "workloads")
        return status == 1 and "the server does not know them, or they were revoked" in err

    await eventually(is_refused)


async def test_lost_credentials_of_a_service_are_made_anew(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    async with folder.up():
        pass
    admin = (folder.auth / "admin.creds").read_text()
    (folder.auth / "scheduler.creds").unlink()
    async with folder.up() as again:
        again.kill()
    # The server stays behind with the users of then.
    (folder.auth / "retry-timer.creds").unlink()
    async with folder.up():
        assert (await folder.admit("doctor"))[0] == 0
    assert (folder.auth / "admin.creds").read_text() == admin


async def test_jobs_of_other_users_need_a_unix_user_of_their_own(folder: Folder) -> None:
    creds = await folder.add_user("mia", "user", "--namespace", "mine")
    queue = folder.root / "queue.yaml"
    queue.write_text(QUEUE)
    assert (await folder.admit("apply", "-f", str(queue)))[0] == 0
    mine = ("submit", "-n", "mine", "-q", "mine", "--wait", "--name")
    status, _, error = await folder.admit(*mine, "by-admin", "--", "true")
    assert status == 0, error
    status, _, error = await folder.admit("--creds", creds, *mine, "by-mia", "--", "true")
    assert status == 1
    assert "no runner has a Unix user for jobs of the user mia in namespace mine: " in error
    assert "admit auth run-as user:mia=UNIX_USER" in error
    assert (await folder.admit("get", "workload", "by-mia", "-n", "mine"))[0] == 1


async def test_limits_of_people_refuse_submissions_and_count_them(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    config = tmp_path / "configuration.yaml"
    config.write_text(LIMITS)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        admin = f"127.0.0.1:{probe.getsockname()[1]}"
    submit = ("submit", "-q", "research", "--cpu", "50", "--anyway", "--name")
    async with folder.up("--config", str(config), "--admin", admin):
        assert (await folder.admit("apply", "-f", str(SAMPLES / "queues.yaml")))[0] == 0
        assert (await folder.admit(*submit, "one", "--", "true"))[0] == 0
        for words, refusal in (
            (("two", "--", "true"), "LocalQueue default/research has 1 pending workloads, 1 are"),
            (("three", "--", "true", "x" * 5_000), "the manifest has "),
        ):
            status, out, err = await folder.admit(*submit, *words)
            assert (status, out) == (1, "")
            (line,) = err.splitlines()
            assert refusal in line
        metrics = await asyncio.to_thread(read_text, f"http://{admin}/metrics")
    for reason in ("LocalQueueFull", "ManifestTooLarge"):
        assert f'refused_user_requests_total{{reason="{reason}"}} 1' in metrics


async def test_deletion_of_a_capacity_request_names_its_user(folder: Folder) -> None:
    story = folder.root / "story.yaml"
    text = (SAMPLES / "provisioning" / "story.yaml").read_text()
    story.write_text(text.replace('command: [sleep, "2"]', "command: [sleep, infinity]"))
    machines = str(SAMPLES / "provisioning" / "machines.yaml")
    for words in (
        ("apply", "-f", machines, "-f", str(story)),
        ("wait", "workload", "other-on-spot", "--for", "Running", "--timeout", "60"),
        ("delete", "provisioningrequest", "other-on-spot-spot-machines-1"),
        ("delete", "workload", "other-on-spot", "other-on-reservation"),
    ):
        status, _, err = await folder.admit(*words)
        assert status == 0, err
    output = (await folder.admit("events", "--workload", "other-on-spot"))[1]
    assert "the request was deleted by admin" in output
