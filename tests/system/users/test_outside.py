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

from admittance.access.users import User
from admittance.checks import AdmissionCheckController, Ready
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.provisioning import ProvisioningRequested
from admittance.events.subjects import PROVIDERS, subject_of
from admittance.providers import Provider, Provisioned
from admittance.provisioning_check.status_relay import StatusRelay
from admittance.runtime import clock
from admittance.runtime.bus import history
from admittance.runtime.bus.bucket import put_message, read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, StaleRevision
from admittance.runtime.tasks import cancel_and_wait
from support.builders import an_object
from support.processes.fork_server import run_admit
from support.requests import admission_check, apply, eventually, queues
from support.servers import within
from system.users.locked import Locked

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

ADMIT = Path(sys.executable).parent / "admit"
NS = "ns"
CHECK = "example.com/outside"
CHECKS = {"admissionChecks": [{"name": "outside"}]}
CLASS = "outside"
SERVICES = ("workload-controller", "scheduler")
USERS = (
    *(User(name=service, role=service, key="") for service in SERVICES),
    User(name="user", role="user", key="", namespaces=(NS,)),
    User(name="leaver", role="user", key="", namespaces=(NS,)),
    User(name="runner", role="runner", key=""),
    User(name="check", role="check", key="", controller=CHECK),
    User(name="provider", role="provider", key="", class_name=CLASS),
)


