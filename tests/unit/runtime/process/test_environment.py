"""Values of environment variables."""

from __future__ import annotations

import pytest

from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import (
    choice,
    number,
    object_names,
    text_list,
    whole_number,
)


@pytest.mark.parametrize(
    ("env", "want"),
    [
        pytest.param({}, 5.0, id="the default where nothing is set"),
        pytest.param({"N": ""}, 5.0, id="the default where it is set to nothing"),
        pytest.param({"N": "2.5"}, 2.5, id="what is set"),
        pytest.param({"N": "0.5"}, 0.5, id="the least there may be"),
    ],
)
def test_a_number(env: dict[str, str], want: float) -> None:
    assert number(env, "N", 5.0, least=0.5) == want


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("five", "N='five' is not a number", id="a word"),
        pytest.param("nan", "N='nan' is not a number", id="what floating point calls no number"),
        pytest.param("inf", "N='inf' is not a number", id="for ever"),
        pytest.param("0.4", "N=0.4 is less than 0.5", id="too little"),
        pytest.param("-1", "N=-1 is less than 0.5", id="less than nothing"),
    ],
)
def test_a_wrong_number_is_reported_with_its_variable(text: str, why: str) -> None:
    with pytest.raises(SetupError) as caught:
        number({"N": text}, "N", 5.0, least=0.5)
    assert str(caught.value) == why


def test_a_fraction_is_not_a_whole_number() -> None:
    assert whole_number({}, "N", 5, least=1) == 5
    assert whole_number({"N": "7"}, "N", 5, least=1) == 7
    with pytest.raises(SetupError, match=r"N=1\.7 is not a whole number"):
        whole_number({"N": "1.7"}, "N", 5, least=1)
    with pytest.raises(SetupError, match="N=0 is less than 1"):
        whole_number({"N": "0"}, "N", 5, least=1)


def test_a_choice_maps_its_setting_to_a_value() -> None:
    choices = {"json": True, "text": False}
    assert choice({"LOG": "text"}, "LOG", choices) is False
    assert choice({"LOG": ""}, "LOG", choices) is None
    with pytest.raises(SetupError, match="LOG='xml' is not one of json, text"):
        choice({"LOG": "xml"}, "LOG", choices)


def test_a_list_has_no_duplicates_and_no_empty_texts() -> None:
    assert text_list({"L": " b, a,,b ,"}, "L") == ("b", "a")
    assert text_list({}, "L") == ()


def test_a_list_of_names_contains_only_names() -> None:
    assert object_names({"L": "b.example.com, a"}, "L") == ("b.example.com", "a")
    assert object_names({}, "L") == ()
    with pytest.raises(SetupError, match="L: 'A B' is not a name: lower case letters"):
        object_names({"L": "a,A B"}, "L")
