"""The training, the sweep and the pipeline go from submission to result as their page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.documents import ROOT, console_blocks
from system.pages.test_documented_output import Shell
from system.test_cli import Up

pytestmark = pytest.mark.bus


def test_each_script_goes_from_submission_to_result(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / ".work").mkdir()
    training, *others = console_blocks(ROOT / "docs" / "scripts.md")
    with Up(tmp_path) as up:
        shell = Shell(up, tmp_path)
        shell.run("admit apply -f deploy/samples/queues.yaml")
        shell.plays(training)
        restarted, *_ = shell.run("admit logs workload classifier").splitlines()
        assert "epoch 0:" not in restarted
        for block in others:
            shell.plays(block)
