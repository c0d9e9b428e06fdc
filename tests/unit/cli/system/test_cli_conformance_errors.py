"""Errors of `admit check-test` and `admit provider-test` before any case runs."""

from __future__ import annotations

import pytest

from admittance.cli.commands.program import invoke

KITS = [
    pytest.param("check-test", "CONTROLLER", id="check-test"),
    pytest.param("provider-test", "CLASS", id="provider-test"),
]


@pytest.mark.parametrize(("kit", "name"), KITS)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["a", "--port", "1"], "--embedded", id="a port for no server"),
        pytest.param(
            ["a", "--embedded", "--nats", "nats://x"], "--nats", id="a server of ours and of theirs"
        ),
        pytest.param(["a", "--parameters", "/nowhere"], "/nowhere", id="no file of parameters"),
        pytest.param(["a", "--case", "b"], '"b"', id="a case that there is not"),
        pytest.param(["", "--embedded"], "{name} is empty", id="no name"),
        pytest.param(["a" * 254], "{name}: has ", id="a name that is too long"),
    ],
)
def test_wrong_options_of_a_conformance_test_are_refused(
    capfd: pytest.CaptureFixture[str], kit: str, name: str, arguments: list[str], sentence: str
) -> None:
    assert invoke([kit, *arguments]) == 2
    assert sentence.format(name=name) in capfd.readouterr().err


NAMES_CASES: dict[str, tuple[list[str], str]] = {
    "a bad name of a class": (["provider-test", "Bad Class"], "CLASS: 'Bad Class' is not a name"),
    "a bad name of a check": (
        ["check-test", "a", "--check", "Bad Check"],
        "--check: 'Bad Check' is not a name",
    ),
    "too long on the bus": (["check-test", "/" * 84], "CONTROLLER: has more than 249"),
}


@pytest.mark.parametrize("case", NAMES_CASES)
def test_names_that_no_manifest_can_have_are_refused(
    case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, sentence = NAMES_CASES[case]
    assert invoke([*arguments, "--nats", "nats://127.0.0.1:1"]) == 2
    [line] = capfd.readouterr().err.splitlines()
    assert sentence in line


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["--request", "cpu=lots"], "cpu=lots", id="a quantity that is none"),
        pytest.param(["--node-selector", "x"], "KEY=VALUE", id="a label without a value"),
    ],
)
def test_wrong_options_of_provider_test_are_refused(
    capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert invoke(["provider-test", "a", *arguments]) == 2
    assert sentence in capfd.readouterr().err
