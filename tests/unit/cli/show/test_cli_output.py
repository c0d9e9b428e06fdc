"""Tables, colours and streams of the output."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admittance.api.reading.manifest import accept
from admittance.api.workload import Workload
from admittance.cli.support import output
from admittance.cli.support.options import Output
from admittance.cli.support.output import Column, Table
from admittance.cli.workloads.logs import Writer
from admittance.cli.workloads.submissions import Submission, show_accepted
from admittance.events.shapes import PodLog
from support.builders import a_manifest

TABLE = Table(
    (Column("NAME"), Column("PODS", right=True), Column("MESSAGE", wide=True), Column("REASON")),
    (("a", "10", "why", "-"), ("longer", "2", "how", "Waits")),
)


def test_columns_are_padded_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(TABLE)
    assert capsys.readouterr().out.splitlines() == [
        "NAME     PODS   REASON",
        "a          10   -",
        "longer      2   Waits",
    ]


def test_wide_columns_are_shown_with_o_wide(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(TABLE, wide=True)
    assert capsys.readouterr().out.splitlines()[0] == "NAME     PODS   MESSAGE   REASON"


def test_stored_text_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(Table((Column("NAME"),), (("a\x1b[2Jb\nc",),)))
    assert capsys.readouterr().out == "NAME\na [2Jb c\n"


@pytest.mark.parametrize("write", [output.note, output.warn, output.error])
def test_a_note_cannot_control_the_terminal(
    write: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write("drained: \x1b[31mred")
    assert capsys.readouterr().err.endswith("drained:  [31mred\n")


def test_a_text_of_several_lines_is_a_yaml_block(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_yaml({"b": "one\ntwo\n", "a": [1, None, True]})
    assert capsys.readouterr().out == "b: |\n  one\n  two\na:\n- 1\n- null\n- true\n"


def test_a_warning_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    output.warn("two\nlines")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "warning: two lines\n"


def test_output_of_one_pod_is_shown_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(None)
    writer.write((PodLog(pod="main-0", text="half a "),))
    writer.write((PodLog(pod="main-0", text="line"),))
    writer.end()
    assert capsys.readouterr().out == "half a line"


def test_missing_output_is_said_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(None)
    writer.write((PodLog(pod="main-0", text="rest\n", cut=3 << 20, short=True),))
    captured = capsys.readouterr()
    assert captured.out == "rest\n"
    cut, short = captured.err.splitlines()
    assert cut.startswith("main-0: 3.0 MiB of its output before this are not kept")
    assert short.startswith("main-0: its lines are too long")


def test_lines_of_several_pods_are_whole_and_carry_the_pod(
    capsys: pytest.CaptureFixture[str],
) -> None:
    writer = Writer(None)
    writer.write((PodLog(pod="main-0", text="a\nhal"), PodLog(pod="main-1", text="b\n")))
    writer.write((PodLog(pod="main-0", text="f\n"), PodLog(pod="main-1", text="rest")))
    writer.end()
    assert capsys.readouterr().out.splitlines() == [
        "main-0 | a",
        "main-1 | b",
        "main-0 | half",
        "main-1 | rest",
    ]


def test_words_are_coloured_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setattr(output, "terminal_width", lambda: 80)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.outcome("workload/w", "created")
    output.show_table(Table((Column("NAME"), Column("PODS", right=True)), (("Failed", "10"),)))
    assert capsys.readouterr().out.splitlines() == [
        "workload/w \x1b[32mcreated\x1b[0m",
        "\x1b[1mNAME\x1b[0m     \x1b[1mPODS\x1b[0m",
        "\x1b[31mFailed\x1b[0m     10",
    ]
    monkeypatch.setenv("NO_COLOR", "1")
    output.outcome("workload/w", "created")
    assert capsys.readouterr().out == "workload/w created\n"


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Output.TABLE, "workload.kueue.x-k8s.io/w created\n"),
        (Output.WIDE, "workload.kueue.x-k8s.io/w created\n"),
        (Output.NAME, "workload.kueue.x-k8s.io/w\n"),
        (Output.JSON, '{"namespace":"ns","name":"w"}\n'),
        (Output.YAML, "---\nnamespace: ns\nname: w\n"),
    ],
)
def test_a_submission_is_shown_in_each_format(
    capsys: pytest.CaptureFixture[str], shape: Output, text: str
) -> None:
    workload = accept(a_manifest("w", queueName="lq")).manifest
    assert isinstance(workload, Workload)
    show_accepted(Submission("the command line", workload), "created", shape)
    assert capsys.readouterr().out == text
