"""`admit up`, before it starts a server: which options go together, and its folder of users."""

from __future__ import annotations

import os
import socket
from contextlib import nullcontext
from pathlib import Path

import pytest
import structlog

from admittance.access.users import User
from admittance.cli.commands.program import invoke
from admittance.cli.support.options import Call, UrlFrom
from admittance.cli.up.lock import ADMIN, Lock, rules_of_server
from admittance.cli.up.options import Options, has_two_processes, refuse_wrong, refuse_wrong_of
from admittance.cli.up.own_context import write_own_context
from admittance.cli.up.up import refuse_unprotected, refuse_unused
from admittance.client.errors import BadInput
from admittance.job_rules.options import RuleTexts
from admittance.runtime.errors import AccessDenied, SetupError
from admittance.runtime.nats import contexts
from admittance.runtime.nats.contexts import Context
from admittance.runtime.nats_server.auth_store import AuthStore
from admittance.runtime.process.service import Service
from admittance.services import SERVICES

FAR = "nats://nats.example.com:4222"
NEAR_ONE = "nats://127.0.0.1:4222"
NEAR = "nats://127.0.0.1:4222,nats://localhost:4223"


@pytest.mark.parametrize(
    ("url", "insecure", "given"),
    [
        (NEAR, True, {}),
        (NEAR, False, {}),
        (FAR, False, {"creds": "/mine"}),
        ("nats://ada:x@nats.example.com", False, {}),
    ],
)
def test_server_with_credentials_or_on_loopback_is_used(
    url: str, insecure: bool, given: dict[str, str]
) -> None:
    refuse_unprotected(Call(url=url, url_from=UrlFrom.OPTION, given=given), insecure)


@pytest.mark.parametrize(
    ("url", "insecure", "complaint"),
    [
        (FAR, False, "is not on loopback: name credentials with --creds"),
        (FAR, True, "--insecure is for loopback only, and .* is not"),
        (f"{NEAR},{FAR}", True, "--insecure is for loopback only"),
    ],
)
def test_server_elsewhere_without_credentials_is_refused(
    url: str, insecure: bool, complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        refuse_unprotected(Call(url=url, url_from=UrlFrom.OPTION), insecure)


@pytest.mark.parametrize("option", ["--creds", "--tls-ca"])
def test_options_of_a_connection_are_refused_beside_an_own_server(option: str) -> None:
    name = option.removeprefix("--").replace("-", "_")
    with pytest.raises(BadInput, match=f"^{option} is for a server that runs already: name that"):
        refuse_unused(Call(given={name: "file"}))
    refuse_unused(Call(given={name: None}, environ={"ADMIT_NATS_CREDS": "file"}))


def test_a_data_folder_of_another_unix_user_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid
    refuse_wrong(Options(tmp_path), None)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(BadInput) as caught:
        refuse_wrong(Options(tmp_path), None)
    assert str(caught.value).startswith(f"cannot use the data folder {tmp_path}: ")
    assert f"(it belongs to the Unix user {owner}); choose another" in str(caught.value)


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_only_a_service_that_runs_jobs_needs_its_data_folder(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file system of a container may be read-only.
    monkeypatch.setattr(os, "access", lambda *_: False)
    expected = pytest.raises(BadInput) if service.runs_jobs else nullcontext()
    with expected:
        refuse_wrong_of(service, Options(tmp_path))


def test_users_and_their_keys_stay_from_start_to_start(tmp_path: Path) -> None:
    first = Lock(tmp_path)
    store = AuthStore(tmp_path / "auth")
    users = store.users
    assert {user.role for user in users} >= {"scheduler", "runner", "admin", "server-watch"}
    seeds = {user.name: Path(store.credentials_of(user.name)).read_text() for user in users}
    again = Lock(tmp_path)
    assert store.users == users
    assert {name: Path(store.credentials_of(name)).read_text() for name in seeds} == seeds
    assert first.access("runner") == again.access("runner")
    assert len({first.access(name).creds for name in (ADMIN, "scheduler", "runner")}) == 3


def test_interrupted_first_start_is_completed(tmp_path: Path) -> None:
    (tmp_path / ".auth.new").mkdir()
    (tmp_path / ".auth.new" / "system.nk").write_text("half")
    Lock(tmp_path)
    assert AuthStore(tmp_path / "auth").user(ADMIN).role == "admin"


def test_other_users_of_the_folder_stay(tmp_path: Path) -> None:
    Lock(tmp_path)
    store = AuthStore(tmp_path / "auth")
    ada = store.add(User(name="ada", role="viewer", key=""), tmp_path / "ada.creds")
    Lock(tmp_path)
    assert store.user("ada") == ada


def test_name_of_a_service_with_another_role_is_refused(tmp_path: Path) -> None:
    Lock(tmp_path)
    store = AuthStore(tmp_path / "auth")
    store.remove("scheduler")
    store.add(User(name="scheduler", role="viewer", key=""), tmp_path / "x.creds")
    with pytest.raises(SetupError, match="has the role viewer, and Admittance needs it with"):
        Lock(tmp_path)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "configuration")}


