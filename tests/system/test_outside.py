"""Commands, a runner, a check and a provider in an account of their own, which creates nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from admittance.checks import AdmissionCheckController, Ready
from admittance.events.codec import encode
from admittance.events.provisioning import ProvisioningRequested
from admittance.events.subjects import subject_of
from admittance.providers import Provider, Provisioned
from admittance.runtime import clock
from admittance.runtime.bus import history
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError
from support.cluster import Cluster
from support.fork_server import run_admit
from support.requests import apply, eventually, queues
from support.servers import ConfiguredServer, within

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

ADMIT = Path(sys.executable).parent / "admit"
NS = "ns"
LIMIT = 60.0
QUESTIONS = ("events", "explain", "fit", "objects", "pending", "queues", "settled")
SERVICE_IMPORTS = {
    "$JS.API.INFO": False,
    "$JS.API.CONSUMER.MSG.NEXT.ADMITTANCE.*": True,
    "$JS.API.CONSUMER.MSG.NEXT.KV_admittance_claims.*": True,
    "$JS.ACK.ADMITTANCE.>": False,
    "$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.*.*": False,
    "$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.*.*.*": False,
    "$JS.API.DIRECT.GET.KV_admittance_claims.$KV.admittance_claims.*.*.*": False,
    "$JS.API.DIRECT.GET.KV_admittance_providers.$KV.admittance_providers.*.*": False,
    "$JS.API.DIRECT.GET.ADMITTANCE.admit.workload.admitted.*.*": False,
    "$KV.admittance_claims.>": False,
    "$KV.admittance_providers.*.*": False,
    **{f"admit.api.{what}.*": True for what in QUESTIONS},
    "admit.api.consumer.runner.*": False,
    "admit.workload.*.*.*": False,
    "admit.check.reported.*.*.*": False,
    "admit.provisioning.*.*.*.*": False,
    "admit.alive.check.*": False,
    "admit.alive.provisioning.*": False,
}
"""By subject, whether a request may have several answers."""
STREAM_IMPORTS = (
    "$KV.admittance.*.*.*",
    "$KV.admittance.*.*",
    "admit.workload.*.*.*",
    "admit.check.*.*.*.*",
    "admit.provisioning.*.*.*.*",
)
CHECK = "example.com/outside"
CHECKS = {"admissionChecks": [{"name": "outside"}]}
CLASS = "outside"
INBOX = "_INBOX.>"


def direct(stream: str, *subjects: str) -> tuple[str, ...]:
    return tuple(f"$JS.API.DIRECT.GET.{stream}.{one}" for one in subjects)


def keys(bucket: str, *patterns: str) -> tuple[str, ...]:
    return tuple(f"$KV.{bucket}.{one}" for one in patterns)


def durable(name: str) -> tuple[str, ...]:
    return (f"$JS.API.CONSUMER.MSG.NEXT.ADMITTANCE.{name}", f"$JS.ACK.ADMITTANCE.{name}.>")


USERS: dict[str, dict[str, tuple[str, ...]]] = {
    "user": {
        "publish": (
            "$JS.API.INFO",
            *direct(
                "KV_admittance",
                *keys("admittance", f"*.{NS}.*", "clusterqueue.*", "admissioncheck.*"),
            ),
            *(f"admit.api.{what}.{NS}" for what in (*QUESTIONS, "logs")),
            *(
                f"admit.workload.{verb}.{NS}.*"
                for verb in ("submitted", "activated", "deactivated", "held", "released")
            ),
            *(f"admit.workload.{verb}.{NS}.*" for verb in ("reprioritized", "deleted")),
        ),
        "subscribe": (
            INBOX,
            *keys("admittance", f"*.{NS}.*"),
            f"admit.workload.*.{NS}.*",
            f"admit.check.*.*.{NS}.*",
            f"admit.provisioning.*.*.{NS}.*",
        ),
    },
    "runner": {
        "publish": (
            "$JS.API.INFO",
            *durable("runner-runner"),
            "$JS.API.CONSUMER.MSG.NEXT.KV_admittance_claims.runner-runner",
            "admit.api.consumer.runner.runner",
            "admit.api.objects._",
            "admit.api.events.*",
            *direct("KV_admittance", *keys("admittance", "workload.*.*")),
            *direct("KV_admittance_claims", *keys("admittance_claims", "*.*.*")),
            *direct("ADMITTANCE", "admit.workload.admitted.*.*"),
            *keys("admittance_claims", "*.*.*", "_runner.*"),
            *(f"admit.workload.{verb}.*.*" for verb in ("started", "pods_ready", "finished")),
            "admit.workload.stopped.*.*",
            INBOX,
        ),
        "subscribe": (INBOX, "admit.api.logs.*", "admit.api.health", "$SRV.>"),
    },
    "check": {
        "publish": (
            "$JS.API.INFO",
            *durable("check-example_com=2Foutside"),
            "admit.check.reported.example_com=2Foutside.*.*",
            "admit.alive.check.example_com=2Foutside",
        ),
        "subscribe": (INBOX, "admit.check.withdrawn.example_com=2Foutside.*.*"),
    },
    "provider": {
        "publish": (
            "$JS.API.INFO",
            *durable(f"provider-{CLASS}"),
            *(
                f"admit.provisioning.{what}.{CLASS}.*.*"
                for what in ("accepted", "provisioned", "failed")
            ),
            f"admit.alive.provisioning.{CLASS}",
            *keys("admittance_providers", f"{CLASS}.*"),
            *direct("KV_admittance_providers", *keys("admittance_providers", f"{CLASS}.*")),
            INBOX,
        ),
        "subscribe": (
            INBOX,
            f"admit.provisioning.cancelled.{CLASS}.*.*",
            f"admit.api.provider.{CLASS}",
            "$SRV.>",
        ),
    },
}
"""What each user may publish and subscribe."""
USERS["leaver"] = USERS["user"]


def configuration() -> str:
    """A server with the accounts CORE and OUT; OUT has only what crosses the border."""
    exports = [
        f'{{service: "{subject}"{", response: stream" if many else ""}}}'
        for subject, many in SERVICE_IMPORTS.items()
    ]
    exports += [f'{{stream: "{subject}"}}' for subject in STREAM_IMPORTS]
    imports = [
        f'{{service: {{account: CORE, subject: "{subject}"}}}}' for subject in SERVICE_IMPORTS
    ]
    imports += [
        f'{{stream: {{account: CORE, subject: "{subject}"}}}}' for subject in STREAM_IMPORTS
    ]
    users = [_user(name, allowed) for name, allowed in USERS.items()]
    return f"""
