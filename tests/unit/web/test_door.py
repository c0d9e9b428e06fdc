"""Before the pages: one-time codes, the limit of attempts, the origin of requests, where to go."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from admittance.cli.up.page import starts_of
from admittance.runtime import clock
from admittance.runtime.errors import AccessDenied, SetupError
from admittance.runtime.nats.login_tokens import credentials_of_token, token_of_credentials
from admittance.runtime.nats_server.jwt_issuer import new_key
from admittance.runtime.process.web_page import KEY_HEADER, PageStart, address_of, checked_url
from admittance.web import sessions
from admittance.web.codes import CODE_SECONDS, CODES_MAX, OneTimeCodes
from admittance.web.limits import ALL_FAILURES_MAX, FAILURES_MAX, WINDOW_SECONDS, SignInLimit
from admittance.web.origins import Origins
from admittance.web.sessions import Sessions, Target
from admittance.web.sign_in import SignIn, path_within

HOST = "127.0.0.1:4280"
OWN = {"host": HOST, "origin": f"http://{HOST}"}


def test_a_code_signs_in_once() -> None:
    codes = OneTimeCodes()
    codes.add("c1", "creds", now=0)
    assert codes.take("c2", 1) is None
    assert (codes.take("c1", 1), codes.take("c1", 1)) == ("creds", None)


def test_a_code_ends_after_ten_minutes() -> None:
    codes = OneTimeCodes()
    codes.add("c1", "creds", now=0)
    assert codes.take("c1", CODE_SECONDS) is None


def test_further_codes_need_the_key_and_have_the_last_credentials() -> None:
    codes = OneTimeCodes("key")
    codes.add("c1", "old", now=0)
    assert codes.further("other", "", 1) is None
    assert OneTimeCodes("").further("", "", 1) is None
    again, fresh = codes.further("key", "", 1), codes.further("key", "new", 1)
    assert again is not None and fresh is not None
    assert (codes.take(again, 2), codes.take(fresh, 2)) == ("old", "new")


def test_a_page_that_starts_again_after_a_crash_gets_no_code() -> None:
    first = PageStart(socket=3, url="http://p", nats="n", code="c1", key="key", credentials="creds")
    starts = starts_of(first)
    assert [next(starts).code for _ in range(3)] == ["c1", "", ""]


def test_further_codes_sign_in_although_there_was_no_first_code() -> None:
    codes = OneTimeCodes("key", "creds")
    fresh = codes.further("key", "", 1)
    assert fresh is not None
    assert codes.take(fresh, 2) == "creds"


async def test_a_code_stays_valid_if_too_many_people_are_signed_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 0)
    codes = OneTimeCodes()
    codes.add("c1", "creds", clock.monotonic())
    door = SignIn(Sessions(Target("nats://nowhere")), codes, Origins(f"http://{HOST}"))

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"code=c1"}

    headers = [(b"host", HOST.encode())]
    scope = {"type": "http", "method": "POST", "headers": headers, "client": ("127.0.0.1", 1)}
    answer = await door.sign_in(Request(scope, receive))

    assert b"Too many people are signed in" in answer.body
    assert codes.take("c1", clock.monotonic()) == "creds"


def test_many_codes_replace_the_oldest() -> None:
    codes = OneTimeCodes()
    for number in range(CODES_MAX + 1):
        codes.add(f"c{number}", "creds", now=0)
    assert codes.take("c0", 1) is None
    assert codes.take("c1", 1) == "creds"


def test_an_address_waits_after_many_failures() -> None:
    limit = SignInLimit()
    for _ in range(FAILURES_MAX):
        assert limit.wait_seconds("a", 0) == 0
        limit.failed("a", 0)
    assert limit.wait_seconds("a", 1) == WINDOW_SECONDS - 1
    assert limit.wait_seconds("b", 1) == 0
    assert limit.wait_seconds("a", WINDOW_SECONDS) == 0


def test_many_addresses_wait_together() -> None:
    limit = SignInLimit()
    for number in range(ALL_FAILURES_MAX):
        limit.failed(f"a{number}", 0)
    assert limit.wait_seconds("new", 10) == WINDOW_SECONDS - 10


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        pytest.param("GET", "/", {"host": HOST}, None, id="a page under its own name is shown"),
        pytest.param("GET", "/", {"host": "localhost:1"}, None, id="loopback has any port"),
        pytest.param("GET", "/", {"host": "[::1]:4280"}, None, id="loopback has version 6"),
        pytest.param("GET", "/", {"host": "evil.example"}, 421, id="a rebound name is refused"),
        pytest.param("GET", "/", {}, 421, id="a missing name is refused"),
        pytest.param("GET", "/", {"host": "a@127.0.0.1"}, 421, id="a name with a user is refused"),
        pytest.param("PUT", "/", OWN, 405, id="another method is refused"),
        pytest.param("POST", "/a", OWN, None, id="a form of the page is taken"),
        pytest.param("POST", "/a", {"host": HOST}, 403, id="a form without an origin is refused"),
        pytest.param("POST", "/signin", {"host": HOST}, None, id="a program signs in"),
        pytest.param(
            "POST",
            "/signin",
            {"host": HOST, "sec-fetch-site": "cross-site"},
            403,
            id="a foreign site signs in nowhere",
        ),
        pytest.param(
            "POST",
            "/a",
            OWN | {"origin": "http://evil.example"},
            403,
            id="a foreign form is refused",
        ),
        pytest.param("POST", "/a", OWN | {"origin": "null"}, 403, id="a hidden origin is refused"),
        pytest.param(
            "POST", "/a", OWN | {"origin": f"https://{HOST}"}, 403, id="another scheme is refused"
        ),
        pytest.param(
            "POST", "/code", {"host": HOST, KEY_HEADER: "k"}, None, id="a command has no origin"
        ),
        pytest.param(
            "GET",
            "/live",
            {"host": HOST, "sec-fetch-site": "cross-site"},
            403,
            id="stream elsewhere",
        ),
        pytest.param(
            "GET", "/live", {"host": HOST, "sec-fetch-site": "same-origin"}, None, id="own stream"
        ),
        pytest.param(
            "GET", "/", OWN | {"origin": "http://x"}, 403, id="a foreign script is refused"
        ),
    ],
)
def test_requests_come_from_the_page_itself(
    method: str, path: str, headers: dict[str, str], status: int | None
) -> None:
    refusal = Origins(f"http://{HOST}").refusal(method, path, headers)
    assert (refusal.status if refusal else None) == status


def test_a_page_behind_tls_has_the_name_of_its_url() -> None:
    origins = Origins("https://admit.example.org")
    own = {"host": "admit.example.org", "origin": "https://admit.example.org"}
    assert origins.refusal("POST", "/a", own) is None
    assert origins.refusal("POST", "/a", own | {"origin": "http://admit.example.org"}) is not None


@pytest.mark.parametrize(
    ("url", "host", "takes"),
    [
        (f"http://{HOST}", HOST, True),
        ("http://10.0.0.5:4280", "10.0.0.5:4280", False),
        ("https://admit.example.org", "admit.example.org", True),
    ],
)
def test_a_token_is_taken_on_loopback_and_behind_tls(url: str, host: str, takes: bool) -> None:
    assert Origins(url).takes_secrets(host) is takes


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/workloads/a/b?x=1", "/workloads/a/b?x=1"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/a\nb", "/"),
        ("", "/"),
    ],
)
def test_a_sign_in_leads_to_a_page_of_this_page(text: str, path: str) -> None:
    assert path_within(text) == path


def test_a_token_stands_for_a_credentials_file() -> None:
    text = f"# user: ada\n{new_key().seed}\n"
    assert credentials_of_token(token_of_credentials(text)) == text
    assert credentials_of_token(f"  {text}") == text.strip()


@pytest.mark.parametrize("token", ["", "admit_é", "admit_abc", "hello", "x" * 40_000])
def test_a_text_without_credentials_is_no_token(token: str) -> None:
    with pytest.raises(AccessDenied):
        credentials_of_token(token)


@pytest.mark.parametrize("text", ["", "4280", "host:", ":4280", "host:port", "host:70000"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match="must be HOST:PORT"):
        address_of(text)


@pytest.mark.parametrize(
    "text", ["", "host", "ftp://host", "https://", "https://h/path", "https://u@h", "http://h:x"]
)
def test_a_wrong_url_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match="the URL of the web page"):
        checked_url(text)


def test_an_address_and_a_url_are_taken() -> None:
    assert address_of("[::1]:80") == ("::1", 80)
    assert checked_url("https://admit.example.org/") == "https://admit.example.org"
