"""Users of a locked server: each of their acts is done once, under their name, and shown with the
name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import nats.errors
import nats.js.errors
import pytest
import pytest_asyncio

from admittance.runtime.bus.history import read_messages
from support.builders import an_object
from support.requests import admission_check, eventually, queues
from support.servers import LIMIT, within
from system.users.locked import ADA, BOB, Locked, applied

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]
APPROVAL = admission_check("approval", "admittance.dev/approval")
OTHER = admission_check("budget", "example.com/budget")
PREEMPTION = {"withinClusterQueue": "LowerPriority"}
IN_A = ("-n", "team-a")
MANY = 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Locked]:
    deployment = Locked(tmp_path_factory.mktemp("people"))
    await deployment.start()
    try:
        root = await deployment.client("root")
        rows = {"admissionChecks": [{"name": "approval"}]}
        objects = [
            APPROVAL,
            OTHER,
            *queues("a", namespace="team-a", admissionChecksStrategy=rows),
            *queues("b", namespace="team-b", preemption=PREEMPTION)[1:],
        ]
        await eventually(lambda: applied(root, objects))
        await root.close()
        yield deployment
    finally:
        await deployment.stop()


async def submit(locked: Locked, user: str, name: str, *where: str) -> None:
    await locked.admit(user, "submit", "--name", name, *where, "--", "echo", "hi")


async def test_commands_of_people_act_in_their_names(locked: Locked) -> None:
    await submit(locked, "ada", "job", "--cpu", "1", *IN_A)
    await locked.admit("ada", "priority", "workload", "job", "7", *IN_A)
    await locked.admit("ada", "wait", "workload", "job", "--for", "QuotaReserved", *IN_A)
    await locked.admit("eve", "approve", "workload", "job", "--message", "looks fine", *IN_A)
    await locked.admit("ada", "wait", "workload", "job", "--for", "Finished", *IN_A)
    shown = await locked.admit("ada", "describe", "workload", "job", *IN_A)
    assert "ada" in next(line for line in shown.splitlines() if "Submitted by" in line)
    assert "approved by eve at " in shown
    events = await locked.admit("root", "events", "--workload", "job", *IN_A)
    for words in (
        "submitted         team-a/job  by ada, to lq-a",
        "reprioritized     team-a/job  by ada, priority 7",
        "approved          team-a/job  approval: by eve, looks fine",
    ):
        assert words in events
    await locked.admit("ada", "delete", "workload", "job", *IN_A)


async def test_every_change_of_a_workload_goes_through(locked: Locked) -> None:
    await submit(locked, "root", "other", "--cpu", "9", "--anyway", "-n", "team-b")
    for command in ("hold", "release", "stop", "activate", "hold"):
        assert await locked.admit("bob", command, "workload", "other", "-n", "team-b")
    shown = await locked.admit("bob", "describe", "workload", "other", "-n", "team-b")
    assert "on hold by bob" in shown
    assert await locked.admit("root", "finish", "workload", "other", "-n", "team-b")
    assert await locked.admit("bob", "delete", "workload", "other", "-n", "team-b")
    await submit(locked, "ada", "denied", "--cpu", "1", *IN_A)
    await locked.admit("ada", "wait", "workload", "denied", "--for", "QuotaReserved", *IN_A)
    await locked.admit("eve", "deny", "workload", "denied", *IN_A)
    assert "denied by eve at" in await locked.admit("ada", "describe", "workload", "denied", *IN_A)


CHANGES = ("hold", "release", "stop", "activate", "priority", "delete")


async def test_owner_changes_its_own_workloads_only(locked: Locked) -> None:
    waits = ("--cpu", "9", "--anyway", *IN_A)
    for user in ("ada", "ola"):
        await submit(locked, user, f"of-{user}", *waits)
    await locked.admit("ada", "hold", "workload", "of-ada", *IN_A)
    before = await locked.admit("root", "get", "workload", "of-ada", "-o", "json", *IN_A)
    refusal = "workload team-a/of-ada: refused: role owner: workload of-ada belongs to ada"
    for command in CHANGES:
        more = ("7",) if command == "priority" else ()
        printed = await locked.run("ola", command, "workload", "of-ada", *more, *IN_A)
        assert (printed.status, printed.out) == (1, "")
        assert printed.err == f"error: {refusal}\n"
        assert (await locked.run("ola", command, "workload", "of-ola", *more, *IN_A)).status == 0
    again = ("submit", "--name", "of-ada", *waits, "--", "echo", "other")
    printed = await locked.run("ola", *again)
    assert (printed.status, printed.out) == (1, "")
    assert refusal in printed.err
    assert await locked.admit("root", "get", "workload", "of-ada", "-o", "json", *IN_A) == before
    # Reading is not limited to own workloads.
    assert "of-ada" in await locked.admit("ola", "get", "workloads", *IN_A)
    await locked.admit("ada", "delete", "workload", "of-ada", *IN_A)


async def test_users_see_the_workloads_ahead_of_theirs_in_their_queues(locked: Locked) -> None:
    root = await locked.client("root")
    shared = an_object("LocalQueue", "shared", {"clusterQueue": "b"}, namespace="team-a")
    assert await applied(root, [shared])
    await root.close()
    waits = ("--cpu", "9", "--anyway")
    await submit(locked, "bob", "theirs", *waits, "--priority", "3", "-n", "team-b")
    await submit(locked, "ola", "mine", *waits, "-q", "shared", *IN_A)
    for queue in ("shared", "b"):
        shown = await locked.admit("ola", "get", "pending", "-q", queue, "-o", "json", *IN_A)
        theirs, mine = json.loads(shown)["items"]
        assert (theirs["name"], theirs["position"], theirs["requests"]) == (
            "theirs",
            1,
            {"cpu": 9000},
        )
        assert (theirs["priority"], theirs["message"], theirs["localQueue"]) == (3, "", "")
        assert (mine["name"], mine["position"], mine["localQueue"]) == ("mine", 2, "shared")
    explained = json.loads(
        await locked.admit("ola", "explain", "workload", "mine", "-o", "json", *IN_A)
    )
    ahead = explained["ahead"]
    assert ahead == [{"namespace": "team-b", "name": "theirs", "position": 1, "priority": 3}]
    table = await locked.admit("ola", "get", "pending", "-q", "shared", *IN_A)
    assert "theirs" in table
    assert "cpu 9" in table
    assert "theirs" not in await locked.admit("ola", "get", "pending", *IN_A)
    name = await locked.admit("ola", "get", "pending", "-q", "shared", "-o", "name", *IN_A)
    assert name.split() == ["workload.kueue.x-k8s.io/mine"]
    assert (await locked.run("ola", "get", "workload", "theirs", "-n", "team-b")).status == 1
    await locked.admit("ola", "delete", "workload", "mine", *IN_A)
    await locked.admit("bob", "delete", "workload", "theirs", "-n", "team-b")
    await locked.admit("root", "delete", "localqueue", "shared", *IN_A)


async def test_files_of_a_job_stay_in_its_namespace(locked: Locked, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("bytes")
    where = ("workload", "files", "-n", "team-b", "--output-dir", str(tmp_path / "back"))
    files = ("--input", str(tmp_path / "in"), "--output", "out", "--cpu", "1", "-n", "team-b")
    await locked.admit(
        "bob", "submit", "--name", "files", *files, "--wait", "--", "cp", "in", "out"
    )
    refused = await locked.run("ada", "fetch", *where)
    assert (refused.status, refused.out) == (1, "")
    assert not (tmp_path / "back").exists()
    await locked.admit("bob", "fetch", *where)
    assert (tmp_path / "back" / "out").read_text() == "bytes"
    refused = await locked.run("ada", "submit", *files, "--", "true")
    assert (refused.status, refused.out) == (1, "")


async def test_owner_publishes_on_no_subject_of_wider_rights(locked: Locked) -> None:
    refused: list[str] = []
    ola = await locked.client("ola", refused)
    for subject in (
        *("admit.user.ola.deleted.team-a.x", "admit.owner.ada.deleted.team-a.x"),
        *("admit.owner.ola.deleted.team-b.x", "admit.owner.ola.finished.team-a.x"),
        *("admit.api.user.ola.deleted.team-a.x", "admit.api.owner.ada.deleted.team-a.x"),
    ):
        await ola.publish(subject, b"{}")
    await ola.flush()
    await eventually(lambda: asyncio.sleep(0, len(refused) == 6))
    # The right is that of the subject, whatever the headers say.
    with pytest.raises(nats.js.errors.APIError, match="not a valid Held"):
        await ola.jetstream().publish(
            "admit.owner.ola.held.team-a.x", b"{}", headers={"Admit-Rights": "x"}, timeout=LIMIT
        )
    await ola.jetstream().publish(
        "admit.owner.ola.held.team-a.rights",
        json.dumps({"namespace": "team-a", "name": "rights"}).encode(),
        headers={"Admit-Rights": "user"},
        timeout=LIMIT,
    )
    [message] = await read_messages(locked.core, ["admit.user.ola.held.team-a.rights"], limit=10)
    assert message.headers["Admit-Rights"] == "owner"
    await ola.close()


async def test_manifests_carry_the_user_that_applied_them(locked: Locked, tmp_path: Path) -> None:
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Cohort",
        "metadata": {"name": "lab", "annotations": {"admittance.dev/applied-by": "ada"}},
    }
    file = tmp_path / "cohort.json"
    file.write_text(json.dumps(manifest))
    assert "created" in await locked.admit("root", "apply", "-f", str(file))
    stored = json.loads(await locked.admit("ada", "get", "cq", "a", "-o", "json"))
    assert stored["metadata"]["annotations"] == {"admittance.dev/applied-by": "root"}
    assert "unchanged" in await locked.admit("root", "apply", "-f", str(file))
    assert "deleted" in await locked.admit("root", "delete", "cohort", "lab")
    events = await locked.admit("root", "events", "-A")
    assert "object applied    cohort lab  by root" in events
    assert "object deleted    cohort lab  by root" in events


@pytest.mark.parametrize(
    ("user", "words", "error"),
    [
        pytest.param(
            "ada",
            ("approve", "workload", "waits", *IN_A),
            "this login may not publish to admit.user.ada.approved.team-a.waits",
            id="approval by a user",
        ),
        pytest.param(
            "ada",
            ("delete", "clusterqueue", "a"),
            "this login may not publish to admit.user.ada.delete",
            id="queue deleted by a user",
        ),
        pytest.param(
            "ada",
            ("submit", "-q", "lq-b", "-n", "team-b", "--", "true"),
            "this login may not publish to",
            id="submission to another namespace",
        ),
        pytest.param(
            "eve",
            ("approve", "workload", "waits", "--as", "ada", *IN_A),
            "--as ada: you act as eve, by your credentials file",
            id="approval in another's name",
        ),
    ],
)
async def test_command_without_the_right_ends_with_one_line(
    locked: Locked, user: str, words: tuple[str, ...], error: str
) -> None:
    if not (await locked.run("ada", "get", "workload", "waits", *IN_A)).out:
        await submit(locked, "ada", "waits", "--cpu", "1", *IN_A)
        await locked.admit("ada", "wait", "workload", "waits", "--for", "QuotaReserved", *IN_A)
    printed = await locked.run(user, *words)
    assert printed.status in (1, 2)
    [line] = printed.err.splitlines()
    assert error in line


async def test_people_give_verdicts_for_approval_checks_only(locked: Locked) -> None:
    eve = await locked.client("eve")
    fact = {"namespace": "team-a", "name": "x", "check": "budget", "cycle": 0}
    with pytest.raises(nats.js.errors.APIError, match=r"is judged by example\.com/budget"):
        await eve.jetstream().publish(
            "admit.user.eve.approved.team-a.x", json.dumps(fact).encode(), timeout=LIMIT
        )
    await eve.close()


async def test_message_ids_are_each_users_own(locked: Locked) -> None:
    ada, bob = await locked.client("ada"), await locked.client("bob")
    sequences = []
    for client, user, namespace in ((ada, "ada", "team-a"), (bob, "bob", "team-b")):
        fact = json.dumps({"namespace": namespace, "name": "same"}).encode()
        for _ in range(2):
            answer = await client.jetstream().publish(
                f"admit.user.{user}.held.{namespace}.same",
                fact,
                headers={"Nats-Msg-Id": "the same id"},
                timeout=LIMIT,
            )
            sequences.append(answer.seq)
    assert len(set(sequences)) == 2
    assert sequences[0] == sequences[1]
    assert sequences[2] == sequences[3]
    stored = await read_messages(locked.core, ["admit.user.*.held.*.same"], limit=10)
    ids = {message.headers["Nats-Msg-Id"] for message in stored}
    assert len(ids) == 2
    assert not any("the same id" in id_ for id_ in ids)
    await ada.close()
    await bob.close()


async def test_submitter_does_not_choose_the_uid(locked: Locked) -> None:
    ada = await locked.client("ada")
    fact = {**json.loads(locked.submission(ADA, "chosen", "lq")), "uid": "of an approved workload"}
    with pytest.raises(nats.js.errors.APIError, match="leave it out"):
        await ada.jetstream().publish(
            "admit.user.ada.submitted.team-a.chosen", json.dumps(fact).encode(), timeout=LIMIT
        )
    await ada.close()


async def test_headers_of_a_person_do_not_reach_the_log(locked: Locked) -> None:
    ada = await locked.client("ada")
    await ada.jetstream().publish(
        "admit.user.ada.held.team-a.headers",
        json.dumps({"namespace": "team-a", "name": "headers"}).encode(),
        headers={"Nats-Expected-Last-Subject-Sequence": "7", "Admit-Fact": "1"},
        timeout=LIMIT,
    )
    [message] = await read_messages(locked.core, ["admit.user.ada.held.team-a.headers"], limit=10)
    assert "Admit-Schema" in message.headers
    assert not {"Nats-Expected-Last-Subject-Sequence", "Admit-Fact"} & set(message.headers)
    await ada.close()


async def test_wrong_fact_gets_the_reason_as_its_answer(locked: Locked) -> None:
    ada = await locked.client("ada")
    for data, why in (
        (b"{}", "not a valid Held"),
        (b'{"namespace": "team-b", "name": "x"}', "the payload is about the workload team-b/x"),
        (b"[" * 200, "nested"),
    ):
        with pytest.raises(nats.js.errors.APIError, match=why):
            await ada.jetstream().publish("admit.user.ada.held.team-a.x", data, timeout=LIMIT)
    await ada.close()


async def test_submissions_outlive_a_restart_of_the_controller(locked: Locked) -> None:
    """The controller is killed while submissions arrive; each is then on the log once."""
    bob = await locked.client("bob")
    controller = next(
        process for process in locked.cluster.processes if process.service == "workload-controller"
    )

    async def patient(number: int) -> None:
        name = f"many-{number}"
        subject = f"admit.user.bob.submitted.team-b.{name}"
        fact = locked.submission(BOB, name, "lq-b")
        while True:
            try:
                answer = await bob.request(subject, fact, timeout=5, headers={"Nats-Msg-Id": name})
            except nats.errors.Error:
                await asyncio.sleep(0.05)
                continue
            assert json.loads(answer.data)["seq"]
            return

    first = [asyncio.create_task(patient(number)) for number in range(MANY // 2)]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    await controller.kill()
    more = [asyncio.create_task(patient(number)) for number in range(MANY // 2, MANY)]
    await controller.start()
    await within(asyncio.gather(*first, *more))
    stored = await read_messages(locked.core, ["admit.user.bob.submitted.team-b.*"], limit=2 * MANY)
    names = [message.subject.split(".")[-1] for message in stored if ".many-" in message.subject]
    assert sorted(names) == sorted(f"many-{number}" for number in range(MANY))
    await bob.close()


async def test_preempted_workload_names_the_submitter_of_the_preemptor(locked: Locked) -> None:
    where = ("--cpu", "4", "-n", "team-b")
    await locked.admit("bob", "submit", "--name", "low", *where, "--", "sleep", "600")
    await locked.admit("bob", "wait", "workload", "low", "--for", "Running", "-n", "team-b")
    high = ("--name", "high", "--priority", "9", *where)
    await locked.admit("root", "submit", *high, "--", "sleep", "600")
    await locked.admit("root", "wait", "workload", "high", "--for", "Running", "-n", "team-b")
    for command in ("explain", "describe"):
        shown = await locked.admit("bob", command, "workload", "low", "-n", "team-b")
        assert "workload team-b/high, submitted by root" in shown
    traced = await locked.admit("bob", "trace", "workload", "low", "-n", "team-b")
    assert "Preempted" in traced
    for name in ("low", "high"):
        await locked.admit("bob", "delete", "workload", name, "-n", "team-b")
