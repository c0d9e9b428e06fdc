"""Which variables of the submitter's environment a job gets."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from admittance.client.arguments.environment import (
    BYTES_MAX,
    EVERYWHERE,
    SAME_MACHINE,
    Exported,
    check_environment,
    exported,
)
from admittance.client.errors import BadInput

ENVIRON = {
    "PATH": "/venv/bin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "HOME": "/home/ada",
    "PWD": "/home/ada",
    "LEVEL": "3",
    "GITHUB_TOKEN": "t",
    "db_password": "p",
    "SSH_AUTH_SOCK": "/s",
    "BASH_FUNC_f%%": "() { :; }",
    "RAW": "\udcff",
}
LOCALE = {"LANG": "C.UTF-8", "LC_ALL": "C"}
SECRET = ("BASH_FUNC_f%%", "GITHUB_TOKEN", "RAW", "SSH_AUTH_SOCK", "db_password")


@pytest.mark.parametrize(
    ("names", "default", "taken"),
    [
        pytest.param([], EVERYWHERE, Exported(LOCALE), id="elsewhere"),
        pytest.param(
            [], SAME_MACHINE, Exported({"PATH": "/venv/bin:/bin", **LOCALE}), id="same machine"
        ),
        pytest.param(["NONE"], SAME_MACHINE, Exported({}), id="nothing"),
        pytest.param(["LEVEL"], EVERYWHERE, Exported({**LOCALE, "LEVEL": "3"}), id="by name"),
        pytest.param(
            ["NONE,LEVEL", "GITHUB_TOKEN"],
            SAME_MACHINE,
            Exported({"LEVEL": "3", "GITHUB_TOKEN": "t"}),
            id="only the named, also a secret",
        ),
        pytest.param(
            ["ALL"],
            (),
            Exported({"PATH": "/venv/bin:/bin", **LOCALE, "LEVEL": "3"}, SECRET),
            id="all but secrets and what the job has itself",
        ),
        pytest.param(
            ["ALL,db_password"],
            (),
            Exported(
                {"PATH": "/venv/bin:/bin", **LOCALE, "LEVEL": "3", "db_password": "p"},
                tuple(name for name in SECRET if name != "db_password"),
            ),
            id="a named secret beside all",
        ),
        pytest.param(["HOME"], (), Exported({"HOME": "/home/ada"}), id="a home by name"),
    ],
)
def test_a_job_gets_these_variables(
    names: Sequence[str], default: Sequence[str], taken: Exported
) -> None:
    assert exported(ENVIRON, names, default) == taken


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["ALL,NONE"], "--export ALL and NONE contradict each other"),
        ([",,"], "--export ,, names no variable"),
        (["NO_SUCH"], "--export NO_SUCH: this variable is not set here"),
        (["1A"], "--export: '1A' is not the name of a variable"),
        (["RAW"], "--export RAW: its value is not a text of Unicode"),
    ],
)
def test_a_name_that_cannot_be_exported_is_refused(names: Sequence[str], said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        exported(ENVIRON, names, EVERYWHERE)


def test_variables_above_their_limit_are_refused_with_the_largest() -> None:
    fitting = {"A": "a" * (BYTES_MAX - 3)}
    check_environment(fitting)
    with pytest.raises(BadInput, match=r"65,541 bytes, at most 65,536.*: A \(65,536\), B \(5\)"):
        check_environment({**fitting, "B": "é"})
