"""Login and TLS from options and variables: which of them counts, and what contradicts."""

from __future__ import annotations

import pytest

from admittance.cli.commands.program import invoke
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.connection_options import (
    VARIABLES,
    BadOptions,
    ConnectionOptions,
    connection_options,
)
from admittance.runtime.process.settings import Settings

ENV = {
    "ADMIT_NATS_USER": "ada",
    "ADMIT_NATS_PASSWORD": "secret",
    "ADMIT_NATS_TLS_CA": "/ca",
    "ADMIT_NATS_TLS_FIRST": "1",
}


def test_variables_apply_where_no_option_is_given() -> None:
    assert connection_options(ENV) == ConnectionOptions(
        user="ada", password="secret", tls_ca="/ca", tls_first=True
    )
    assert connection_options({}) == ConnectionOptions()
    assert connection_options(dict.fromkeys(VARIABLES.values(), "")) == ConnectionOptions()


def test_a_login_by_option_replaces_the_login_of_the_variables() -> None:
    options = connection_options(ENV, given={"creds": "/mine", "tls_ca": "/other"})
    assert options == ConnectionOptions(creds="/mine", tls_ca="/other", tls_first=True)
    options = connection_options(ENV, given={"user": "eve"})
    assert (options.user, options.password) == ("eve", "secret")


def test_a_login_in_a_given_url_replaces_the_login_of_the_variables() -> None:
    options = connection_options(ENV, url="nats://eve:x@host")
    assert options == ConnectionOptions(tls_ca="/ca", tls_first=True)
    assert connection_options(ENV, url="nats://host").user == "ada"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"creds": "/a", "token": "t"}, r"--creds \(ADMIT_NATS_CREDS\) and ADMIT_NATS_TOKEN are"),
        ({"user": "a", "token_file": "/t"}, "--nats-user .* and --token-file .* are both given"),
        ({"user": "a", "password": "p", "password_file": "/p"}, "are both given: give one"),
        ({"user": "a"}, "--nats-user .* needs --password-file .*, or ADMIT_NATS_PASSWORD"),
        ({"password_file": "/p"}, "--password-file .* needs --nats-user"),
        ({"tls_key": "/k"}, "--tls-key .* needs --tls-cert"),
        ({"tls_first": "maybe"}, "ADMIT_NATS_TLS_FIRST='maybe' is not 1 or 0"),
        ({"creds": ""}, "--creds is empty"),
    ],
)
def test_contradictory_options_are_named(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadOptions, match=complaint):
        connection_options({}, given=given)


def test_a_child_process_gets_exactly_these_options() -> None:
    options = ConnectionOptions(creds="/mine", tls_first=True)
    assert options.environment({**ENV, "HOME": "/h"}) == {
        "HOME": "/h",
        "ADMIT_NATS_CREDS": "/mine",
        "ADMIT_NATS_TLS_FIRST": "1",
    }


def test_settings_show_no_secret_and_report_contradictions() -> None:
    assert "secret" not in repr(Settings.from_env("s", env=ENV))
    with pytest.raises(SetupError, match="are both given"):
        Settings.from_env("s", env={**ENV, "ADMIT_NATS_TOKEN": "hidden"})


def test_contradictory_options_of_a_command_are_wrong_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert invoke(["get", "workloads", "--nats-user", "ada", "--creds", "/mine"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--creds (ADMIT_NATS_CREDS) and --nats-user (ADMIT_NATS_USER) are both given" in line
