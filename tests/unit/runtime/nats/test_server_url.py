"""Addresses of servers, shown without their logins."""

from __future__ import annotations

import pytest

from admittance.runtime.nats.server_url import BadUrl, Login, ServerUrl, read_urls, shown


@pytest.mark.parametrize(
    ("text", "address", "login"),
    [
        ("nats://h:1", "nats://h:1", None),
        ("h", "nats://h:4222", None),
        ("tls://h", "tls://h:4222", None),
        ("nats://[::1]:5", "nats://[::1]:5", None),
        ("nats://admit:pw@h:1", "nats://h:1", Login("admit", "pw")),
        ("nats://a%40b:p%40s%3As%2Fw%25@h:1", "nats://h:1", Login("a@b", "p@s:s/w%")),
        ("nats://t%2Fken@h:1", "nats://h:1", Login("t/ken", None)),
        ("nats://admit:@h:1", "nats://h:1", Login("admit", "")),
        ("nats://admit:p@w@h:1", "nats://h:1", Login("admit", "p@w")),
    ],
)
def test_a_url_is_read_with_its_login(text: str, address: str, login: Login | None) -> None:
    assert read_urls(text) == [ServerUrl(address, login)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nats://h:1", "nats://h:1"),
        ("nats://admit:secret@h:1", "nats://admit:***@h:1"),
        ("nats://secret@h:1", "nats://***@h:1"),
        ("a:secret@h:1,nats://b:secret@g:2", "nats://a:***@h:1,nats://b:***@g:2"),
        ("nats://a:sec/ret@h:1", "***"),
        ("nats://a:sec,ret@h:1", "***"),
        ("nats://a:sec@h:port", "***"),
    ],
)
def test_a_url_is_shown_without_its_secret(text: str, told: str) -> None:
    assert shown(text) == told


@pytest.mark.parametrize(
    "text", ["nats://", "http://h", "nats://h:0", "nats://h:x", "", "nats://a:sec/ret@h:1"]
)
def test_a_wrong_address_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(BadUrl, match="is not a server address") as caught:
        read_urls(text)
    assert "sec" not in str(caught.value)
