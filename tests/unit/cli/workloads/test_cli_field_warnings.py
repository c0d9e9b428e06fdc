"""Commands print each warning about the fields of manifests once."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.cli.support import files

JOBS = "\n---\n".join(
    f"""apiVersion: batch/v1
kind: Job
metadata: {{name: job-{number}, labels: {{kueue.x-k8s.io/queue-name: main}}}}
spec:
  template:
    spec: {{restartPolicy: Never, containers: [{{name: a, command: ["true"]}}], hostNetwork: true}}
"""
    for number in range(3)
)


def test_a_warning_about_several_documents_is_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    files.warn_about(files.documents([str(file)], "default"))
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {file}, document 1 (and 2 more documents): spec.template.")
