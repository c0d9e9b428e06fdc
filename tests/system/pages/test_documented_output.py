"""Commands print what the pages show: each console block, played on a system in its state."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from admittance.events.names import token
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.nats.connection_options import connection_options
from support.cluster import Cluster
from support.documents import ROOT, Block, console_blocks, differences
from support.processes.fork_server import run_admit
from support.servers import LIMIT, TestServer, answer_with
from system.test_cli import Up

pytestmark = pytest.mark.bus

DOCS = ROOT / "docs"
SAMPLES = ROOT / "deploy" / "samples"
ME = f"tests/system/pages/{Path(__file__).name}"


def blocks_of(name: str) -> list[Block]:
    """The blocks of a page that this file compares, in order."""
    return [block for block in console_blocks(DOCS / name) if block.test == ME]


class Shell:
    """A shell beside a deployment, in the root of the repository or another folder."""

    def __init__(self, up: Up, folder: Path = ROOT) -> None:
        self.up = up
        self.folder = folder

    def run(self, command: str, stdin: str = "") -> str:
        """The output of the command, its errors last. A pipe of commands is run by bash."""
        env = {"ADMIT_NATS_URL": self.up.url, "COLUMNS": "200"}
        words = shlex.split(command)
        if words[0] == "admit" and "|" not in words:
            done = run_admit(*words[1:], env=env, stdin=stdin, cwd=self.folder)
            return done.out + done.err
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        piped = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, **env, "PATH": path},
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * LIMIT,
            check=False,
        )
        return piped.stdout

    def plays(self, block: Block, *, gaps: bool = False) -> None:
        """Runs the commands of a block and compares what they print. ``gaps``: see
        `differences`."""
        for command, shown in block.calls:
            differing = differences(shown, self.run(command), gaps=gaps)
            assert not differing, f"{block.page.name}, line {block.line}: {command}\n{differing}"

    def until(self, command: str, claim: Callable[[str], bool]) -> str:
        """The output of the command, once the claim holds."""
        return answer_with(lambda: self.run(command), claim)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with Up(tmp_path_factory.mktemp("up")) as up:
        yield Shell(up)


def test_a_submission_that_never_fits_is_refused_as_shown(shell: Shell) -> None:
    shell.run(f"admit apply -f {SAMPLES}/queues.yaml")
    [block] = blocks_of("cli.md")
    shell.plays(block)


def test_usage_is_shown_as_on_its_page(shell: Shell) -> None:
    shell.run(f"admit apply -f {SAMPLES}/queues.yaml")
    shell.run("admit submit --wait -q research --name used-1 -- sleep 1.1")
    shell.run("admit submit --wait -q research --name used-2 -- false")
    shell.run("admit delete workload used-1 used-2")
    block, history = blocks_of("usage.md")
    shell.until("admit usage", lambda output: " 2 " in output)
    days, _, _ = shell.run("admit usage").partition(" (UTC)")
    shell.plays(block._replace(text=block.text.replace("2026-11-01 to 2026-11-26", days)))
    shell.plays(history)


def test_a_family_is_shown_as_on_its_page(shell: Shell) -> None:
    listed, described, events = blocks_of("concurrent-admission.md")
    text = (SAMPLES / "families" / "story-1.yaml").read_text()
    # The others run until the test says otherwise, and notes are no other system's.
    notes = str(shell.up.folder)
    text = text.replace('"5"', '"600"').replace('"10"', '"600"').replace("/tmp}", f"{notes}}}")
    shell.run("admit apply -f -", stdin=text)
    shell.run("admit wait workload train-1 --for Running")
    shell.until("admit get workloads", lambda output: output.count("WaitingForQuota") == 2)
    shell.plays(listed)
    shell.run("admit finish workload other-1-on-demand")
    shell.until(
        "admit describe workload train-1",
        lambda output: "Migrations:" in output and "Running" in output,
    )
    shell.plays(described)
    shell.plays(events, gaps=True)


def test_obtained_capacity_has_the_story_of_its_page(shell: Shell) -> None:
    [events] = blocks_of("provisioning.md")
    folder = SAMPLES / "provisioning"
    story = (folder / "story.yaml").read_text()
    # The others run until the test says otherwise, and the second attempt comes after that.
    story = story.replace('"2"]', '"600"]').replace('"16"]', '"600"]')
    story = story.replace("backoffBaseSeconds: 2", "backoffBaseSeconds: 10")
    shell.run(f"admit apply -f {folder}/machines.yaml")
    shell.run("admit apply -f -", stdin=story)
    shell.run("admit wait workload other-on-spot --for Running")
    shell.run(f"admit apply -f {folder}/burst.yaml")
    shell.until("admit events --workload burst", lambda output: "Retrying after failure" in output)
    shell.run("admit finish workload other-on-spot")
    shell.run("admit wait workload burst --for Finished --timeout 100")
    shell.until("admit events --workload burst", lambda output: "capacity let go" in output)
    shell.plays(events, gaps=True)


def test_a_preemption_on_the_log_is_repeated_as_on_its_page(shell: Shell) -> None:
    decision = blocks_of("replay.md")[-1]
    queue = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  cohortName: all
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: default}
spec: {clusterQueue: cq}
"""
    shell.run("admit apply -f -", stdin=queue)
    job = "admit submit -q main --cpu 1 --memory 0"
    shell.run(f"{job} --name hello -- sleep 600")
    shell.run("admit wait workload hello --for Running")
    shell.run(f"{job} --name urgent --priority 10 -- sleep 600")
    shell.run("admit wait workload urgent --for Running")
    (search, line), (replay, said) = decision.calls
    outcome = shell.run(search)
    sequence = outcome.split()[0]
    for shown, printed in (
        (line, outcome),
        (said, shell.run(replay.replace("4711", sequence))),
    ):
        different = differences(shown, printed.replace(sequence, "4711"))
        assert not different, different


