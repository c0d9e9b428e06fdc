"""docs/provisioning.md and deploy/samples/provisioning say what the system does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from admittance.api.checks import Foreign, ProvisioningRetryStrategy
from admittance.api.fields.limits import PARAMETER_MAX, PARAMETERS_MAX
from admittance.api.reading import manifest
from admittance.client import kinds
from admittance.provisioning.machine_pool import pool_of
from admittance.provisioning.records import ANNOTATION, DETAILS_MAX, delay_seconds
from admittance.provisioning.steps import CLASS, CONSUME, NOT_ACTIVE, NOT_NEEDED
from admittance.runtime.process.settings import Settings

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "provisioning.md"
SAMPLES = ROOT / "deploy" / "samples" / "provisioning"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "text",
    [*BLOCKS, *(path.read_text() for path in sorted(SAMPLES.glob("*.yaml")))],
    ids=[
        *(f"block {number} of the page" for number in range(len(BLOCKS))),
        *(path.name for path in sorted(SAMPLES.glob("*.yaml"))),
    ],
)
def test_every_manifest_is_one(text: str) -> None:
    documents = manifest.read(text, "it")
    assert documents
    for document in documents:
        written = document.manifest
        if isinstance(written, Foreign):
            assert written.group == "admittance.dev"
            assert pool_of(written.metadata.name, written.parameters).machines


def test_the_removed_machines_are_the_same_on_page_and_in_sample() -> None:
    there, gone = (
        yaml.safe_load((SAMPLES / name).read_text())
        for name in ("machines.yaml", "gone/machines.yaml")
    )
    for machine in gone["spec"]["machines"]:
        assert machine.pop("count") == 0
    for machine in there["spec"]["machines"]:
        assert machine.pop("count") == 1
    assert there == gone


def test_numbers_and_names_of_the_page_match_the_program() -> None:
    page = " ".join(PAGE.read_text().split())
    assert f"at most {PARAMETERS_MAX} of {PARAMETER_MAX} characters" in page
    assert f"more than {DETAILS_MAX} details" in page
    assert f"`{ANNOTATION}<parameter>`" in page
    assert f"`{CONSUME}`" in page
    assert CLASS.rpartition("/")[2] in page
    assert NOT_ACTIVE in page
    assert NOT_NEEDED in page
    assert f"({Settings.from_env('x').provisioning_seconds:.0f}; 0: no limit)" in page
    delays = [delay_seconds(k, ProvisioningRetryStrategy()) for k in (1, 2, 3)]
    assert ", ".join(map(str, delays)) + " s and so on" in page
    for kind in (kinds.REQUEST, kinds.MACHINE_POOL):
        assert f"(`{kind.short[0]}`)" in page
        assert kind.plural in page


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)", PAGE.read_text()))))
def test_links_have_a_target(link: str) -> None:
    assert (PAGE.parent / link).exists()