class Outside(Locked):
    """A locked server with services in CORE, and programs and commands in OUT."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, USERS, SERVICES, runner="runner")

    def login(self, user: str) -> dict[str, str]:
        """The variables with which a command logs in."""
        return {"ADMIT_NATS_URL": self.server.url(), "ADMIT_NATS_CREDS": self.creds(user)}

    async def answer(self, *words: str, namespace: str = NS, status: int = 0) -> str:
        """Runs a command as the namespace's user and returns its output. The command must end with
        the exit status ``status``."""
        at = words.index("--") if "--" in words else len(words)
        command = (*words[:at], "-n", namespace, *words[at:])
        done = await asyncio.to_thread(run_admit, *command, env=self.login("user"))
        assert done.status == status, done.err
        return done.out if status == 0 else done.err

    @asynccontextmanager
    async def following(self, *words: str) -> AsyncIterator[asyncio.StreamReader]:
        """The lines that a command of the user prints until it is interrupted."""
        running = await asyncio.create_subprocess_exec(
            ADMIT,
            *words,
            "-n",
            NS,
            env={**os.environ, **self.login("user")},
            stdout=asyncio.subprocess.PIPE,
        )
        assert running.stdout is not None
        try:
            yield running.stdout
        finally:
            running.send_signal(signal.SIGINT)
            await within(running.wait())

    async def consumers(self) -> set[str]:
        # Services make their consumers of KV_admittance anew when they fall behind.
        present = set()
        for stream in ("ADMITTANCE", "KV_admittance_claims"):
            names = await self.core.api(f"CONSUMER.NAMES.{stream}")
            present |= {f"{stream}/{consumer}" for consumer in names["consumers"] or ()}
        return present


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outside]:
    deployment = Outside(tmp_path_factory.mktemp("outside"))
    await deployment.start()
    try:
        await apply(deployment.core, *queues("q", namespace=NS))

        async def runner_follows_claims() -> bool:
            return "KV_admittance_claims/runner-runner" in await deployment.consumers()

        await eventually(runner_follows_claims)
        yield deployment
    finally:
        await deployment.stop()


async def test_a_login_of_the_border_may_create_no_consumer(outside: Outside) -> None:
    bus = await Bus.connect(outside.server.url(), name="test", access=outside.access("user"))
    for stream in ("ADMITTANCE", "KV_admittance"):
        with pytest.raises(AdmittanceError):
            await bus.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": {}})
        with pytest.raises(AdmittanceError):
            await bus.api(f"STREAM.MSG.GET.{stream}", {"seq": 1})
    await bus.close()


async def test_commands_of_users_work_outside(outside: Outside) -> None:
    before = await outside.consumers()
    admit = outside.answer
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
    # Services read the claims of runners with consumers of their own, at any time.
    created = await outside.consumers() - before
    assert [name for name in created if not name.startswith("KV_admittance_claims/")] == []


async def test_a_runner_outside_runs_jobs_and_shows_their_output(outside: Outside) -> None:
    admit = outside.answer
    words = ("--cpu", "1", "--wait", "--timeout", "60", "--", "echo", "hello from outside")
    said = await admit("submit", "-q", "lq-q", "--name", "job", *words)
    assert "finished" in said
    assert await admit("logs", "workload", "job") == "hello from outside\n"
    log = outside.cluster.processes[-1].log
    assert "permission_denied" not in log
    made = {consumer for consumer in await outside.consumers() if "runner" in consumer}
    assert made == {"ADMITTANCE/runner-runner", "KV_admittance_claims/runner-runner"}


async def read_until(lines: asyncio.StreamReader, *words: str) -> None:
    """Reads lines until each word was in one of them, in this order."""
    for word in words:
        while word not in (line := (await within(lines.readline())).decode()):
            assert line, f"the command ended before {word}"


async def test_commands_follow_changes_outside(outside: Outside) -> None:
    before = await outside.consumers()
    async with (
        outside.following("get", "workloads", "-w") as table,
        outside.following("events", "--workload", "long", "--follow") as events,
    ):
        await read_until(table, "NAME")
        job = ("--", "sh", "-c", "echo one; sleep 0.2; echo two")
        await outside.answer("submit", "-q", "lq-q", "--name", "long", "--cpu", "1", *job)
        await read_until(table, "long", "Finished")
        await read_until(events, "submitted", "admitted", "finished")
    assert await outside.answer("logs", "workload", "long", "--follow") == "one\ntwo\n"
    assert await outside.consumers() <= before


async def test_a_check_outside_answers_its_requests(outside: Outside) -> None:
    controller = AdmissionCheckController(CHECK)

    @controller.check
    def judge(request: object) -> Ready:
        return Ready("judged outside")

    check = admission_check("outside", CHECK)
    made = queues("checked", namespace=NS, admissionChecksStrategy=CHECKS)
    await apply(outside.core, check, *made)
    before = await outside.consumers()
    stop = asyncio.Event()
    serving = asyncio.create_task(
        controller.serve(outside.server.url(), stop=stop, connection=outside.access("check"))
    )
    try:
        await outside.answer(
            *("submit", "-q", "lq-checked", "--name", "checked", "--cpu", "1", "--wait"),
            *("--timeout", "60", "--", "true"),
        )
        assert "judged outside" in await outside.answer("describe", "workload", "checked")
    finally:
        stop.set()
        await within(serving)
    assert await outside.consumers() <= before


async def test_a_provider_outside_gives_capacity(outside: Outside) -> None:
    """The provisioning check runs in CORE; the test takes its place, but for the statuses."""
    relaying = asyncio.create_task(StatusRelay(outside.core, "statuses").run())
    provider = Provider(CLASS)

    @provider.requested
    def obtain(request: object) -> Provisioned:
        return Provisioned("there")

    config = an_object("ProvisioningRequestConfig", "outside", {"provisioningClassName": CLASS})
    await apply(outside.core, config)
    before = await outside.consumers()
    stop = asyncio.Event()
    serving = asyncio.create_task(
        provider.serve(outside.server.url(), stop=stop, connection=outside.access("provider"))
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
        await no_provider_empties_the_bucket(outside)
    finally:
        stop.set()
        await within(serving)
        await cancel_and_wait(relaying)
    assert await outside.consumers() <= before


async def no_provider_empties_the_bucket(outside: Outside) -> None:
    """The status of another class stays when a provider asks the server to remove all others."""
    other, own = "other.booked", f"{token(CLASS)}.own"
    await outside.core.publish(put_message(other, b"{}", expected=0, bucket=PROVIDERS))
    bus = await Bus.connect(outside.server.url(), name="attack", access=outside.access("provider"))
    message = put_message(own, b"{}", expected=0, headers={"Nats-Rollup": "all"}, bucket=PROVIDERS)
    assert await within(bus.publish(message)) > 0
    with pytest.raises(StaleRevision):
        await within(bus.publish(message))
    await bus.close()
    assert {other, own} <= {
        entry.key for entry in await read_all(outside.core, ">", bucket=PROVIDERS)
    }


async def test_a_missing_right_is_named_at_once(outside: Outside) -> None:
    for words, subject in (
        (("get", "workloads"), "admit.api.objects.other"),
        (("get", "workload", "w"), "$KV.admittance.workload.other.w"),
        (("events",), "admit.api.events.other"),
        (("get", "clusterqueues"), "admit.api.objects"),
    ):
        error = await outside.answer(*words, namespace="other", status=1)
        assert len(error.splitlines()) == 1
        assert "this login may not publish to" in error
        assert subject in error


async def test_following_ends_when_the_login_is_refused(outside: Outside) -> None:
    following = await asyncio.create_subprocess_exec(
        *(ADMIT, "get", "localqueues", "-w", "-n", NS),
        env={**os.environ, **outside.login("leaver")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert following.stdout is not None
    await read_until(following.stdout, "lq-q")
    outside.revoke("leaver")
    _, err = await within(following.communicate())
    assert following.returncode == 1
    assert "the server does not know them, or they were revoked" in err.decode()