GPUS = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: licenses}
spec: {controllerName: example.com/licenses, preemptionPolicy: AfterCheckPassedOrOnDemand}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: approval}
spec: {controllerName: admittance.dev/approval, preemptionPolicy: AfterCheckPassedOrOnDemand}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: gpus, namespace: default}
spec: {clusterQueue: gpus}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: gpus}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 1}]}]
"""
CHECKS = "  admissionChecks: [approval, licenses]\n"


def test_a_workload_with_quota_is_explained_as_on_its_page(shell: Shell) -> None:
    holding, backoff, _ = blocks_of("why.md")
    shell.run("admit apply -f -", stdin=GPUS)
    job = "admit submit -q gpus --gpu 1 --cpu 0 --memory 0"
    shell.run(f"{job} --name batch -- sleep 600")
    shell.run("admit wait workload batch --for Running")
    shell.run("admit apply -f -", stdin=GPUS + CHECKS)
    shell.run(f"{job} --name train --priority 10 -- sleep 600")
    shell.run("admit wait workload train --for QuotaReserved")
    shell.run("admit approve workload train --check approval")
    shell.until("admit explain workload train", lambda output: "approved by" in output)
    shell.plays(holding)
    verdict = "{check: licenses, state: Retry, requeueAfterSeconds: 600, message: all in use}"
    report(shell, "example.com/licenses", "train", yaml.safe_load(verdict))
    shell.until("admit explain workload train", lambda output: "Backoff" in output)
    shell.plays(backoff)
    shell.run("admit delete workload train batch")


RACE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: person}
spec: {controllerName: admittance.dev/approval}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: race, namespace: default}
spec: {clusterQueue: race}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: race}
spec:
  namespaceSelector: {}
  concurrentAdmission:
    migrationConstraints: {mode: UpgradeOnly}
    explicitVariants:
    - {name: gold, allowedResourceFlavors: [gold]}
    - {name: silver, allowedResourceFlavors: [silver]}
    - {name: bronze, allowedResourceFlavors: [bronze], createDelaySeconds: 3600}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: gold, resources: [{name: cpu, nominalQuota: 2}]}
    - {name: silver, admissionChecks: [person], resources: [{name: cpu, nominalQuota: 2}]}
    - {name: bronze, resources: [{name: cpu, nominalQuota: 2}]}
"""
FLAVORS = "".join(
    f"---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: {name}}}\n"
    for name in ("gold", "silver", "bronze")
)


