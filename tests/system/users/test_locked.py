"""A locked server: services with their own roles in CORE, and programs and people in OUT."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import nats.errors
import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from admittance.events.subjects import check_durable
from admittance.runtime.bus.messages import SECRET_KEY
from support.requests import admission_check, eventually, queues
from support.servers import LIMIT, within
from system.users.locked import ADA, BOB, CONTROLLER, Locked, applied

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Locked]:
    deployment = Locked(tmp_path_factory.mktemp("locked"))
    await deployment.start()
    try:
        root = await deployment.client("root")
        budget = admission_check("budget", CONTROLLER)
        rows = {"admissionChecks": [{"name": "budget"}]}
        made = [
            *queues("a", namespace="team-a", admissionChecksStrategy=rows),
            *queues("b", namespace="team-b"),
        ]
        flavors = [manifest for manifest in made if manifest["kind"] == "ResourceFlavor"][:1]
        objects = [
            budget,
            *flavors,
            *(manifest for manifest in made if manifest["kind"] != "ResourceFlavor"),
        ]
        await eventually(lambda: applied(root, objects))
        await root.close()
        yield deployment
    finally:
        await deployment.stop()


async def test_job_runs_through_the_border_with_a_check_outside(locked: Locked) -> None:
    ada, budget = await locked.client("ada"), await locked.client("budget")
    durable = check_durable(CONTROLLER)
    pulling = await budget.jetstream().pull_subscribe_bind(durable, "ADMITTANCE")
    received: asyncio.Queue[str] = asyncio.Queue()

    async def on_fact(message: Msg) -> None:
        await received.put(message.subject.split(".")[2])

    await ada.subscribe("admit.workload.*.team-a.*", cb=on_fact)
    await ada.flush()
    await locked.submit(ada, ADA, "job", "lq-a")
    [request] = await pulling.fetch(1, timeout=LIMIT)
    asked = json.loads(request.data)
    verdict = {
        **{key: asked[key] for key in ("namespace", "name", "check", "cycle")},
        "state": "Ready",
        "message": "judged outside",
    }
    subject = request.subject.replace("requested", "reported")
    await budget.jetstream().publish(subject, json.dumps(verdict).encode())
    await request.ack()
    facts: list[str] = []
    while "finished" not in facts:
        facts.append(await within(received.get(), LIMIT))
    assert [fact for fact in facts if fact in ("admitted", "started")] == ["admitted", "started"]
    got = "$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.workload.team-a.job"
    stored = json.loads((await ada.request(got, b"", timeout=LIMIT)).data)
    assert stored["status"]["admissionChecks"][0]["message"] == "judged outside"
    show = ("-n", "team-a")
    assert await locked.admit("ada", "logs", "workload", "job", *show) == "through the border\n"
    assert "finished" in await locked.admit("ada", "events", "--workload", "job", *show)
    assert "job" in await locked.admit("ada", "get", "workloads", *show)
    assert "job" in await locked.admit("root", "get", "workloads", "-A")
    await ada.close()
    await budget.close()


async def test_services_need_nothing_that_their_roles_do_not_have(locked: Locked) -> None:
    bob = await locked.client("bob")
    await locked.submit(bob, BOB, "quick", "lq-b")
    await locked.admit("bob", "wait", "workload", "quick", "--for", "Finished", "-n", "team-b")
    await bob.close()
    for process in locked.cluster.processes:
        lines = [line for line in process.log.splitlines() if "permission" in line.lower()]
        assert lines == [], process.service


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        pytest.param(
            "other",
            "admit.check.reported.example_com=2Fbudget.team-a.job",
            id="verdict of another's check",
        ),
        pytest.param(
            "ada", "admit.user.ada.submitted.team-b.w", id="submission to another namespace"
        ),
        pytest.param("ada", "admit.user.bob.deleted.team-b.w", id="act in another's name"),
        pytest.param("ada", "admit.api.user.bob.deleted.team-b.w", id="act behind the border"),
        pytest.param("ada", "admit.workload.submitted.team-a.w", id="fact without a name"),
        pytest.param("ada", "admit.workload.assigned.team-a.w", id="decision by a user"),
        pytest.param("root", "admit.workload.assigned.team-a.w", id="decision by an admin"),
        pytest.param("budget", "admit.lease.epoch.cohort-lab", id="epoch by a check"),
        pytest.param("first", "admit.lease.epoch.service-runner", id="epoch by a runner"),
        pytest.param("ada", "$KV.admittance.workload.team-a.w", id="write to the bucket"),
        pytest.param("root", "$KV.admittance.clusterqueue.x", id="write of an admin"),
        pytest.param("first", "$KV.admittance_claims._alive.scheduler.x", id="false heartbeat"),
        pytest.param(
            "other",
            "$JS.API.CONSUMER.MSG.NEXT.ADMITTANCE.check-example_com=2Fbudget",
            id="read another's requests",
        ),
        pytest.param(
            "other",
            "$JS.API.CONSUMER.CREATE.ADMITTANCE.x.admit.check.requested.example_com=2Fbudget.*.*",
            id="consumer on another's requests",
        ),
        pytest.param("first", "$JS.API.CONSUMER.DELETE.ADMITTANCE.check-x", id="delete a consumer"),
        pytest.param("root", "$JS.API.STREAM.PURGE.ADMITTANCE", id="purge by an admin"),
        pytest.param(
            "ada",
            "$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.workload.team-b.w",
            id="direct get of another namespace",
        ),
        pytest.param("root", "$JS.API.STREAM.MSG.GET.KV_admittance", id="get by key in the body"),
        pytest.param(
            "root",
            f"$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.{SECRET_KEY}",
            id="read the secret of message ids of an earlier version",
        ),
        pytest.param(
            "root",
            f"$JS.API.DIRECT.GET.KV_admittance_claims.$KV.admittance_claims.{SECRET_KEY}",
            id="read the secret of message ids",
        ),
        pytest.param("eve", "admit.user.eve.submitted.team-a.w", id="submission by an approver"),
        pytest.param("ada", "admit.user.ada.approved.team-a.job", id="approval by a user"),
        pytest.param("ada", "admit.user.ada.apply", id="manifests by a user"),
        pytest.param("ada", "_INBOX.bob.x", id="forged answer"),
    ],
)
async def test_server_refuses_what_a_role_does_not_have(
    locked: Locked, user: str, subject: str
) -> None:
    refused: list[str] = []
    client = await locked.client(user, refused)
    with pytest.raises(nats.errors.TimeoutError):
        await client.request(subject, b"{}", timeout=0.2)
    await client.close()
    assert refused == [f'nats: permissions violation for publish to "{subject.lower()}"']


async def test_chosen_reply_subject_writes_no_key_and_no_epoch(locked: Locked) -> None:
    victim = "admit.lease.epoch.cohort-victim"
    key = "$KV.admittance.workload.team-b.victim"
    ada, other = await locked.client("ada"), await locked.client("other")
    for reply in (victim, key):
        got = "$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.workload.team-a.job"
        for subject in (
            "admit.user.ada.held.team-a.none",
            "admit.api.explain.team-a",
            "$JS.API.INFO",
            got,
        ):
            await ada.publish(subject, b"{}", reply=reply)
        verdict = "admit.check.reported.example_com=2Fother.team-a.none"
        for subject in (
            verdict,
            f"$JS.API.CONSUMER.MSG.NEXT.ADMITTANCE.{check_durable('example.com/other')}",
        ):
            await other.publish(subject, b"{}", reply=reply)
    # Requests after these: their answers show that the others were answered, too.
    await other.jetstream().publish(verdict, b"{}")
    await ada.request("admit.api.settled.team-a", b'{"sequence": 0}', timeout=LIMIT)
    for subject, stream in ((victim, "ADMITTANCE"), (key, "KV_admittance")):
        info = await locked.core.api(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
        assert not info["state"].get("subjects"), subject
    await ada.close()
    await other.close()


async def test_message_id_of_another_user_silences_nothing(locked: Locked) -> None:
    ada, bob = await locked.client("ada"), await locked.client("bob")
    sequences = []
    for client, user, namespace in ((ada, "ada", "team-a"), (bob, "bob", "team-b")):
        answer = await client.request(
            f"admit.user.{user}.held.{namespace}.same",
            json.dumps({"namespace": namespace, "name": "same"}).encode(),
            timeout=LIMIT,
            headers={"Nats-Msg-Id": "the same id"},
        )
        sequences.append(json.loads(answer.data)["seq"])
    assert sequences[0] != sequences[1]
    await ada.close()
    await bob.close()


async def test_doctor_names_role_subject_and_line_of_a_missing_permission(locked: Locked) -> None:
    scheduler = next(
        process for process in locked.cluster.processes if process.service == "scheduler"
    )
    rule = '"admit.api.fit.*"'

    async def is_named() -> bool:
        return "permission_denied" in scheduler.log

    # Also admins lose it; no test comes after this one.
    locked.server.reload(f", {rule}", "")
    await eventually(is_named)
    outcome = await locked.run("root", "doctor", "-o", "json")
    assert outcome.status == 1
    checks = {check["what"]: check for check in json.loads(outcome.out)["checks"]}
    permissions = checks["permissions of scheduler"]
    seen = "may not subscribe admit.api.fit.*, which its role scheduler needs to answer"
    assert seen in permissions["found"]
    assert f"add {rule} to `subscribe: {{ allow: [ … ] }}` of its user" in permissions["todo"]
    said = [line for line in scheduler.log.splitlines() if "permission_denied" in line]
    assert len(said) == 1
    assert "this login may not subscribe to admit.api.fit.*" in said[0]
