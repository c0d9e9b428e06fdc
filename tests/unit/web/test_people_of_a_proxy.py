"""People signed in by a proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server.jwt_issuer import new_key
from admittance.runtime.process.web_page import Trust, checked_trust
from admittance.web.people import People
from admittance.web.sessions import NotSignedIn


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the credentials of ada."""
    made = tmp_path / "people"
    made.mkdir(mode=0o700)
    write(made / "ada.creds", f"# user: ada\n{new_key().seed}\n")
    write(tmp_path / "secret.creds", f"# user: eve\n{new_key().seed}\n")
    return made


def write(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def test_a_header_and_a_folder_are_taken(folder: Path) -> None:
    assert checked_trust("X-User", folder, ()) == Trust("X-User", folder)
    assert checked_trust("", None, ()) is None


@pytest.mark.parametrize(
    ("header", "people", "proxies", "why"),
    [
        pytest.param("", "people", (), "go with --trust-header NAME", id="a folder alone"),
        pytest.param("", "", ("::1",), "go with --trust-header NAME", id="a proxy alone"),
        pytest.param("X-User", "", (), "goes with --people DIR", id="a header alone"),
        pytest.param("X User", "people", (), "is not the name of a header", id="a space"),
        pytest.param("Cookie", "people", (), "is not the name of a header", id="the cookie"),
        pytest.param("X-User", "nope", (), "No such file or directory", id="no folder"),
        pytest.param("X-User", "secret.creds", (), "Not a directory", id="a file"),
        pytest.param("X-User", "people", ("proxy",), "is not an IP address", id="a name"),
    ],
)
def test_a_wrong_option_gets_one_line(
    folder: Path, header: str, people: str, proxies: tuple[str, ...], why: str
) -> None:
    named = folder.parent / people if people else None
    with pytest.raises(SetupError, match=why) as error:
        checked_trust(header, named, proxies)
    assert "\n" not in str(error.value)


def test_a_folder_or_file_of_others_is_refused(folder: Path) -> None:
    write(folder / "bob.creds", "x", 0o644)
    with pytest.raises(SetupError, match=r"other users may use .*bob\.creds: run `chmod 600"):
        checked_trust("X-User", folder, ())
    folder.chmod(0o755)
    with pytest.raises(SetupError, match=r"people: run `chmod 700"):
        checked_trust("X-User", folder, ())


@pytest.mark.parametrize(
    ("peer", "proxies", "is_taken"),
    [
        ("127.0.0.1", (), True),
        ("::1", (), True),
        ("10.0.0.7", (), False),
        ("10.0.0.7", ("10.0.0.7",), True),
        ("127.0.0.1", ("10.0.0.7",), False),
        ("", (), False),
    ],
)
def test_a_name_is_taken_from_the_proxy_only(
    folder: Path, peer: str, proxies: tuple[str, ...], is_taken: bool
) -> None:
    people = People(Trust("X-User", folder, proxies))
    assert people.name_in(peer, {}) is None
    if is_taken:
        assert people.name_in(peer, {"x-user": "ada"}) == "ada"
    else:
        with pytest.raises(NotSignedIn, match="from the proxy only"):
            people.name_in(peer, {"x-user": "ada"})


def test_a_name_has_the_credentials_of_its_file(folder: Path) -> None:
    assert "user: ada" in People(Trust("X-User", folder)).credentials_of("ada")


@pytest.mark.parametrize(
    "name", ["", "eve", "../secret", "a/../../secret", ".", "..", "/etc/passwd", "a\0b", "a" * 300]
)
def test_any_other_name_signs_in_no_user(folder: Path, name: str) -> None:
    with pytest.raises(NotSignedIn, match=r"^This name signs in no user\.$"):
        People(Trust("X-User", folder)).credentials_of(name)


def test_a_file_that_others_may_read_signs_in_no_user(folder: Path) -> None:
    (folder / "ada.creds").chmod(0o644)
    with pytest.raises(NotSignedIn, match=r"^This name signs in no user\.$"):
        People(Trust("X-User", folder)).credentials_of("ada")
