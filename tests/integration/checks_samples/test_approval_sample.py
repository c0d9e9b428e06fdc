"""The check that waits for a person, as it stands in the samples, and the person."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from sample_programs import SAMPLES, Admit, eventually, program

from support.processes.forked_system import embedded

pytestmark = pytest.mark.bus


@asynccontextmanager
async def waiting(folder: Path, *names: str) -> AsyncIterator[Admit]:
    """Workloads that wait for a person."""
    command = (sys.executable, SAMPLES / "approval" / "approval.py")
    async with (
        embedded("--insecure") as system,
        program(folder / "log", *command, ADMIT_NATS_URL=system.url),
    ):
        admit = Admit(system)
        await admit("apply", "-f", SAMPLES / "approval" / "manifests.yaml")
        await asyncio.gather(
            *(admit("submit", "-q", "approved", "--name", name, "--", "true") for name in names)
        )
        for name in names:

            async def is_reported(name: str = name) -> bool:
                return "waits for a person" in (await admit.row(name)).get("message", "")

            await eventually(is_reported, lambda: "no message about the awaited approval")
        yield admit


async def test_an_approved_workload_runs_and_a_denied_workload_does_not(tmp_path: Path) -> None:
    async with waiting(tmp_path, "good", "bad") as admit:
        row = await admit.row("good")
        assert row["state"] == "Pending"
        how = row["message"].partition(": ")[2].split(", or ")
        # What the user is is_reported to type does what it says.
        await admit(*how[0].split()[1:], "--as", "ada", "-m", "may be used")
        await admit.wait("good", "Finished")
        how = (await admit.row("bad"))["message"].partition(": ")[2].split(", or ")
        await admit(*how[1].split()[1:], "--as", "eve")
        await admit.wait("bad", "Rejected")
        story = await admit("events", "--workload", "good")
        assert "approved by ada at 2" in story
        assert "may be used" in story
        assert "denied by eve at 2" in await admit("events", "--workload", "bad")


async def test_an_approval_during_downtime_of_the_check_is_kept(
    tmp_path: Path,
) -> None:
    documents = list(yaml.safe_load_all((SAMPLES / "approval" / "manifests.yaml").read_text()))
    [queue] = [document for document in documents if document["kind"] == "ClusterQueue"]
    queue["spec"]["admissionChecks"].append("other")
    other = {
        **documents[0],
        "metadata": {"name": "other"},
        "spec": {"controllerName": "example.com/other"},
    }
    command = (sys.executable, SAMPLES / "approval" / "approval.py")
    async with embedded("--insecure") as system:
        admit = Admit(system)
        await admit("apply", "-f", "-", text=yaml.safe_dump_all([*documents, other]))
        await admit("submit", "-q", "approved", "--name", "early", "--", "true")
        await admit.wait("early", "QuotaReserved")
        await admit("approve", "workload", "early", "--as", "ada")
        async with program(tmp_path / "log", *command, ADMIT_NATS_URL=system.url) as check:
            await check.wait_until_printed("check_judged")
            await admit("approve", "workload", "early", "--check", "other")
            await admit.wait("early", "Finished")
