"""What used quota costs, by a list of prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from admittance.api.fields.units import BadQuantity, parse
from admittance.api.fields.usage_units import GPU, is_gpu

HOUR: Final = 3_600
PRICE_MAX: Final = 10**12
BYTES: Final = ("memory", "ephemeral-storage")
"""Resources of which a price says for how much it is, since the price of a byte is no price."""


class Price(NamedTuple):
    """The price of an hour of ``amount`` of a resource. ``flavor`` "": of each flavor without a
    price of its own."""

    resource: str
    flavor: str
    per_hour: Decimal
    amount: Decimal


class Prices(NamedTuple):
    """``currency``: its name, "": not said. ``by_place``: the prices by resource and flavor."""

    currency: str
    by_place: Mapping[tuple[str, str], Price]

    def of(self, resource: str, flavor: str) -> Price | None:
        """The price of a resource of a flavor: one for the flavor wins over one for all, and one of
        the resource over one of all GPUs."""
        names = (resource, GPU) if is_gpu(resource) else (resource,)
        for where in (flavor, ""):
            for name in names:
                if (price := self.by_place.get((name, where))) is not None:
                    return price
        return None

    def prices(self, resource: str) -> bool:
        """Whether the resource has a price, at least of one flavor."""
        names = (resource, GPU) if is_gpu(resource) else (resource,)
        return any(name in names for name, _ in self.by_place)

    def cost(self, flavor: str, seconds: Mapping[str, str]) -> Decimal:
        """The cost of what was used of one flavor."""
        total = Decimal(0)
        for resource, text in seconds.items():
            if (price := self.of(resource, flavor)) is not None:
                total += Decimal(text) * price.per_hour / (price.amount * HOUR)
        return total


def prices_of(value: Any) -> Prices:
    """The prices in a YAML file, as plain values. Raises ValueError with one sentence."""
    if not isinstance(value, dict) or set(value) - {"currency", "prices"}:
        raise ValueError("a price list has the fields currency and prices")
    rows, currency = value.get("prices"), value.get("currency", "")
    if not isinstance(rows, list) or not rows:
        raise ValueError("prices is not a list with at least one price")
    if not isinstance(currency, str):
        raise ValueError("currency is not a text")
    by_place: dict[tuple[str, str], Price] = {}
    for number, price in enumerate(_prices(rows), 1):
        place = (price.resource, price.flavor)
        if place in by_place:
            raise ValueError(f"price {number}: {' of '.join(filter(None, place))} has a price")
        by_place[place] = price
    return Prices(currency, by_place)


FIELDS: Final = ("resource", "flavor", "perHour", "per")


def _prices(rows: Iterable[Any]) -> Iterable[Price]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or set(row) - set(FIELDS):
            raise ValueError(f"price {number} has other fields than {', '.join(FIELDS)}")
        resource, flavor = row.get("resource"), row.get("flavor", "")
        if not isinstance(resource, str) or not resource or not isinstance(flavor, str):
            raise ValueError(f"price {number} has no resource, or a flavor that is no text")
        if "per" not in row and resource in BYTES:
            raise ValueError(f"price {number}: the price of {resource} needs per, such as 1Gi")
        yield Price(resource, flavor, _per_hour(number, row), _amount(number, row))


def _per_hour(number: int, row: Mapping[str, Any]) -> Decimal:
    given = row.get("perHour")
    try:
        price = Decimal("nan" if isinstance(given, bool) else str(given))
    except InvalidOperation:
        price = Decimal("nan")
    if not price.is_finite() or not 0 <= price <= PRICE_MAX:
        raise ValueError(f"price {number}: perHour {given} is not a number from 0 to {PRICE_MAX:,}")
    return price


def _amount(number: int, row: Mapping[str, Any]) -> Decimal:
    given = row.get("per", 1)
    try:
        amount = parse(given)
    except (BadQuantity, TypeError):
        amount = parse(0)
    if amount <= 0:
        raise ValueError(f"price {number}: per {given} is not a quantity above 0, such as 1Gi")
    return Decimal(amount.numerator) / Decimal(amount.denominator)
