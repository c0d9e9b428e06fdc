"""Names that ADMIT_RUNNER may give a runner."""

from __future__ import annotations

import pytest

from admittance.job_rules.runner_name import given_name
from admittance.runtime.errors import SetupError


@pytest.mark.parametrize("name", ["gpu-1", "Node_7", "ada@host.example.com", "n" * 253])
def test_a_runner_has_the_name_that_its_variable_gives(name: str) -> None:
    assert given_name({"ADMIT_RUNNER": name}) == name


def test_a_runner_without_a_variable_or_with_an_empty_one_is_given_no_name() -> None:
    assert given_name({}) is given_name({"ADMIT_RUNNER": ""}) is None


@pytest.mark.parametrize("name", ["a b", "a\x01b", "a\n", "a/b", "gr\u00fcn", "n" * 254])
def test_a_name_that_cannot_be_typed_or_looks_like_another_is_refused(name: str) -> None:
    with pytest.raises(SetupError, match=r"^ADMIT_RUNNER '.*': a name of a runner has") as error:
        given_name({"ADMIT_RUNNER": name})
    assert str(error.value).isprintable()
