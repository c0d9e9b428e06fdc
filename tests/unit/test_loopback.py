"""Tests listen at loopback only: what holds them to it, in tests/conftest.py."""

from __future__ import annotations

import socket

import pytest


@pytest.mark.parametrize("host", ["0.0.0.0", "", "192.0.2.1"])
def test_a_test_cannot_listen_beyond_loopback(host: str) -> None:
    with socket.socket() as listener, pytest.raises(AssertionError, match="only loopback"):
        listener.bind((host, 0))


def test_a_test_listens_at_loopback() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        assert listener.getsockname()[0] == "127.0.0.1"
