"""Programs use the system by `Client` and `SyncClient`, on an `admit up` with users."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from admittance.client import (
    AdmittanceExecutor,
    BadInput,
    Client,
    ClientError,
    Closed,
    JobFailed,
    NotFound,
    Refused,
    SyncClient,
    TimedOut,
    Unavailable,
    WrongUse,
)
from admittance.client.requests.link import Link
from admittance.client.requests.submissions import submitting
from support.processes.forked_system import embedded
from support.servers import LIMIT, within

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"
FOREVER = ["sleep", "600"]
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "big-"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "command": FOREVER,
                        "resources": {"requests": {"cpu": "4"}},
                    }
                ],
            }
        }
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environ() -> AsyncIterator[dict[str, str]]:
    """The variables with which a client finds the server and its login, by the current context."""
    async with embedded() as child:
        environment = {"XDG_CONFIG_HOME": str(child.log.parent)}
        async with await Client.connect(environ=environment) as admin:
            await admin.apply((SAMPLES / "queues.yaml").read_text())
        yield environment


@pytest_asyncio.fixture(loop_scope="module")
async def client(environ: dict[str, str]) -> AsyncIterator[Client]:
    async with await Client.connect(environ=environ) as connected:
        yield connected


async def test_a_job_is_submitted_and_followed_to_its_end(client: Client) -> None:
    job = await client.submit(
        ["sh", "-c", "echo $WORD; exit 3"], queue="research", env={"WORD": "hi"}, labels={"t": "x"}
    )
    assert job.created
    result = await job.result(timeout=LIMIT)
    assert (result.succeeded, result.exit_code) == (False, 3)
    with pytest.raises(JobFailed, match="exit code 3"):
        result.check()
    assert [piece.text async for piece in job.logs(follow=True)] == ["hi\n"]
    facts = [entry.subject.split(".")[-3] async for entry in job.events()]
    assert facts[0] == "submitted"
    assert "finished" in facts
    assert [stored.name for stored in await client.list(labels="t=x", states="Failed")] == [
        job.name
    ]
    assert (await job.explain()).phase == await job.phase() == "Finished"
    assert (await client.delete("workload", job.name)).outcome == "deleted"
    with pytest.raises(NotFound):
        await job.get()
    last = [entry.sequence async for entry in job.events()][-1]
    assert [entry async for entry in job.events(after=last)] == []


async def test_a_list_of_one_name_reads_no_others(client: Client) -> None:
    job = await client.submit(["true"], queue="research", name="only.one")
    await client.submit(["true"], queue="research", name="one")
    for everywhere in (True, False):
        found = await client.list("workloads", name="only.one", all_namespaces=everywhere)
        assert [(each.namespace, each.name) for each in found] == [(job.namespace, "only.one")]
    assert not await client.list("workloads", name="*")
    assert [each.name for each in await client.list("clusterqueues", name="research")] == [
        "research"
    ]


async def test_changes_of_quota_and_new_facts_are_followed(client: Client) -> None:
    async with client.quota_changes() as changes, client.newest_sequences() as sequences:
        before = await anext(sequences)
        news = asyncio.ensure_future(anext(changes))
        fact = asyncio.ensure_future(anext(sequences))
        job = await client.submit(["true"], queue="research")
        assert await within(news) == {"cohort-lab"}
        assert await within(fact) > before
        await job.result(timeout=LIMIT)


async def test_a_workload_is_held_released_reprioritized_and_stopped(client: Client) -> None:
    first = await client.submit(manifest=JOB, queue="research")
    second = await client.submit(manifest=JOB, queue="research")
    await first.wait("Running", timeout=LIMIT)
    changes = client.watch("workloads", second.name)
    async with changes:
        revision = (await anext(changes)).revision
        assert (await client.hold(second.name)).outcome == "applied"
        assert (await client.hold(second.name)).outcome == "ignored"
        assert (await anext(changes)).revision > revision
    await client.release(second.name)
    await client.set_priority(second.name, 7)
    pending = await client.pending("research")
    assert [(row.name, row.priority) for row in pending.rows] == [(second.name, 7)]
    [queue] = (await client.queues("research")).cluster_queues
    assert (queue.pending, queue.admitted) == (1, 1)
    seen = await client.queue("research", mine=True)
    assert [(row.name, row.phase, row.user) for row in seen.running] == [
        (first.name, "Running", "admin")
    ]
    assert [(row.name, row.position, row.priority) for row in seen.waiting] == [(second.name, 1, 7)]
    assert [(each.name, each.pending) for each in seen.queues] == [("research", 1)]
    simulated = await client.simulate(deletes=[f"workload/{first.name}"])
    assert [start.name for start in simulated.starts] == [second.name]
    await first.cancel()
    await second.wait("Running", timeout=LIMIT)
    await client.finish(second.name, succeeded=False, message="enough")
    assert (await second.result(timeout=LIMIT)).message == "enough"


async def test_a_repeated_submission_makes_no_second_job(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        raise TimedOut("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Link, "settle", lost)
        with pytest.raises(TimedOut):
            await client.submit(["true"], queue="research", key="nightly 7")
    again = await client.submit(["true"], queue="research", key="nightly 7")
    other = await client.submit(["true"], queue="research", key="nightly 8")
    assert (again.created, other.created) == (False, True)
    await other.cancel()  # changes the stored spec
    assert not (await client.submit(["true"], queue="research", key="nightly 8")).created
    for changed in (
        client.submit(["false"], queue="research", key="nightly 8"),
        client.submit(["true"], queue="research", key="nightly 8", env={"A": "1"}),
        client.submit(manifest=JOB, queue="research", key="nightly 8"),
    ):
        with pytest.raises(Refused, match=f"'nightly 8' was used for .*{other.name}") as caught:
            await changed
        assert caught.value.reason == "AlreadyExists"
    assert await client.list(queue="research", labels="!t")
    names = [stored.name for stored in await client.list() if stored.name.startswith("nightly-")]
    assert sorted(names) == sorted({again.name, other.name})
    # The log recognises a submission before it has been applied.
    monkeypatch.setattr(submitting, "lookup", absent)
    assert not (await client.submit(["true"], queue="research", key="nightly 8")).created


async def test_an_object_is_applied_only_if_it_is_as_expected(client: Client) -> None:
    flavor = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: compared}"
    [created] = await client.apply(flavor, expected=[0])
    with pytest.raises(Refused, match="ResourceFlavor compared exists now"):
        await client.apply(flavor, expected=[0])
    stored = await client.get("resourceflavor", "compared")
    assert stored.revision == created.revision
    changed = flavor + "\nspec: {nodeLabels: {a: b}}"
    await client.apply(changed, expected=[created.revision])
    with pytest.raises(Refused, match="ResourceFlavor compared has changed since"):
        await client.apply(flavor, expected=[created.revision])
    await client.delete("resourceflavor", "compared")


async def test_a_submission_says_what_may_not_be_as_meant(client: Client) -> None:
    odd = json.dumps(JOB).replace('"restartPolicy"', '"schedulerName": "x", "restartPolicy"')
    missing = await client.submit(manifest=odd, queue="nope")
    field, queue = missing.warnings
    assert "spec.template.spec.schedulerName has no effect" in field
    assert queue == (
        "LocalQueue default/nope does not exist: the workload waits until it is created"
    )
    metadata = {"name": "odd", "labels": {"kueue.x-k8s.io/queue-name": "nope"}}
    [applied] = await client.apply({**json.loads(odd), "metadata": metadata})
    assert applied.warnings == missing.warnings
    assert (await client.submit(["true"], queue="research")).warnings == ()
    image = await client.submit(["true"], queue="research", image="busybox")
    assert ["no runner has a container engine" in warning for warning in image.warnings] == [True]
    for name in (missing.name, "odd"):
        await client.delete("workload", name)


async def absent(*_: object) -> None:
    """Replaces a lookup: finds no workload."""


CASES: dict[str, tuple[Callable[[Client], Awaitable[object]], type[ClientError], str]] = {
    "queue": (
        lambda c: c.submit(["true"], queue="nope"),
        NotFound,
        "LocalQueue default/nope does not exist; anyway=True submits it",
    ),
    "no-queue-named": (lambda c: c.submit(["true"]), BadInput, "name one with queue: production"),
    "too-big": (
        lambda c: c.submit(["true"], queue="research", cpu=1000),
        Refused,
        "can never hold it",
    ),
    "name-taken": (
        lambda c: c.submit(["false"], queue="research", name="taken"),
        Refused,
        "AlreadyExists",
    ),
    "command-in-one-word": (
        lambda c: c.submit("true", queue="research"),
        BadInput,
        "list of words",
    ),
    "command-and-manifest": (lambda c: c.submit(["x"], manifest="a: 1"), BadInput, "leave out"),
    "manifest": (lambda c: c.submit(manifest="kind: ["), BadInput, "not YAML"),
    "manifest-no-value": (lambda c: c.apply([{"a": object()}]), BadInput, "not JSON"),
    "key": (lambda c: c.submit(["true"], queue="research", key=" "), BadInput, "printable"),
    "key-and-name": (lambda c: c.submit(["x"], key="k", name="n"), BadInput, "leave out the name"),
    "kind": (lambda c: c.list("cats"), BadInput, 'no kind "cats"'),
    "state": (lambda c: c.list(states="Sleeping"), BadInput, 'states "Sleeping"'),
    "phase": (lambda c: c.wait("taken", "Asleep"), BadInput, 'phase "Asleep"'),
    "timeout-zero": (lambda c: c.wait("taken", timeout=0), BadInput, "positive number"),
    "namespace": (lambda c: c.apply("a: 1", namespace="A b"), BadInput, "namespace: "),
    "expected": (lambda c: c.apply([], expected=[1]), BadInput, "expected has 1 revisions for 0"),
    "no-object": (lambda c: c.get("cq", "nope"), NotFound, '"nope" not found'),
    "no-workload": (lambda c: c.job("nope").result(), NotFound, '"nope" not found'),
    "no-events": (lambda c: anext(c.job("nope").events()), NotFound, '"nope" not found'),
    "no-events-after": (
        lambda c: anext(c.events("nope", after=1)),
        NotFound,
        '"nope" not found',
    ),
    "no-queue": (lambda c: c.queues("nope"), NotFound, '"nope" not found'),
    "no-cohort": (lambda c: c.queues(cohort="nope"), NotFound, "cohort nope does not exist"),
    "no-logs": (lambda c: anext(c.logs("nope")), NotFound, '"nope" not found'),
    "timeout": (lambda c: c.wait("taken", "Evicting", timeout=0.1), TimedOut, "not Evicting"),
    "no-check": (lambda c: c.approve("taken"), Refused, "has no checks"),
    "priority": (lambda c: c.set_priority("taken", 2**31), BadInput, "32-bit"),
}


async def test_wrong_input_raises_one_clear_error(client: Client) -> None:
    await client.submit(FOREVER, queue="research", name="taken", cpu=1)
    await client.wait("taken", "Running", timeout=LIMIT)
    assert not (await client.submit(FOREVER, queue="research", name="taken", cpu=1)).created
    for case, (call, kind, words) in CASES.items():
        with pytest.raises(ClientError) as caught:
            await call(client)
        assert type(caught.value) is kind, case
        assert words in str(caught.value), case
    elsewhere = client.job("taken", namespace="x")
    for find in (elsewhere.get, elsewhere.wait):
        with pytest.raises(NotFound) as gone:
            await find()
        assert re.fullmatch(
            'workload.kueue.x-k8s.io "taken" not found in namespace x at nats://127.0.0.1:[0-9]+; '
            'namespace default has one: use namespace="default"',
            str(gone.value),
        )
    await client.stop("taken")
    with pytest.raises(Refused, match="will not be Running: it is Deactivated"):
        await client.wait("taken", "Running")


async def test_what_is_open_ends_when_the_client_is_closed(environ: dict[str, str]) -> None:
    client = await Client.connect(environ=environ)
    idle = client.watch("clusterqueues")
    await anext(idle)

    async def follow(items: AsyncIterator[object]) -> None:
        async for _ in items:
            pass

    streams = client.watch(), client.events(follow=True)
    waits = [asyncio.create_task(follow(stream)) for stream in streams]
    cancelled = asyncio.create_task(follow(client.watch()))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await client.get("clusterqueue", "research")
    await client.close()
    await client.close()
    for wait in waits:
        with pytest.raises(Closed):
            await within(wait)
    for call in (client.get("clusterqueue", "research"), anext(idle)):
        with pytest.raises(Closed):
            await call


async def test_a_client_belongs_to_its_loop(client: Client) -> None:
    def elsewhere() -> None:
        with pytest.raises(WrongUse, match="another event loop"):
            asyncio.run(one_call())

    async def one_call() -> object:
        return await client.get("clusterqueue", "research")

    await asyncio.to_thread(elsewhere)
    assert await one_call()


async def test_a_sync_client_works_in_threads_and_notebooks(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WrongUse, match="use Client and await"):
        SyncClient.connect(environ=environ)

    def program() -> None:
        with SyncClient.connect(environ=environ) as client:
            job = client.submit(["echo", "hi"], queue="research")
            assert job.result(timeout=LIMIT).succeeded
            assert "".join(piece.text for piece in job.logs()) == "hi\n"
            for change in client.watch("clusterqueues"):
                assert change.object.name in ("research", "production")
                break
            with pytest.raises(NotFound):
                client.get("clusterqueue", "nope")
        for call in (lambda: client.get("cq", "research"), lambda: next(client.watch())):
            with pytest.raises(Closed):
                call()

    await asyncio.to_thread(program)
    shell = SimpleNamespace(kernel=object())
    notebook = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", notebook)  # type: ignore[arg-type]
    program()


async def test_no_server_and_a_wrong_address_are_named(environ: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match="nothing listens at"):
        await Client.connect("nats://127.0.0.1:1")
    with pytest.raises(BadInput, match="is not a server address"):
        await Client.connect("http://127.0.0.1")
    with pytest.raises(BadInput, match='there is no context "nope"'):
        await Client.connect(context="nope", environ=environ)
    with pytest.raises(BadInput, match="both name a server"):
        await Client.connect("nats://127.0.0.1:1", context="nope")


async def test_held_quota_is_free_when_its_program_dies_and_an_eviction_calls_it_back(
    environ: dict[str, str], client: Client
) -> None:
    admit = Path(sys.executable).with_name("admit")
    asked = ("hold-quota", "-q", "research", "--lease", "5", "--name", "dies", "--", *FOREVER)
    program = await asyncio.create_subprocess_exec(
        str(admit), *asked, env={**os.environ, **environ}, stderr=asyncio.subprocess.PIPE
    )
    dies = client.job("dies")
    assert program.stderr is not None
    try:
        assert b"default/dies has quota" in await within(program.stderr.readline())
        assert await dies.phase() == "Admitted"
    finally:
        program.kill()
        await program.wait()
    told: asyncio.Queue[str] = asyncio.Queue()
    hold = client.hold("research", cpu="100m", name="evicted", on_evicted=told.put_nowait)
    async with hold as held:
        assert (held.evicted, held.environ()["CUDA_VISIBLE_DEVICES"]) == ("", "")
        await client.stop("evicted")
        why = await within(told.get())
        assert why.startswith("Deactivated: ")
        assert held.evicted == why
    assert (await within(client.job("evicted").result())).succeeded
    result = await within(dies.result())
    assert (result.succeeded, result.reason) == (False, "LeaseExpired")
    with pytest.raises(BadInput, match="used before"):
        await hold.__aenter__()


async def test_a_call_that_waits_is_cancelled_with_its_job(
    environ: dict[str, str], client: Client
) -> None:
    pytest.importorskip("cloudpickle", reason="calls of functions need cloudpickle")
    blocking = await client.submit(FOREVER, queue="research", cpu=4, name="blocking")

    def calls() -> None:
        with (
            SyncClient.connect(environ=environ) as sync,
            AdmittanceExecutor(sync, queue="research", cpu=4, max_workers=1) as executor,
        ):
            changes = sync.watch()
            first, second = executor.submit(abs, -1), executor.submit(abs, -2)
            job = next(each.object for each in changes if each.object.name.startswith("abs-"))
            assert (first.running(), first.cancel(), second.cancel()) == (False, True, True)
            assert futures.wait([first, second], timeout=LIMIT).done == {first, second}
            executor.shutdown()
            deleted = next(each.object for each in changes if each.deleted)
            assert deleted.name == job.name
            with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
                executor.submit(abs, -3)

    await within(asyncio.to_thread(calls))
    await blocking.cancel()
