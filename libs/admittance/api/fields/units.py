"""Quantities as Kubernetes writes them, and the integers that quota is counted in.

A quantity is a decimal number with a suffix: ``500m``, ``1.5Gi``, ``2e3``, or a bare number. A
value finer than a billionth is rounded away from zero, and a value larger than 2**63-1 becomes
2**63-1. Accounting counts cpu in thousandths and everything else in whole units, rounded up: a
request for half a byte counts as one. Source: Kubernetes, apimachinery's ``resource.Quantity``.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from admittance.text_cache import pair_cache, text_cache

INT64_MAX: Final = 2**63 - 1
"""The largest amount in accounting units. A quota of this size means no limit."""

_FORM = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?",
    re.ASCII,
)
_NANO: Final = 10**9
_SCALE: Final[dict[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_LENGTH_MAX: Final = 128
_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class BadQuantity(ValueError):
    """A text is not a quantity."""


def _away_from_zero(number: Fraction) -> int:
    if number >= 0:
        return -(-number.numerator // number.denominator)
    return number.numerator // number.denominator


def parse(quantity: str | int | float) -> Fraction:
    """The exact value of quantity, in whole units. Raises BadQuantity.

    A float (a YAML number without quotes) is parsed from its shortest decimal spelling, which is
    how it was written.
    """
    return _parse(quantity)


# The cache is ``typed``: True equals 1, but must not get the cached result for 1, since True is not
# a quantity.
@lru_cache(maxsize=16_384, typed=True)
def _parse(quantity: str | int | float) -> Fraction:
    if isinstance(quantity, bool):
        raise BadQuantity(f"{quantity!r} is not a quantity")
    text = quantity if isinstance(quantity, str) else repr(quantity)
    match = _FORM.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None:
        shown = text if len(text) <= _LENGTH_MAX else f"{text[:20]}…"
        raise BadQuantity(
            f"{shown!r} is not a quantity: a number with at most one of the suffixes "
            "n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent like e3"
        )
    sign, digits, suffix, exponent = match.groups()
    number = Fraction(digits if digits[0] != "." else f"0{digits}")
    if suffix is not None:
        number *= _SCALE[suffix]
    elif exponent is not None and number:
        power = int(exponent)
        if power > 2 * _LENGTH_MAX:
            number = Fraction(INT64_MAX)
        elif power < -2 * _LENGTH_MAX:
            number = Fraction(1, _NANO)
        else:
            number *= Fraction(10) ** power
    if number > INT64_MAX:
        number = Fraction(INT64_MAX)
    elif _NANO % number.denominator:
        number = Fraction(_away_from_zero(number * _NANO), _NANO)
    return -number if sign == "-" else number


def quantity_error(quantity: str | int | float) -> str:
    """The error in a quantity that may not be negative, as a sentence; "": it is valid."""
    try:
        negative = _parse(quantity) < 0
    except BadQuantity as error:
        return str(error)
    return f"must not be negative, not {quantity}" if negative else ""


@pair_cache(16_384)
def units(resource: str, quantity: str | int | float) -> int | Fraction:
    """The quantity in exact accounting units, without rounding: callers add such amounts and round
    the sum (`whole`).
    """
    number = _parse(quantity)
    if resource == "cpu":
        number *= 1000
    return number.numerator if number.denominator == 1 else number


def whole(exact: int | Fraction) -> int:
    """Exact accounting units as an int64: rounded up (away from zero) and saturating."""
    number = exact if isinstance(exact, int) else _away_from_zero(exact)
    if number > INT64_MAX:
        return INT64_MAX
    return max(number, -INT64_MAX)


@pair_cache(16_384)
def amount(resource: str, quantity: str | int | float) -> int:
    """The quantity in accounting units: cpu in thousandths, everything else whole; rounded up.

    Saturates at `INT64_MAX`. Raises BadQuantity.
    """
    return whole(units(resource, quantity))


def _is_binary(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def _largest(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    step = 0
    while number and step < len(suffixes) - 1 and number % base == 0:
        number //= base
        step += 1
    return f"{number}{suffixes[step]}"


class Quantities(dict[int, str]):
    """The amounts of one resource as `render` writes them, by amount. A lookup of a known amount
    calls no code in Python."""

    def __init__(self, resource: str) -> None:
        super().__init__()
        self._resource = resource

    def __missing__(self, amount: int) -> str:
        if len(self) >= _QUANTITIES_MAX:
            self.clear()
        text = self[amount] = _rendered(self._resource, amount)
        return text


_QUANTITIES_MAX: Final = 4_096
quantities_of: Final = text_cache(256)(Quantities)
"""Returns the `Quantities` of a resource. They are kept for many resources."""


def render(resource: str, amount: int) -> str:
    """An amount in accounting units written as a quantity, with the largest suffix that needs no
    fraction.

    ``("cpu", 1500)`` is ``1500m``, ``("cpu", 2000)`` is ``2``, ``("memory", 2**30)`` is ``1Gi``.
    """
    return quantities_of(resource)[amount]


def _rendered(resource: str, amount: int) -> str:
    if resource == "cpu":
        if amount % 1000:
            return f"{amount}m"
        amount //= 1000
    if _is_binary(resource) and not -1024 < amount < 1024:
        return _largest(amount, 1024, _BINARY)
    return _largest(amount, 1000, _DECIMAL)


_UNITS: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|µs|ms|s|m|h)", re.ASCII)


class BadDuration(ValueError):
    """A text is not a duration."""


def seconds(text: str) -> Fraction:
    """The exact seconds of a duration. Raises BadDuration."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return Fraction(0)
    total, at = Fraction(0), 0
    while at < len(rest) <= 100:
        part = _PART.match(rest, at)
        if part is None:
            break
        number = part.group(1)
        total += Fraction(f"0{number}" if number[0] == "." else number) * _UNITS[part.group(2)]
        at = part.end()
    if not rest or at != len(rest):
        raise BadDuration(f"{text[:40]!r} is not a duration like 60s or 1h30m")
    return -total if negative else total


def duration_error(text: str, least: int = 0) -> str:
    """The error in a duration that must be at least ``least`` seconds, as a sentence; "": the
    duration is valid.
    """
    try:
        length = seconds(text)
    except BadDuration as error:
        return str(error)
    return f"{text} is less than {least} s" if length < least else ""


def delay_error(text: str) -> str:
    """The error in a duration that must be above zero, as a sentence; "": the duration is valid."""
    try:
        return "" if seconds(text) > 0 else f"must be more than 0, not {text}"
    except BadDuration as error:
        return str(error)
