"""The page about concurrent admission, held to what is so: its tables are played."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from admittance.api.fields.problems import ManifestError
from admittance.api.queues import (
    ClusterQueue,
    ConcurrentAdmission,
    ExplicitVariant,
    MigrationConstraints,
)
from admittance.api.reading.manifest import read
from admittance.family import ActivityReason
from support.documents import marked_table

PAGE = Path(__file__).parents[3] / "docs" / "concurrent-admission.md"


def lines_of(mark: str) -> list[Any]:
    return [pytest.param(*row, id=row[0]) for row in marked_table(PAGE, mark)[1:]]


# Words, fields, spellings. ------------------------------------------------------------------


def test_every_reason_shown_is_documented() -> None:
    documented = {
        word for row in marked_table(PAGE, "why")[1:] for word in re.findall(r"`(\w+)`", row[2])
    }
    assert documented == {str(why) for why in ActivityReason}


def test_every_field_is_documented() -> None:
    text = PAGE.read_text().partition("## Fields")[2].partition("## ")[0]
    documented = {
        word.rpartition(".")[2]
        for cell in re.findall(r"^\| ((?:`[\w.\[\]]+`(?:, )?)+) \|", text, re.MULTILINE)
        for word in re.findall(r"`([^`]+?)(?:\[\])?`", cell)
    }
    structs = (ConcurrentAdmission, ExplicitVariant, MigrationConstraints)
    fields = {name for struct in structs for name in struct.__struct_encode_fields__}
    assert documented == fields - {"migrationConstraints"}


def queue_with(**spec: Any) -> str:
    """A ClusterQueue of two flavors with this concurrent admission policy."""
    flavors = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": 4}]}
        for name in ("reservation", "spot")
    ]
    return yaml.safe_dump(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "q"},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
                **spec,
            },
        }
    )


def policy(mode: str = "UpgradeOnly", *explicit: dict[str, Any], **more: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"migrationConstraints": {**({"mode": mode} if mode else {}), **more}}
    if explicit:
        said["explicitVariants"] = list(explicit)
    return {"concurrentAdmission": said}


def a(name: str = "a", *flavors: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "allowedResourceFlavors": list(flavors or ("spot",)), **more}


TWO_GROUPS = {
    "resourceGroups": [
        {
            "coveredResources": [resource],
            "flavors": [{"name": flavor, "resources": [{"name": resource, "nominalQuota": 1}]}],
        }
        for resource, flavor in (("cpu", "reservation"), ("memory", "spot"))
    ]
}
KUEUE = {"concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}}}
REFUSED: dict[str, dict[str, Any]] = {
    "no `mode`": policy(""),
    "`minFlavor` with `NoMigration`": policy("NoMigration", minFlavor="spot"),
    "`minFlavor` that the queue does not offer": policy(minFlavor="gold"),
    "`minFlavor` beside explicit variants": policy("UpgradeOnly", a(), minFlavor="spot"),
    "`minVariant` without explicit variants": policy(minVariant="spot"),
    "`minVariant` that is none of them": policy("UpgradeOnly", a(), minVariant="gold"),
    "two variants of one name": policy("UpgradeOnly", a(), a()),
    "a variant without flavors": policy("UpgradeOnly", {"name": "a"}),
    "a flavor that the queue does not offer": policy("UpgradeOnly", a("a", "gold")),
    "a delay below 0": policy("UpgradeOnly", a(createDelaySeconds=-1)),
    "a name in capitals": policy("UpgradeOnly", a("Spot")),
    "17 variants": policy("UpgradeOnly", *(a(f"a-{n}") for n in range(17))),
    "two resource groups, no explicit variants": {**policy(), **TWO_GROUPS},
    "`queueingStrategy: StrictFIFO`": {**policy(), "queueingStrategy": "StrictFIFO"},
    "both spellings at once": {**policy(), **KUEUE},
}


@pytest.mark.scenario("D20", "D30")
@pytest.mark.parametrize(("wrote", "answer"), lines_of("refused"))
def test_what_cannot_work_is_refused_in_these_words(wrote: str, answer: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read(queue_with(**REFUSED[wrote]), "page")
    [line] = caught.value.lines()
    assert answer.strip("`") in line


def test_without_a_mistake_it_is_accepted() -> None:
    assert read(queue_with(**policy()), "page")
    assert read(queue_with(**policy("UpgradeOnly", a(createDelaySeconds=1))), "page")


def stored(**spec: Any) -> ConcurrentAdmission:
    [document] = read(queue_with(**spec), "page")
    assert isinstance(document.manifest, ClusterQueue)
    policy = document.manifest.spec.concurrent_admission
    assert policy is not None
    return policy


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, policy()),
        ({"mode": "TryPreferredFlavors"}, policy()),
        ({"mode": "RetainFirstAdmission"}, policy("NoMigration")),
        (
            {"constraints": {"lastAcceptableFlavorName": "reservation"}},
            policy(minFlavor="reservation"),
        ),
    ],
)
def test_kueue_s_spelling_means_what_the_page_says(
    theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    text = PAGE.read_text().partition("## Kueue's spelling")[2].partition("## ")[0]
    for word in (*theirs, *theirs.values()):
        assert isinstance(word, dict) or str(word) in text
    assert stored(concurrentAdmissionPolicy={"migration": theirs}) == stored(**ours)


def test_manifests_of_the_page_are_accepted() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for text in blocks:
        assert all(document.warnings == () for document in read(text, PAGE.name))