def test_up_replaces_its_own_damaged_contexts(env: dict[str, str], tmp_path: Path) -> None:
    write_own_context(NEAR_ONE, "/mine", Path("/data"), env)
    for path in (tmp_path / "configuration").rglob("*"):
        if path.is_file():
            path.write_text("{")
    write_own_context(NEAR_ONE, "/mine", Path("/data"), env)
    assert contexts.current(env) == Context(
        name="local-4222", url=NEAR_ONE, creds="/mine", data_dir="/data"
    )


def test_contexts_that_lead_nowhere_are_removed(env: dict[str, str], tmp_path: Path) -> None:
    mine, other = tmp_path / "mine.creds", tmp_path / "other.creds"
    mine.touch()
    other.touch()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
        for port, creds in (
            (1, str(mine)),  # the same data folder on another port
            (2, str(other)),
            (3, str(tmp_path / "gone.creds")),
            (listening.getsockname()[1], None),
            (closed, None),
        ):
            url = f"nats://127.0.0.1:{port}"
            contexts.write(env, Context(name=f"local-{port}", url=url, creds=creds))
        contexts.write(env, Context(name="work", url="nats://a:4222", creds="/gone"))
        write_own_context(NEAR_ONE, str(mine), tmp_path, env)
        left = {"local-2", "local-4222", f"local-{listening.getsockname()[1]}", "work"}
    assert set(contexts.names(env)) == left


def test_unwritable_configuration_folder_is_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    write_own_context(NEAR_ONE, "/mine", tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "file")})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: cannot write ")
    assert line.endswith(f"commands need --nats {NEAR_ONE} --creds /mine")


def test_list_of_contexts_warns_about_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("a", "b"):
        contexts.write(env, Context(name=name, url="nats://a:4222"))
    (tmp_path / "admittance" / "contexts" / "a.json").write_text("{")
    assert invoke(["context", "list", "-o", "name"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "b\n"
    assert "a.json is damaged" in printed.err


def test_data_folder_that_cannot_be_written_is_one_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match=r"cannot write to the data folder .*--data-dir"):
        Lock(tmp_path / "file" / "data")


@pytest.mark.parametrize(
    ("file", "mode", "error"),
    [
        ("users.json", 0o644, "other users may use .*users.json: run `chmod 600"),
        ("system.nk", 0o644, "other users may read .*system.nk: run `chmod 600"),
        (".", 0o755, "other users may use .*auth: run `chmod 700"),
    ],
)
def test_readable_file_of_users_is_one_refusal(
    tmp_path: Path, file: str, mode: int, error: str
) -> None:
    Lock(tmp_path)
    (tmp_path / "auth" / file).chmod(mode)
    with pytest.raises((SetupError, AccessDenied), match=error):
        Lock(tmp_path)


def test_key_that_others_may_have_read_is_made_anew(tmp_path: Path) -> None:
    Lock(tmp_path)
    store = AuthStore(tmp_path / "auth")
    before = store.user(ADMIN).key
    file = Path(store.credentials_of(ADMIN))
    file.chmod(0o644)
    with structlog.testing.capture_logs() as logged:
        Lock(tmp_path)
    assert store.user(ADMIN).key != before
    assert file.stat().st_mode & 0o777 == 0o600
    (line,) = logged
    assert (line["event"], line["user"]) == ("key_made_anew", ADMIN)
    assert "other users may read" in line["reason"]


@pytest.mark.parametrize(
    ("given", "insecure", "own"),
    [
        pytest.param((), False, {"user:admin", "unknown"}, id="jobs of the admin"),
        pytest.param((), True, {"*"}, id="all jobs of an open server"),
        pytest.param(("user:ada=7",), False, {"user:admin", "unknown"}, id="beside other users"),
        pytest.param(("user:admin=7",), False, {"unknown"}, id="unless another is named"),
        pytest.param(("*=7",), False, set(), id="unless one is named for all"),
    ],
)
def test_admit_up_runs_the_jobs_of_its_admin_as_itself(
    given: tuple[str, ...],
    insecure: bool,
    own: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ADMIT_RUN_AS", raising=False)
    texts = RuleTexts(run_as=given)
    rules = rules_of_server(texts, tmp_path, executor="local", insecure=insecure)
    assert rules.file == ("" if insecure else str(tmp_path / "auth" / "run-as"))
    mine = {key for key, user in rules.run_as.items() if user.uid == os.geteuid()}
    assert mine == own
    assert len(rules.run_as) == len(own) + len(given)


@pytest.mark.parametrize(
    ("processes", "cpu_milli", "two"),
    [
        ("1", 64_000, False),
        ("2", 500, True),
        ("auto", 1_999, False),
        ("auto", 2_000, True),
        ("auto", 0, False),
    ],
)
def test_two_processes_start_where_there_are_two_processors(
    processes: str, cpu_milli: int, two: bool
) -> None:
    assert has_two_processes(processes, cpu_milli) is two
