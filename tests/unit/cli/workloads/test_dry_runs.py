"""`admit submit --dry-run` prints manifests that `admit apply` reads, and `--follow` one output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from admittance.api.reading.from_job import from_command
from admittance.api.reading.manifest import read
from admittance.api.workload import ArraySpec, Workload
from admittance.cli.support.options import Output
from admittance.cli.support.output import show_yaml
from admittance.cli.workloads.submissions import Submission, check_followed, show_manifests
from admittance.client.errors import BadInput
from admittance.folders import MachineFacts, SubmittedFrom
from support.processes.in_process import Admit

JOB = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {{name: {}}}
spec:
  queueName: main
  podSets:
  - {{name: main, count: 1, template: {{spec: {{containers: [{{name: c, command: [\"true\"]}}]}}}}}}
"""


def workload(name: str = "a") -> Workload:
    script = '#!/bin/sh\n  echo $$ "$(id)"\t\n\n# é: yes\n'
    folder = SubmittedFrom(path="/x", machine=MachineFacts(), inode=7, owner=1, uid=1, umask=18)
    return from_command(
        ["sh", "-c", script, "train.sh", "no", "1e3"],
        name=name,
        namespace="lab",
        queue="main",
        cpu="1500m",
        gpu="1",
        count=2,
        priority=3,
        env={"A": "on"},
        working_dir="/x",
        folder=folder,
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [("1e3", "'1e3'"), ("-.5E+2", "'-.5E+2'"), ("0o17", "'0o17'"), ("1e", "1e"), ("v1e3", "v1e3")],
)
def test_yaml_quotes_what_yaml_1_2_reads_as_a_number(
    text: str, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_yaml({"a": text})
    assert capsys.readouterr().out == f"a: {written}\n"


@pytest.mark.parametrize("shape", [Output.YAML, Output.JSON])
@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_the_manifests_of_a_dry_run_give_the_same_workloads(
    shape: Output, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    made = [workload(name) for name in names]
    show_manifests([Submission("x", one) for one in made], shape)
    documents = read(capsys.readouterr().out.encode(), "standard input", namespace="default")
    assert [document.manifest for document in documents] == made


@pytest.mark.parametrize(
    ("shape", "printed"),
    [
        ((), "workload.kueue.x-k8s.io/a created (dry run)\n"),
        (("-o", "name"), "workload.kueue.x-k8s.io/a\n"),
    ],
)
def test_a_dry_run_of_manifests_needs_no_server(
    shape: tuple[str, ...], printed: str, admit: Admit, tmp_path: Path
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(JOB.format("a"))
    typed = ("--nats", "nats://127.0.0.1:1", "submit", "--dry-run", "-f", str(file))
    assert admit.out(*typed, *shape) == printed
    assert json.loads(admit.out(*typed, "-o", "json"))["metadata"]["name"] == "a"


def test_one_output_is_followed() -> None:
    one = workload()
    check_followed([one])
    with pytest.raises(BadInput, match="not of 2"):
        check_followed([one, one])
    array = replace(one, spec=replace(one.spec, array=ArraySpec(indexes="0-1")))
    with pytest.raises(BadInput, match="follow an element of the array"):
        check_followed([array])
