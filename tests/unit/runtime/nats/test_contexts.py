"""Contexts: which server and credentials a process finds without options."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from admittance.cli.commands.program import invoke
from admittance.cli.support.options import UrlFrom, outer_call
from admittance.runtime.errors import SetupError
from admittance.runtime.nats import contexts
from admittance.runtime.nats.connection_options import (
    DEFAULT_URL,
    BadOptions,
    ConnectionOptions,
    connection_options,
    names_a_login,
    server_url,
)
from admittance.runtime.nats.contexts import BadContext, Context
from admittance.runtime.process.settings import Settings

HOME = Context(name="home", url="nats://127.0.0.1:4333", creds="/home.creds")
WORK = Context(
    name="work", url="tls://a:4222,tls://b:4222", creds="/work.creds", tls_ca="/ca", tls_first=True
)


def test_writing_a_context_follows_no_symbolic_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    folder = tmp_path / "admittance" / "contexts"
    folder.mkdir(parents=True)
    (folder / f".home.json.{os.getpid()}.new").symlink_to(kept)
    contexts.write({"XDG_CONFIG_HOME": str(tmp_path)}, HOME)
    assert kept.read_text() == "kept"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    for folder in (WORK, HOME):
        contexts.write(env, folder)
    return env


def test_without_options_the_current_context_names_server_and_credentials(
    env: dict[str, str],
) -> None:
    assert server_url(env) == HOME.url
    assert connection_options(env) == ConnectionOptions(creds="/home.creds")
    settings = Settings.from_env("check", env=env)
    assert (settings.url, settings.connection.creds) == (HOME.url, HOME.creds)
    call = outer_call(None, None, None, environ=env)
    assert (call.url, call.url_from, call.connection.creds) == (
        HOME.url,
        UrlFrom.CONTEXT,
        HOME.creds,
    )
    contexts.use(env, "work")
    assert server_url(env) == WORK.url
    assert connection_options(env) == ConnectionOptions(
        creds="/work.creds", tls_ca="/ca", tls_first=True
    )


@pytest.mark.parametrize("url", ["tls://b:4222", "tls://a:4222,tls://b:4222"])
def test_a_url_without_credentials_uses_those_of_its_context(env: dict[str, str], url: str) -> None:
    assert connection_options(env, url=url).creds == "/work.creds"
    assert connection_options({**env, "ADMIT_NATS_URL": url}).creds == "/work.creds"


@pytest.mark.parametrize("url", ["127.0.0.1:4333", "nats://localhost:4333", "nats://[::1]:4333"])
def test_names_of_the_loopback_are_one_server(env: dict[str, str], url: str) -> None:
    assert connection_options(env, url=url).creds == "/home.creds"


@pytest.mark.parametrize(
    ("url", "given", "more"),
    [
        pytest.param("nats://elsewhere:4333", {}, {}, id="another server"),
        pytest.param("nats://ada:x@127.0.0.1:4333", {}, {}, id="login in the URL"),
        pytest.param(HOME.url, {"creds": "/mine"}, {}, id="option"),
        pytest.param(HOME.url, {}, {"ADMIT_NATS_TOKEN": "t"}, id="variable"),
        pytest.param("no url at all", {}, {}, id="no address"),
    ],
)
def test_credentials_of_a_context_go_to_its_server_only(
    env: dict[str, str], url: str, given: dict[str, str], more: dict[str, str]
) -> None:
    assert connection_options({**env, **more}, url=url, given=given).creds == given.get("creds")


def test_without_contexts_the_server_is_the_default(tmp_path: Path) -> None:
    for env in ({}, {"HOME": str(tmp_path)}, {"XDG_CONFIG_HOME": "relative"}):
        assert server_url(env) == "nats://127.0.0.1:4222"
        assert connection_options(env) == ConnectionOptions()


def test_the_folder_of_contexts_follows_the_xdg_rules(tmp_path: Path) -> None:
    contexts.write({"HOME": str(tmp_path)}, HOME)
    assert (tmp_path / ".config" / "admittance" / "contexts" / "home.json").exists()
    assert server_url({"HOME": str(tmp_path), "XDG_CONFIG_HOME": "relative"}) == HOME.url


def test_only_their_owner_may_read_contexts(env: dict[str, str], tmp_path: Path) -> None:
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.parametrize(
    ("file", "content", "mode", "complaint"),
    [
        ("contexts/home.json", "{", 0o600, r"home.json is damaged: delete it"),
        ("contexts/home.json", "[]", 0o600, r"home.json is damaged"),
        ("contexts/home.json", '{"version": 1, "name": "x"}', 0o600, r"home.json is damaged"),
        (
            "contexts/home.json",
            '{"version": 1, "name": "x", "url": "a b:c", "creds": 1}',
            0o600,
            "home.json is damaged",
        ),
        ("contexts/home.json", '{"version": 9}', 0o600, "has version 9, and this `admit` reads"),
        ("contexts/home.json", "{}", 0o644, "other users may read .*: run `chmod 600 "),
        ("current", "../../etc", 0o600, "current is damaged: choose a context with"),
        ("current", "gone", 0o600, 'there is no context "gone": `admit context list` shows'),
        ("current", "home", 0o604, "other users may read .*: run `chmod 600 "),
    ],
)
def test_a_damaged_or_readable_context_is_one_clear_line(
    env: dict[str, str], tmp_path: Path, file: str, content: str, mode: int, complaint: str
) -> None:
    path = tmp_path / "admittance" / file
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(BadContext, match=complaint):
        contexts.current(env)
    with pytest.raises(BadOptions, match=complaint):
        connection_options(env)
    with pytest.raises(SetupError, match=complaint):
        Settings.from_env("check", env=env)


def test_a_server_that_is_gone_is_reported_with_its_context(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ADMIT_NATS_URL", raising=False)
    contexts.write(os.environ, Context(name="gone", url="nats://127.0.0.1:1"))
    assert invoke(["get", "workloads"]) == 1
    printed = capsys.readouterr().err
    assert "the server of the context gone: `admit context list` shows others" in printed
    assert printed.count("\n") == 1


def test_damaged_context_of_another_server_stops_no_command_with_a_url(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "admittance" / "contexts" / "home.json").write_text("{")
    (tmp_path / "admittance" / "current").write_text("../etc")
    assert connection_options(env, url="tls://a:4222").creds == "/work.creds"
    assert connection_options(env, url="nats://127.0.0.1:4444") == ConnectionOptions()


def test_damaged_context_of_the_own_server_is_reported(env: dict[str, str], tmp_path: Path) -> None:
    contexts.write(env, Context(name="local-4444", url="nats://127.0.0.1:4444", creds="/mine"))
    (tmp_path / "admittance" / "contexts" / "local-4444.json").write_text("{")
    with pytest.raises(BadOptions, match=r"local-4444\.json is damaged"):
        connection_options(env, url="nats://localhost:4444")


def test_options_do_not_need_a_readable_context(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "admittance" / "contexts" / "home.json").write_text("{")
    assert connection_options(env, url=HOME.url, given={"creds": "/mine"}).creds == "/mine"
    assert outer_call(None, None, None, environ=env).url_from is UrlFrom.DEFAULT


def test_a_context_at_the_default_address_is_the_source_of_the_address(
    env: dict[str, str],
) -> None:
    contexts.write(env, Context(name="local-4222", url=DEFAULT_URL))
    assert outer_call(None, None, None, environ=env).url_from is UrlFrom.CONTEXT
    assert outer_call(None, None, None, environ={}).url_from is UrlFrom.DEFAULT


@pytest.mark.parametrize("name", ["current", "contexts/home.json"])
def test_a_pipe_in_place_of_a_file_blocks_no_command(
    env: dict[str, str], tmp_path: Path, name: str
) -> None:
    path = tmp_path / "admittance" / name
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(BadContext, match="it is not a file"):
        contexts.current(env)


def test_commands_list_choose_and_show_contexts(
    env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", env["XDG_CONFIG_HOME"])
    assert invoke(["context", "list"]) == 0
    _, home, work = capsys.readouterr().out.splitlines()
    assert home.split() == ["*", "home", HOME.url, "/home.creds"]
    assert work.split() == ["work", WORK.url, "/work.creds"]
    assert invoke(["context", "use", "work"]) == 0
    assert capsys.readouterr().out == f"context work: {WORK.url}\n"
    assert invoke(["context", "show"]) == 0
    shown = capsys.readouterr().out
    assert "/work.creds" in shown
    assert "/ca" in shown
    assert invoke(["context", "show", "home", "-o", "json"]) == 0
    assert '"creds": "/home.creds"' in capsys.readouterr().out
    assert invoke(["context", "use", "nowhere"]) == 1
    assert 'there is no context "nowhere"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env", "url", "named"),
    [
        pytest.param({}, "nats://a:4222", False, id="nothing"),
        pytest.param({"ADMIT_NATS_CREDS": "f"}, "", True, id="a credentials file"),
        pytest.param({"ADMIT_NATS_USER": "u"}, "", True, id="a user"),
        pytest.param({"ADMIT_NATS_TOKEN_FILE": "f"}, "", True, id="a token"),
        pytest.param({"ADMIT_NATS_TLS_CERT": "f"}, "", True, id="a client certificate"),
        pytest.param({"ADMIT_NATS_TLS_CA": "f"}, "", False, id="an authority is not a login"),
        pytest.param({}, "nats://u:p@a:4222", True, id="a login in the address"),
        pytest.param({"ADMIT_NATS_URL": "nats://t@a"}, "", True, id="a token in the variable"),
    ],
)
def test_a_login_is_named_by_variables_or_the_address(
    env: dict[str, str], url: str, named: bool
) -> None:
    assert names_a_login(env, url) is named
