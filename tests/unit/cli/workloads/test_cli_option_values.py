"""Values of options that would be rounded, or would have no effect, are refused."""

from __future__ import annotations

import pytest

from support.processes.in_process import Admit


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpu", "0.5"], '--gpu "0.5" is not a multiple of 1'),
        (["--memory", "0.5"], '--memory "0.5" is not a multiple of 1'),
        (["--gpu", "-1"], "--gpu must not be negative, not -1"),
        (["--cpu", "-0.5"], "--cpu must not be negative, not -0.5"),
        (["--memory", "x"], "--memory 'x' is not a quantity"),
        (["--cpu", "0.0001"], '--cpu "0.0001" is not a multiple of a thousandth of a cpu'),
        (["--max-time", "0.4s"], '--max-time "0.4s" must be a whole number of seconds, at least 1'),
        (["--time", "0"], '--time "0" must be a whole number of seconds, at least 1'),
        (["--time", "1h", "--max-time", "1h"], "--time and --max-time are the same"),
        (["--time", "1h", "--signal", "KILL@9"], "--signal 'KILL' is not one of the signals HUP,"),
        (["--time", "1h", "--signal", "USR1@x"], '--signal USR1@ "x" is not a duration'),
        (["--time", "1h", "--signal", "USR1@99d"], "--signal USR1@99d: at most 31 days before"),
        (["--max-time", "90.5"], '--max-time "90.5" must be a whole number of seconds'),
        (["--env", "1A=b"], "--env '1A' is not the name of a variable"),
        (["--env", "A B=c"], "--env 'A B' is not the name of a variable"),
        (["--image", "a b"], "--image 'a b' is not the name of an image: no spaces"),
        (["--image", "-v/:/host"], "--image '-v/:/host' is not the name of an image"),
        (["--env", "A=1", "--env", "A=2"], "--env A is given twice, as '1' and as '2'"),
        (["--label", "a=1", "--label", "a=2"], "--label a is given twice, as '1' and as '2'"),
    ],
)
def test_a_value_that_would_count_as_another_is_refused(
    options: list[str], said: str, admit: Admit
) -> None:
    assert admit.err(2, "submit", *options, "--", "true").startswith(f"error: {said}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--wait"], "--dry-run submits nothing: leave out --wait"),
        (["--follow"], "--dry-run submits nothing: leave out --wait and --follow"),
        (["--input", __file__], "--dry-run stores no files"),
    ],
)
def test_a_dry_run_refuses_what_needs_a_submission(
    options: list[str], said: str, admit: Admit
) -> None:
    assert said in admit.err(2, "submit", "--dry-run", *options, "--", "true")


def test_an_option_for_commands_is_refused_beside_a_file(admit: Admit) -> None:
    for option in (["--cpu", "1"], ["--anyway"], ["--count", "2"], ["--max-time", "5m"]):
        assert "leave out the other options, except -q" in admit.err(
            2, "submit", "-f", "x.yaml", *option
        )
