"""Expired users are found, and the next one is known in advance."""

from datetime import UTC, datetime, timedelta

from admittance.access.users import User, expired_users, next_expiry

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def user(name: str, seconds: float | None) -> User:
    expires = None if seconds is None else NOW + timedelta(seconds=seconds)
    return User(name=name, role="viewer", key="", expires=expires)


def test_user_expires_at_its_time_and_not_before() -> None:
    users = [user("past", -1), user("now", 0), user("later", 1), user("never", None)]
    assert [user.name for user in expired_users(users, NOW)] == ["past", "now"]


def test_next_expiry_is_the_earliest_in_the_future() -> None:
    users = [user("past", -1), user("later", 20), user("soon", 5), user("never", None)]
    assert next_expiry(users, NOW) == NOW + timedelta(seconds=5)
    assert next_expiry([user("past", -1), user("never", None)], NOW) is None