jetstream {{ store_dir: "STORE" }}
accounts {{
  CORE: {{
    jetstream: enabled
    users: [{{user: core, password: core}}]
    exports: [{_lines(exports)}]
  }}
  OUT: {{
    users: [{_lines(users)}]
    imports: [{_lines(imports)}]
  }}
}}
"""


def _user(name: str, allowed: dict[str, tuple[str, ...]]) -> str:
    lists = ", ".join(
        f"{what}: [{', '.join(f'{chr(34)}{one}{chr(34)}' for one in subjects)}]"
        for what, subjects in allowed.items()
    )
    return f"{{user: {name}, password: {name}, permissions: {{{lists}}}}}"


def _lines(items: list[str]) -> str:
    return "\n      ".join(["", *items])


class Outside:
    """A server with services in CORE, and programs and commands in OUT."""

    def __init__(self, server: ConfiguredServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.services = Cluster(server.url("core:core"), folder)
        self.programs = Cluster(server.url("runner:runner"), folder)
        self.core: Bus

    async def admit(
        self, *words: str, user: str = "user", namespace: str = NS, status: int = 0
    ) -> str:
        """What the command prints as this user, after it ended with this status."""
        at = words.index("--") if "--" in words else len(words)
        command = (*words[:at], "-n", namespace, *words[at:])
        env = {"ADMIT_NATS_URL": self.server.url(f"{user}:{user}")}
        done = await asyncio.to_thread(run_admit, *command, env=env)
        assert done.status == status, done.err
        return done.out if status == 0 else done.err

    @asynccontextmanager
    async def following(self, *words: str) -> AsyncIterator[asyncio.StreamReader]:
        """The lines that a command of the user prints until it is interrupted."""
        running = await asyncio.create_subprocess_exec(
            *(ADMIT, *words, "-n", NS),
            env={**os.environ, "ADMIT_NATS_URL": self.server.url("user:user")},
            stdout=asyncio.subprocess.PIPE,
        )
        assert running.stdout is not None
        try:
            yield running.stdout
        finally:
            running.send_signal(signal.SIGINT)
            await within(running.wait(), LIMIT)

    async def consumers(self) -> set[str]:
        # Services make their consumers of KV_admittance anew when they fall behind.
        found = set()
        for stream in ("ADMITTANCE", "KV_admittance_claims"):
            names = await self.core.api(f"CONSUMER.NAMES.{stream}")
            found |= {f"{stream}/{one}" for one in names["consumers"] or ()}
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outside]:
    folder = tmp_path_factory.mktemp("outside")
    server = ConfiguredServer(folder / "server", configuration())
    await server.start()
    found = Outside(server, folder)
    try:
        for service in ("workload-controller", "scheduler"):
            await found.services.start(service)
        found.core = await Bus.connect(server.url("core:core"), name="test")
        await apply(found.core, *queues("q", namespace=NS))
        await found.programs.start("runner", ADMIT_RUNNER="runner")

        async def runner_follows_claims() -> bool:
            return "KV_admittance_claims/runner-runner" in await found.consumers()

        await eventually(runner_follows_claims)
        yield found
        await found.core.close()
    finally:
        await found.programs.stop()
        await found.services.stop()
        server.stop()


async def test_a_login_of_the_border_may_create_no_consumer(outside: Outside) -> None:
    bus = await Bus.connect(outside.server.url("user:user"), name="test")
    for stream in ("ADMITTANCE", "KV_admittance"):
        with pytest.raises(AdmittanceError):
            await bus.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": {}})
        with pytest.raises(AdmittanceError):
            await bus.api(f"STREAM.MSG.GET.{stream}", {"seq": 1})
    await bus.close()


async def test_commands_of_users_work_outside(outside: Outside) -> None:
    before = await outside.consumers()
    admit = outside.admit
    said = await admit("submit", "-q", "lq-q", "--name", "one", "--cpu", "1", "--", "true")
    assert "one created" in said
    assert "one" in await admit("get", "workloads")
    assert "one" in await admit("get", "workload", "one", "-o", "json")
    await admit("wait", "workload", "one", "--for", "Admitted", "--timeout", "30")
    assert "ns/one is" in await admit("explain", "workload", "one")
    assert "Last events" in await admit("describe", "workload", "one")
    assert "admitted" in await admit("events", "--workload", "one")
    assert "lq-q" in await admit("get", "localqueues")
    await admit("get", "pending")
    await admit("submit", "-q", "lq-q", "--name", "two", "--cpu", "9", "--anyway", "--", "true")
    for verb in ("stop", "activate", "hold", "release"):
        await admit(verb, "workload", "two")
    await admit("priority", "workload", "two", "7")
    assert "deleted" in await admit("delete", "workload", "two")
    error = await admit("get", "workload", "two", status=1)
    assert "not found" in error
    assert await outside.consumers() <= before


async def test_a_runner_outside_runs_jobs_and_shows_their_output(outside: Outside) -> None:
    admit = outside.admit
    words = ("--cpu", "1", "--wait", "--timeout", "60", "--", "echo", "hello from outside")
    said = await admit("submit", "-q", "lq-q", "--name", "job", *words)
    assert "finished" in said
    assert await admit("logs", "workload", "job") == "hello from outside\n"
    log = outside.programs.processes[0].log
    assert "permission_denied" not in log
    made = {one for one in await outside.consumers() if "runner" in one}
    assert made == {"ADMITTANCE/runner-runner", "KV_admittance_claims/runner-runner"}


async def heard(lines: asyncio.StreamReader, *words: str) -> None:
    """Reads lines until each word was in one of them, in this order."""
    for word in words:
        while word not in (line := (await within(lines.readline(), LIMIT)).decode()):
            assert line, f"the command ended before {word}"


async def test_commands_follow_changes_outside(outside: Outside) -> None:
    before = await outside.consumers()
    async with (
        outside.following("get", "workloads", "-w") as table,
        outside.following("events", "--workload", "long", "--follow") as events,
    ):
        await heard(table, "NAME")
        job = ("--", "sh", "-c", "echo one; sleep 0.2; echo two")
        await outside.admit("submit", "-q", "lq-q", "--name", "long", "--cpu", "1", *job)
        await heard(table, "long", "Finished")
        await heard(events, "submitted", "admitted", "finished")
    assert await outside.admit("logs", "workload", "long", "--follow") == "one\ntwo\n"
    assert await outside.consumers() <= before


async def test_a_check_outside_judges_its_requests(outside: Outside) -> None:
    controller = AdmissionCheckController(CHECK)

    @controller.check
    def judge(request: object) -> Ready:
        return Ready("judged outside")

    version = "kueue.x-k8s.io/v1beta2"
    check = {
        "apiVersion": version,
        "kind": "AdmissionCheck",
        "metadata": {"name": "outside"},
        "spec": {"controllerName": CHECK},
    }
    made = queues("checked", namespace=NS, admissionChecksStrategy=CHECKS)
    await apply(outside.core, check, *made)
    before = await outside.consumers()
    stop = asyncio.Event()
    serving = asyncio.create_task(controller.serve(outside.server.url("check:check"), stop=stop))
    try:
        await outside.admit(
            *("submit", "-q", "lq-checked", "--name", "checked", "--cpu", "1", "--wait"),
            *("--timeout", "60", "--", "true"),
        )
        assert "judged outside" in await outside.admit("describe", "workload", "checked")
    finally:
        stop.set()
        await within(serving)
    assert await outside.consumers() <= before


async def test_a_provider_outside_gives_capacity(outside: Outside) -> None:
    """The provisioning check runs in CORE; the test takes its place."""
    provider = Provider(CLASS)

    @provider.requested
    def obtain(request: object) -> Provisioned:
        return Provisioned("there")

    config = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ProvisioningRequestConfig",
        "metadata": {"name": "outside"},
        "spec": {"provisioningClassName": CLASS},
    }
    await apply(outside.core, config)
    before = await outside.consumers()
    stop = asyncio.Event()
    serving = asyncio.create_task(
        provider.serve(outside.server.url("provider:provider"), stop=stop)
    )
    try:
        request = ProvisioningRequested(
            namespace=NS,
            name="w",
            time=clock.now(),
            id="r1",
            provisioning_class=CLASS,
            check="outside",
            cycle=1,
            attempt=1,
        )
        await outside.core.publish(Outgoing(subject_of(request), encode(request)))
        answered = f"admit.provisioning.provisioned.{CLASS}.{NS}.w"

        async def provisioned() -> bool:
            return await history.last(outside.core, answered) is not None

        await eventually(provisioned)
    finally:
        stop.set()
        await within(serving)
    assert await outside.consumers() <= before


async def test_a_missing_right_is_named_at_once(outside: Outside) -> None:
    for words, subject in (
        (("get", "workloads"), "admit.api.objects.other"),
        (("get", "workload", "w"), "$kv.admittance.workload.other.w"),
        (("events",), "admit.api.events.other"),
        (("get", "clusterqueues"), "admit.api.objects"),
    ):
        error = await outside.admit(*words, namespace="other", status=1)
        assert len(error.splitlines()) == 1
        assert "this login may not publish to" in error
        assert subject in error


async def test_following_ends_when_the_login_is_refused(outside: Outside) -> None:
    following = await asyncio.create_subprocess_exec(
        *(ADMIT, "get", "localqueues", "-w", "-n", NS),
        env={**os.environ, "ADMIT_NATS_URL": outside.server.url("leaver:leaver")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert following.stdout is not None
    await heard(following.stdout, "lq-q")
    outside.server.reload("password: leaver", "password: other")
    _, err = await within(following.communicate(), LIMIT)
    assert following.returncode == 1
    assert "refuses these credentials" in err.decode()
