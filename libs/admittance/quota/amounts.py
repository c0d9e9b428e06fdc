"""Amounts of quota: whole accounting units (cpu in thousandths), saturating at 64 bits.

An amount at `UNLIMITED` means "without limit", and stays so in sums.
Source: `docs/spec/scheduling.md#2`.
"""

from __future__ import annotations

from typing import Final

UNLIMITED: Final = 2**63 - 1
"""The largest 64-bit number: a quota of as much or more has no limit."""

LOWEST: Final = -(2**63)


def clamp(amount: int) -> int:
    """The amount within 64 bits."""
    if amount > UNLIMITED:
        return UNLIMITED
    if amount < LOWEST:
        return LOWEST
    return amount


def plus(a: int, b: int) -> int:
    """a + b. Unlimited and anything is unlimited."""
    if a >= UNLIMITED or b >= UNLIMITED:
        return UNLIMITED
    return clamp(a + b)


def minus(a: int, b: int) -> int:
    """a - b. Unlimited less unlimited is nothing; anything less unlimited is the lowest number."""
    if a >= UNLIMITED:
        return 0 if b >= UNLIMITED else UNLIMITED
    if b >= UNLIMITED:
        return LOWEST
    return clamp(a - b)


def times(amount: int, count: int) -> int:
    """The amount of count pods, saturating."""
    return clamp(amount * count)
