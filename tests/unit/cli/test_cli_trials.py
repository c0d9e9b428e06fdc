"""What is typed wrong for the commands that try out somebody's program is told before any trial."""

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
def test_what_is_typed_wrong_for_any_trial_is_told(
    capfd: pytest.CaptureFixture[str], kit: str, name: str, arguments: list[str], sentence: str
) -> None:
    assert invoke([kit, *arguments]) == 2
    assert sentence.format(name=name) in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(
            ["provider-test", "Bad Class"],
            "CLASS: 'Bad Class' is not a name",
            id="a class nobody can name",
        ),
        pytest.param(
            ["check-test", "a", "--check", "Bad Check"],
            "--check: 'Bad Check' is not a name",
            id="a check nobody can name",
        ),
        pytest.param(
            ["check-test", "/" * 84], "CONTROLLER: has more than 249", id="too long on the bus"
        ),
    ],
)
def test_what_no_manifest_could_name_is_not_tried(
    capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
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
def test_what_is_typed_wrong_for_a_provider_is_told(
    capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert invoke(["provider-test", "a", *arguments]) == 2
    assert sentence in capfd.readouterr().err
