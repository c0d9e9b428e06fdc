"""What submits an element of an array, and what is refused. docs/spec/arrays.md#2."""

from __future__ import annotations

import msgspec
import pytest

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.subjects import user_subject
from admittance.workload.arrays.elements import ElementOf, claimed_element
from support.cores.array_cores import ArrayCores

INDEX = "admittance.dev/array-index"


def an_element(
    cores: ArrayCores, name: str = "a-1", index: str = "1", owner: str = "a", uid: str = ""
) -> bytes:
    """The submission of an element."""
    uid = uid or cores.stored("a").metadata.uid
    reference = {"apiVersion": "v", "kind": "Workload", "name": owner, "uid": uid}
    return msgspec.json.encode(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": "ns",
                "labels": {INDEX: index},
                "ownerReferences": [reference],
            },
        }
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"name": "a-2"}, "NotAnElement"),
        ({"name": "other"}, "NotAnElement"),
        ({"name": "a-9", "index": "9"}, "NotAnElement"),
        ({"uid": "another"}, "NoArray"),
        ({"owner": "b"}, "NoArray"),
    ],
)
def test_an_element_is_created_if_its_array_has_it(fields: dict[str, str], reason: str) -> None:
    cores = ArrayCores()
    cores.array(indexes="0-2")
    manifest = an_element(cores, **fields)
    name = fields.get("name", "a-1")
    [reply] = cores.apply_facts(
        facts.Submitted(namespace="ns", name=name, workload=msgspec.Raw(manifest))
    )
    assert reply.reason == reason
    assert cores.has(name) is (reason == "")


@pytest.mark.parametrize("fact", [facts.Deactivated, facts.Finished, facts.Deleted])
def test_an_array_that_is_stopped_or_has_ended_gets_no_element(fact: type[Fact]) -> None:
    cores = ArrayCores()
    cores.array(indexes="0-2")
    manifest = an_element(cores)
    cores.publish(fact, "a")
    [reply] = cores.apply_facts(
        facts.Submitted(namespace="ns", name="a-1", workload=msgspec.Raw(manifest))
    )
    assert (reply.outcome, reply.reason) == ("refused", "NoArray")


def test_a_user_submits_no_element() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-2")
    fact = facts.Submitted(namespace="ns", name="a-1", workload=msgspec.Raw(an_element(cores)))
    logged = cores.logged(user_subject("eve", fact), msgspec.json.encode(fact))
    [reply] = cores.fold([logged]).values()
    assert (reply.outcome, reply.reason) == ("refused", "NotAnElement")
    assert not cores.has("a-1")


@pytest.mark.parametrize(
    ("manifest", "claim"),
    [
        (
            f'{{"metadata":{{"labels":{{"{INDEX}":"3"}},'
            '"ownerReferences":[{"kind":"Job"},{"kind":"Workload","name":"a","uid":"u"}]}}',
            ElementOf("a", "u", 3),
        ),
        (f'{{"metadata":{{"labels":{{"{INDEX}":"3"}}}}}}', None),
        (
            f'{{"metadata":{{"labels":{{"{INDEX}":"x"}},'
            '"ownerReferences":[{"kind":"Workload","name":"a","uid":"u"}]}}',
            None,
        ),
        (f'{{"metadata":{{"labels":"{INDEX}"}}}}', None),
        (
            '{"metadata":{"labels":{},'
            '"ownerReferences":[{"kind":"Workload","name":"a","uid":"u"}]}}',
            None,
        ),
    ],
    ids=["an element", "no owner", "no index", "wrong labels", "no label"],
)
def test_a_submission_names_an_element_by_its_index_and_owner(
    manifest: str, claim: ElementOf | None
) -> None:
    assert claimed_element(manifest.encode()) == claim


def test_an_element_in_a_queue_with_variants_is_their_parent() -> None:
    cores = ArrayCores()
    cores.put("ResourceFlavor", "other")
    cores.queue(
        "q",
        resourceGroups=[
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {"name": name, "resources": [{"name": "cpu", "nominalQuota": 5}]}
                    for name in ("default", "other")
                ],
            }
        ],
        concurrentAdmission={"migrationConstraints": {"mode": "NoMigration"}},
    )
    cores.array(indexes="0-1")
    cores.control()
    assert b'"role":"parent"' in bytes(cores.stored("a-1").spec)
    assert b'"role":"array"' in bytes(cores.stored("a").spec)
