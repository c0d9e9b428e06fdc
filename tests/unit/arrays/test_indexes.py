"""The set of indexes of an array, as it is written. docs/spec/arrays.md#1."""

from __future__ import annotations

import pytest

from admittance.api.arrays import (
    ARRAY_SIZE_MAX,
    INDEXES_LENGTH_MAX,
    BadIndexes,
    element_name,
    parse_indexes,
    split_parallelism,
    written_indexes,
)


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("0", (0,)),
        ("7-7", (7,)),
        ("0-3", (0, 1, 2, 3)),
        ("1,3,7", (1, 3, 7)),
        ("0-20:5", (0, 5, 10, 15, 20)),
        ("0-9:4", (0, 4, 8)),
        ("0-2, 5", (0, 1, 2, 5)),
        ("999999999", (999_999_999,)),
    ],
)
def test_a_set_of_indexes_is_read(text: str, indexes: tuple[int, ...]) -> None:
    assert parse_indexes(text) == indexes


def test_an_array_may_have_the_most_indexes_and_not_one_more() -> None:
    assert len(parse_indexes(f"1-{ARRAY_SIZE_MAX}")) == ARRAY_SIZE_MAX
    with pytest.raises(BadIndexes, match=r"are 10,001 indexes, 10,000 are allowed"):
        parse_indexes(f"0-{ARRAY_SIZE_MAX}")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", '"" is not an index like 3'),
        ("a", '"a" is not an index like 3'),
        ("-1", '"-1" is not an index'),
        ("1-", '"1-" is not an index'),
        ("1:2", '"1:2" is not an index'),
        ("0-4:", '"0-4:" is not an index'),
        ("1000000000", '"1000000000" is not an index'),
        ("٣", "is not an index"),
        ("5-3", "the range 5-3 is empty"),
        ("0-4:0", "the range 0-4:0 has the step 0"),
        ("3,1", "1 does not come after 3: write indexes in order"),
        ("0-3,3", "3 does not come after 3"),
        ("0-999999", "are 1,000,000 indexes, 10,000 are allowed"),
        ("1," * INDEXES_LENGTH_MAX, "characters, 110000 are allowed"),
    ],
)
def test_a_text_that_is_no_set_of_indexes_gets_one_line(text: str, error: str) -> None:
    with pytest.raises(BadIndexes, match=r"^[^\n]+$") as raised:
        parse_indexes(text)
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("0-99", ("0-99", None)), ("0-99%10", ("0-99", 10)), ("1,3%1", ("1,3", 1))],
)
def test_the_most_elements_at_once_stand_behind_a_percent_sign(
    text: str, parts: tuple[str, int | None]
) -> None:
    assert split_parallelism(text) == parts


@pytest.mark.parametrize("most", ["", "0", "-1", "x", "1%2"])
def test_a_wrong_number_of_elements_at_once_is_named(most: str) -> None:
    with pytest.raises(BadIndexes, match=f'"%{most}" is not a number of elements at once'):
        split_parallelism(f"0-9%{most}")


@pytest.mark.parametrize("text", ["", "4", "0-3", "1,3,7", "0-1,3-5,9"])
def test_indexes_are_written_as_they_are_read(text: str) -> None:
    assert written_indexes(parse_indexes(text) if text else ()) == text


def test_a_taken_name_of_an_element_ends_in_a_hash_of_its_array() -> None:
    assert element_name("sweep", "u", 3) == "sweep-3"
    names = {element_name("sweep", uid, 3, taken=True) for uid in ("u", "v", "v")}
    assert len(names) == 2
    assert all(name.startswith("sweep-3-") and len(name) == 13 for name in names)
