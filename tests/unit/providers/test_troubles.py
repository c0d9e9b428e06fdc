"""What stands in the way of everybody makes classes inactive, and only as long as it does."""

from __future__ import annotations

from admittance.providers import Provider
from admittance.providers.health import InactiveReasons


def test_classes_are_inactive_as_long_as_anything_does_not_work() -> None:
    one, other = Provider("one"), Provider("other")
    troubles = InactiveReasons((one, other))

    troubles.begin("look", "no network")
    troubles.begin("make", "no rights")
    assert (one.active, one.message) == (False, "no network; no rights")
    assert other.message == one.message

    troubles.end("look")
    assert (one.active, one.message) == (False, "no rights")
    assert troubles
    assert "make" in troubles

    troubles.end("make")
    assert (one.active, one.message) == (True, "")
    assert not troubles


def test_a_trouble_is_told_with_its_last_reason_and_once() -> None:
    provider = Provider("one")
    troubles = InactiveReasons((provider,))
    told: list[str] = []
    provider.inactive = told.append  # type: ignore[method-assign]

    for reason in ("a", "a", "b"):
        troubles.begin("look", reason)
    troubles.end("other")

    assert told == ["a", "b"]
