"""docs/schema/manifests.json and the validation give the same answers."""

from __future__ import annotations

import json
import os
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tools.asyncapi import document
from tools.manifests_schema import manifests_schema

from unit.api.validation.manifest_mistakes import SHARED, corpus, difference, mistaken, problems

MANIFESTS = int(os.environ.get("ADMIT_SCHEMA_MANIFESTS", "300"))
"""So many generated manifests are asked about."""


def test_the_schema_is_valid_json_schema() -> None:
    Draft202012Validator.check_schema(manifests_schema())


def shape(value: dict[str, Any]) -> str:
    """The manifest without its name and its status, which decide nothing here."""
    rest = {key: content for key, content in value.items() if key not in ("metadata", "status")}
    metadata = value.get("metadata", {})
    named = metadata.keys() - {"name", "namespace", "uid", "creationTimestamp", "resourceVersion"}
    kept = {key: metadata[key] for key in named}
    return json.dumps([rest, kept, bool(metadata.get("name"))], sort_keys=True, default=str)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared manifests are not beside this tree")
def test_every_known_manifest_gets_the_same_answer_from_both() -> None:
    # Many differ in their names only: one of these stands for all.
    known = {shape(value): (name, value) for name, value in corpus()}
    assert len(known) > 500
    differences = {
        f"{name}: {differing}" for name, value in known.values() if (differing := difference(value))
    }
    assert not differences, "\n".join(sorted(differences)[:20])


def test_manifests_with_mistakes_get_the_same_answer_from_both() -> None:
    right = [value for name, value in corpus() if name == "rich" or not problems(value)]
    by_kind: dict[str, list[dict[str, object]]] = {}
    for value in right:
        by_kind.setdefault(str(value["kind"]), []).append(value)
    rich = right[:13]
    assert not any(map(problems, rich))
    rng = Random(MANIFESTS)
    for _ in range(MANIFESTS):
        kind = rng.choice(sorted(by_kind))
        value = mistaken(rng.choice(rich if rng.random() < 0.5 else by_kind[kind]), rng)
        assert not difference(value), value


VERDICT = {"namespace": "ns", "name": "w", "check": "c", "cycle": 1, "state": "Ready"}


@pytest.mark.parametrize(
    ("more", "fits"),
    [
        pytest.param({}, True, id="a verdict"),
        pytest.param({"state": "Retry", "requeueAfterSeconds": 60}, True, id="with a delay"),
        pytest.param({"state": "Retry", "requeueAfterSeconds": "8m0s"}, True, id="in words"),
        pytest.param({"requeueAfterSeconds": "soon"}, False, id="with words that are no delay"),
        pytest.param({"state": "Maybe"}, False, id="of an unknown state"),
        pytest.param({"requeueAfterSeconds": -1}, False, id="with a negative delay"),
        pytest.param({"requeueAfterSeconds": 2**31}, False, id="with a delay beyond 32 bits"),
    ],
)
def test_the_schema_of_a_verdict_checks_states_and_delays(
    more: dict[str, object], fits: bool
) -> None:
    schemas = document()["components"]["schemas"]
    schema = {"components": {"schemas": schemas}, "$ref": "#/components/schemas/CheckReported"}
    assert Draft202012Validator(schema).is_valid({**VERDICT, **more}) is fits
