"""Quantities are read as Kubernetes reads them."""

from __future__ import annotations

import contextlib
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.api.fields.units import INT64_MAX, BadQuantity, amount, parse, render, units, whole


@pytest.mark.parametrize(
    ("resource", "written", "want"),
    [
        pytest.param("cpu", "500m", 500, id="thousandths of a cpu"),
        pytest.param("cpu", "1", 1000, id="a whole cpu is a thousand"),
        pytest.param("cpu", 2, 2000, id="a bare integer"),
        pytest.param("cpu", 0.1, 100, id="a bare decimal is read as written"),
        pytest.param("cpu", "1.0001", 1001, id="cpu rounds up to the next thousandth"),
        pytest.param("cpu", "100n", 1, id="the smallest cpu is a thousandth"),
        pytest.param("cpu", "3u", 1, id="millionths round up too"),
        pytest.param("memory", "1Gi", 2**30, id="binary suffix"),
        pytest.param("memory", "1.5Gi", 3 * 2**29, id="a fraction of a binary suffix"),
        pytest.param("memory", "1G", 10**9, id="decimal suffix"),
        pytest.param("memory", "1e3", 1000, id="exponent"),
        pytest.param("memory", "1E3", 1000, id="capital exponent"),
        pytest.param("memory", "12e-1", 2, id="a negative exponent rounds up"),
        pytest.param("memory", "1E", 10**18, id="a lone E is a suffix"),
        pytest.param("memory", "1Ei", 2**60, id="Ei is a suffix"),
        pytest.param("memory", "100m", 1, id="a tenth of a byte is a byte"),
        pytest.param("memory", "+5", 5, id="a plus sign"),
        pytest.param("memory", "-5", -5, id="negative"),
        pytest.param("memory", "5.", 5, id="nothing behind the point"),
        pytest.param("memory", ".5k", 500, id="nothing before the point"),
        pytest.param("memory", "007", 7, id="leading zeros"),
        pytest.param("memory", "9Ei", INT64_MAX, id="too large saturates"),
        pytest.param("cpu", "9E", INT64_MAX, id="cpu saturates in thousandths"),
        pytest.param("memory", "1e999999999", INT64_MAX, id="an absurd exponent saturates"),
        pytest.param("memory", "1e-999999999", 1, id="an absurdly small number is not nothing"),
        pytest.param("memory", "0e999999999", 0, id="zero stays zero"),
        pytest.param("memory", "0.1n", 1, id="finer than a billionth rounds away from zero"),
        pytest.param("nvidia.com/gpu", "8", 8, id="a device"),
    ],
)
def test_a_quantity_becomes_accounting_units(
    resource: str, written: str | int | float, want: int
) -> None:
    assert amount(resource, written) == want


@pytest.mark.parametrize(
    "written",
    [
        "", " ", "1.5.2Gi", " 1", "1 ", "1 Gi", "0x1", "Gi", ".", "-", "+-1", "1ki", "1K", "1g",
        "1e", "1e1.5", "1Gi2", "1mm", "1,5", "\u0661", "1_000", "inf", "nan", "1\n",
        "one", "9" * 200,
        float("nan"), float("inf"), True,
    ],
)  # fmt: skip
def test_an_invalid_quantity_is_refused(written: str | float) -> None:
    with pytest.raises(BadQuantity, match="is not a quantity"):
        parse(written)


def test_true_is_refused_although_1_is_cached() -> None:
    assert parse(1) == 1
    with pytest.raises(BadQuantity):
        parse(True)


@pytest.mark.parametrize(
    ("resource", "counted", "want"),
    [
        ("cpu", 1500, "1500m"), ("cpu", 2000, "2"), ("cpu", 0, "0"), ("cpu", 2_000_000, "2k"),
        ("memory", 2**30, "1Gi"), ("memory", 3 * 2**29, "1536Mi"), ("memory", 1000, "1k"),
        ("memory", 1500, "1500"), ("memory", 1024, "1Ki"), ("memory", 0, "0"),
        ("memory", 512, "512"), ("nvidia.com/gpu", 8, "8"), ("pods", 1000, "1k"),
        ("hugepages-2Mi", 2**21, "2Mi"),
    ],
)  # fmt: skip
def test_accounting_units_become_a_canonical_quantity(
    resource: str, counted: int, want: str
) -> None:
    assert render(resource, counted) == want


@given(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]),
    st.integers(0, INT64_MAX),
)
def test_a_rendered_quantity_reads_back_equal(resource: str, counted: int) -> None:
    assert amount(resource, render(resource, counted)) == counted


_DECIMALS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_CONTEXT = Context(prec=400)


def _oracle(number: str, exponent: int, places: int) -> int:
    """By decimal arithmetic: the number in units of 10**-places, rounded up."""
    value = _CONTEXT.scaleb(Decimal(number), exponent)
    value = value.quantize(Decimal("1e-9"), ROUND_UP, _CONTEXT)
    value = min(value, Decimal(INT64_MAX))
    scaled = _CONTEXT.scaleb(value, places)
    return min(int(scaled.to_integral_value(ROUND_UP)), INT64_MAX)


@given(
    st.from_regex(r"\A[0-9]{1,25}(\.[0-9]{0,25})?\Z"),
    st.sampled_from(sorted(_DECIMALS)),
)
def test_decimal_suffixes_agree_with_decimal_arithmetic(number: str, suffix: str) -> None:
    exponent = _DECIMALS[suffix]
    assert amount("cpu", number + suffix) == _oracle(number, exponent, 3)
    assert amount("memory", number + suffix) == _oracle(number, exponent, 0)


@given(st.decimals(0, 10**15, allow_nan=False, places=6), st.integers(-20, 20))
def test_exponents_agree_with_decimal_arithmetic(number: Decimal, exponent: int) -> None:
    text = f"{number:f}"
    assert amount("memory", f"{text}e{exponent}") == _oracle(text, exponent, 0)


@given(st.lists(st.sampled_from(["1", "100n", "0.3", "1500m", "7u", "0"]), max_size=6))
def test_a_sum_is_rounded_once(written: list[str]) -> None:
    total = whole(sum((units("cpu", quantity) for quantity in written), 0))
    exact = sum((parse(quantity) for quantity in written), Fraction(0)) * 1000
    assert exact <= total < exact + 1


@given(st.text(max_size=20) | st.floats() | st.integers())
def test_other_texts_raise_only_bad_quantity(written: str | float) -> None:
    with contextlib.suppress(BadQuantity):
        assert isinstance(amount("cpu", written), int)
