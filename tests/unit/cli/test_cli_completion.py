"""The words that shells get for completion."""

from __future__ import annotations

import pytest

from admittance.cli.commands.program import invoke

LINE = "_TYPER_COMPLETE_ARGS"


@pytest.mark.parametrize(
    ("instruction", "asked", "said"),
    [
        ("complete_bash", {"COMP_WORDS": "admit auth rev", "COMP_CWORD": "2"}, "revoke\n"),
        (
            "complete_bash",
            {"COMP_WORDS": "admit wait wl w --for Ru", "COMP_CWORD": "5"},
            "Running\n",
        ),
        ("complete_bash", {"COMP_WORDS": "admit get ", "COMP_CWORD": "1"}, "get\n"),
        (
            "complete_zsh",
            {LINE: "admit context u"},
            '_arguments \'*: :(("use":"Make a context the current context."))\'\n',
        ),
        ("complete_zsh", {LINE: "admit token "}, "_files\n"),
        (
            "complete_fish",
            {LINE: "admit context u", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
            "use\tMake a context the current context.\n",
        ),
        (
            "complete_powershell",
            {LINE: "admit get wl --sel", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "--sel"},
            "--selector:::KEY=VALUE, KEY!=VALUE, KEY or !KEY.\n",
        ),
    ],
)
def test_a_shell_gets_the_words_in_its_own_form(
    instruction: str,
    asked: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in {"_ADMIT_COMPLETE": instruction, **asked}.items():
        monkeypatch.setenv(name, value)
    assert invoke() == 0
    assert capsys.readouterr().out == said


def test_an_unknown_shell_gets_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_ADMIT_COMPLETE", "complete_tcsh")
    assert invoke() == 1
    assert capsys.readouterr().err == 'error: completion "complete_tcsh" is not supported\n'


@pytest.mark.parametrize("place", [None, "x"])
def test_a_call_that_no_shell_makes_gets_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str | None
) -> None:
    monkeypatch.setenv("_ADMIT_COMPLETE", "complete_bash")
    if place is not None:
        monkeypatch.setenv("COMP_CWORD", place)
    assert invoke() == 2
    assert capsys.readouterr().err.startswith("error: COMP_CWORD must be the number")