def test_a_workload_with_variants_is_explained_as_on_its_page(shell: Shell) -> None:
    *_, family = blocks_of("why.md")
    shell.run("admit apply -f -", stdin=RACE + FLAVORS)
    job = "admit submit -q race --cpu 2 --memory 0"
    shell.run(f"{job} --name other -- sleep 600")
    shell.run("admit wait workload other --for Running")
    shell.run(f"{job} --name train -- sleep 600")
    shell.until(
        "admit explain workload train",
        lambda output: "reserved, waits for person" in output and "2 short" in output,
    )
    shell.plays(family)


def report(shell: Shell, controller: str, name: str, verdict: dict[str, Any]) -> None:
    """Publishes a verdict as the check's controller, with a login of its own."""
    folder = shell.up.folder
    creds = folder / "check.creds"
    add = f"admit auth add check a-check --controller {controller}"
    shell.run(f"{add} --dir {folder}/data/auth -o {creds}")
    workload = json.loads(shell.run(f"admit get workload {name} -o json"))
    fact = {
        "namespace": "default",
        "name": name,
        "uid": workload["metadata"]["uid"],
        "cycle": workload["status"].get("admissionCycle", 0),
        **verdict,
    }
    subject = f"admit.check.reported.{token(controller)}.default.{name}"

    async def publish() -> None:
        access = connection_options({"ADMIT_NATS_CREDS": str(creds)}, url=shell.up.url)
        bus = await Bus.connect(shell.up.url, name="test", access=access)
        await bus.publish(Outgoing(subject, json.dumps(fact).encode()))
        await bus.close()

    asyncio.run(publish())


def test_test_kits_report_what_their_pages_show(tmp_path: Path) -> None:
    [check], [provider] = blocks_of("checks.md"), blocks_of("providers.md")
    page = (DOCS / "checks.md").read_text()
    (tmp_path / "freeze.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    shutil.copy(SAMPLES / "providers" / "dozen-lines" / "rack.py", tmp_path)
    rack = tmp_path / "rack"
    rack.mkdir()
    for number in range(2):
        (rack / f"node-{number}").touch()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    running = []
    # Both at once: they mostly wait.
    for block in (check, provider):
        [call] = block.calls
        process = subprocess.Popen(
            ["bash", "-c", call.command],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "RACK": str(rack)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        running.append((call, process))
    for call, process in running:
        printed, _ = process.communicate(timeout=2 * LIMIT)
        different = differences(call.shown, printed)
        assert not different, f"{call.command}\n{different}"


async def test_doctor_names_a_missing_service_as_on_its_page(
    nats_server: TestServer, tmp_path: Path
) -> None:
    [block] = blocks_of("operations.md")
    cluster = Cluster(nats_server, tmp_path)
    for service in ("workload-controller", "retry-timer", "variant-controller", "array-controller"):
        await cluster.start(service)
    await cluster.start("provisioning-check")
    [call] = block.calls
    words = shlex.split(call.command)[1:]
    env = {"ADMIT_NATS_URL": nats_server.url, "COLUMNS": "200"}

    def different() -> str:
        answer = run_admit(*words, env=env)
        return differences(call.shown, answer.out + answer.err)

    # The first answers come while services still start.
    await asyncio.to_thread(answer_with, different, lambda differing: not differing)
    await cluster.stop()


SCENARIOS = ROOT.parent / "shared" / "differential" / "scenarios"


@pytest.mark.skipif(not SCENARIOS.exists(), reason="there is no ../shared/differential")
def test_scenarios_are_replayed_as_on_their_page(tmp_path: Path) -> None:
    block, _ = blocks_of("replay.md")
    (tmp_path / "scenarios").mkdir()
    for file in sorted(SCENARIOS.glob("*.json.gz"))[:3]:
        shutil.copy(file, tmp_path / "scenarios")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for command, shown in block.calls:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        different = differences(shown.replace("352", "3"), done.stdout)
        assert not different, f"{command}\n{different}{done.stderr}"
