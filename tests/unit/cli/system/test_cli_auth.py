"""`admit auth` without a server: what it prints and refuses."""

import os
from pathlib import Path

import pytest

from admittance.cli.commands.program import invoke
from admittance.runtime.nats import contexts
from admittance.runtime.nats.contexts import Context
from support.needs import needs_root
from support.processes.in_process import Admit

DEAD = "nats://127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "auth"
    monkeypatch.setenv("ADMIT_AUTH_DIR", str(path))
    monkeypatch.setenv("ADMIT_NATS_URL", DEAD)
    assert invoke(["auth", "init", str(path)]) == 0
    return path


def add(folder: Path, *words: str) -> int:
    return invoke(["auth", "add", *words, "-o", str(folder.parent / f"{words[1]}.creds")])


def test_users_of_the_server_of_the_current_context_are_shown_by_default(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admit: Admit
) -> None:
    add(folder, "backup", "ada")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    contexts.write(
        os.environ, Context(name="local", url=DEAD, creds=str(folder.parent / "ada.creds"))
    )
    monkeypatch.delenv("ADMIT_AUTH_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    # The credentials file is not in the folder of users: the folder is unknown.
    assert f"{tmp_path}/data/admittance/auth does not exist" in admit.err(1, "auth", "list")
    contexts.write(os.environ, Context(name="local", url=DEAD, creds=str(folder / "ada.creds")))
    assert admit.out("auth", "list", "-o", "name") == "ada\n"


def test_users_of_the_folder_of_the_credentials_go_before_those_of_the_context(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admit: Admit
) -> None:
    other = tmp_path / "other"
    assert invoke(["auth", "init", str(other)]) == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    contexts.write(os.environ, Context(name="local", url=DEAD, creds=str(folder / "ada.creds")))
    monkeypatch.delenv("ADMIT_AUTH_DIR")
    monkeypatch.setenv("ADMIT_NATS_CREDS", str(other / "ben.creds"))
    rule = f"user:ben={os.geteuid() or 65534}"
    assert invoke(["auth", "run-as", rule]) == 0
    assert rule in (other / "run-as").read_text()
    assert not (folder / "run-as").exists()
    monkeypatch.setenv("ADMIT_AUTH_DIR", str(folder))
    assert f"no rules in {folder}/run-as" in admit.err(0, "auth", "run-as")


def test_list_shows_role_purpose_and_expiry(folder: Path, admit: Admit) -> None:
    add(folder, "user", "ada", "-n", "team-a", "-n", "team-b", "--expires", "30d")
    add(folder, "check", "budget", "--controller", "example.com/budget")
    _, ada, budget = admit.out("auth", "list").splitlines()
    assert ada.split()[:4] == ["ada", "owner", "OUT", "team-a,team-b"]
    assert "in 29d" in ada or "in 30d" in ada
    assert budget.split() == ["budget", "check", "OUT", "example.com/budget", "never"]
    assert '"controller": "example.com/budget"' in admit.out("auth", "list", "-o", "json")


def test_without_a_file_the_credentials_get_the_name_of_the_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch, admit: Admit
) -> None:
    monkeypatch.chdir(folder.parent)
    assert "credentials in saver.creds" in admit.out("auth", "add", "backup", "saver")
    assert (folder.parent / "saver.creds").stat().st_mode & 0o777 == 0o600
    assert "the user's name '../saver' may not have /" in admit.err(
        2, "auth", "add", "backup", "../saver"
    )


def test_show_groups_subjects_by_purpose(folder: Path, admit: Admit) -> None:
    add(folder, "runner", "first")
    shown = admit.out("auth", "show", "first")
    assert "  to claim what it starts:\n    $KV.admittance_claims.*.*.*\n" in shown
    assert "because only services write the heartbeats of instances:" in shown
    assert "  to answer requests:\n    _INBOX.>\n    _R_.>\n" in shown


def test_any_workload_is_a_right_that_is_given_by_name(folder: Path, admit: Admit) -> None:
    add(folder, "user", "ada", "-n", "team-a")
    add(folder, "user", "ben", "-n", "team-a", "--any-workload")
    rows = [line.split()[:2] for line in admit.out("auth", "list").splitlines()[1:]]
    assert rows == [["ada", "owner"], ["ben", "user"]]
    assert "# role: owner" in (folder.parent / "ada.creds").read_text()


def test_rule_of_a_user_comes_and_goes_with_the_user(folder: Path, admit: Admit) -> None:
    uid = str(os.geteuid() or 65534)
    rules = folder / "run-as"
    assert add(folder, "user", "ada", "-n", "team-a", "--unix", uid) == 0
    assert invoke(["auth", "run-as", f"namespace:team-b={uid}"]) == 0
    assert rules.stat().st_mode & 0o777 == 0o600
    assert admit.out("auth", "run-as") == f"user:ada={uid}\nnamespace:team-b={uid}\n"
    assert f"removed the rule user:ada={uid} from {rules}" in admit.out("auth", "revoke", "ada")
    assert invoke(["auth", "run-as", "namespace:team-b", "--remove"]) == 0
    assert not [line for line in rules.read_text().splitlines() if not line.startswith("#")]
    # A rule from before is not given to a new user without a word.
    invoke(["auth", "run-as", f"user:eve={uid}"])
    said = admit(
        "auth", "add", "user", "eve", "-n", "team-a", "-o", str(folder.parent / "eve.creds")
    )
    assert f"a rule from before is for its jobs: user:eve={uid}" in said.err


@needs_root
def test_rule_that_the_runner_of_another_unix_user_cannot_follow_is_refused(
    folder: Path, admit: Admit
) -> None:
    os.chown(folder, 65534, 65534)
    for rule in ("user:ada=12", "@root", "*=5-9"):
        refused = admit.err(2, "auth", "run-as", rule)
        assert "only a runner that is root can start jobs as other Unix users" in refused
    assert invoke(["auth", "run-as", "user:ada=65534"]) == 0
    assert (folder / "run-as").stat().st_uid == 65534


@pytest.mark.parametrize("how", [[], ["--jwt"]], ids=["nkeys", "jwt"])
def test_configuration_of_an_earlier_version_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admit: Admit, how: list[str]
) -> None:
    monkeypatch.setenv("ADMIT_NATS_URL", DEAD)
    folder = tmp_path / "users"
    assert invoke(["auth", "init", str(folder), *how]) == 0
    config = folder / "auth.conf"
    current = config.read_text()
    config.write_text("# of an earlier version\n")
    shown = admit("auth", "reload", "--dir", str(folder))
    assert shown.status == 0
    assert shown.out == f"written: {config}\n"
    assert "takes effect when the server starts" in shown.err
    assert ("run `admit auth renew` before" in shown.err) == ("--jwt" in how)
    # JWTs have their time.
    assert [line.split()[:1] for line in config.read_text().splitlines()] == [
        line.split()[:1] for line in current.splitlines()
    ]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (
            ["admit.owner.ada.held.team-a.w"],
            0,
            "allowed: ada (owner) may publish admit.owner.ada.held",
        ),
        (["admit.user.ada.held.team-a.w"], 1, "refused: no rule of ada (owner) allows to publish"),
        (["admit.owner.bob.held.team-a.w"], 1, "refused: no rule of ada (owner) allows to publish"),
        (["admit.workload.*.team-a.*", "--subscribe"], 0, "to follow events of its namespaces"),
        (["admit.workload.>", "--subscribe"], 1, "refused: no rule of ada (owner)"),
    ],
)
def test_check_says_which_rule_allows(
    folder: Path, admit: Admit, words: list[str], status: int, sentence: str
) -> None:
    add(folder, "user", "ada", "-n", "team-a")
    said = admit("auth", "check", *words, "--as", "ada")
    assert said.status == status
    assert sentence in said.out


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["add", "usr", "x"], 2, 'role "usr" is not known; did you mean "user"?'),
        (["add", "user", "x"], 2, "the role owner, which `user` makes, needs --namespace"),
        (["add", "viewer", "x", "--any-workload"], 2, "--any-workload is for the role user"),
        (["add", "viewer", "x", "--unix", "nobody"], 2, "the role viewer submits no jobs"),
        (["run-as", "ada=1"], 2, "it must be user:NAME=UNIX_USER"),
        (["run-as", "user:ada=0"], 2, "only the option --run-as of the runner lets jobs run as"),
        (["run-as", "user:a#b=7"], 2, "'user:a#b=7' cannot be a line of"),
        (["run-as", "user:a=7\n*=7"], 2, "cannot be a line of"),
        (["add", "user", "a#", "-n", "x", "--unix", "7"], 2, "cannot be a line of"),
        (["run-as", "@no-such-group"], 2, "there is no Unix group 'no-such-group'"),
        pytest.param(["run-as", "@root"], 2, "the Unix group root has no member", marks=needs_root),
        (["run-as", "user:ada", "--remove"], 2, "has no rule user:ada"),
        (["add", "viewer", "x", "--class", "gpu"], 2, "the role viewer takes no --class"),
        (["add", "viewer", "x", "--expires", "soon"], 2, '--expires "soon" is not a duration'),
        (["add", "viewer", "x", "--expires", "0"], 2, "--expires must be more than 0 s"),
        (["add", "viewer", "x", "--expires", "99999d"], 2, "at most 100 years"),
        (["add", "viewer", ""], 2, "the user's name is empty"),
        (["revoke", "x"], 1, "there is no user x in"),
        (["show", "x"], 1, "there is no user x in"),
        (["check", "a..b", "--as", "x"], 2, '"a..b" is not a subject'),
        (["check", "a.*", "--as", "x"], 2, "only --subscribe takes wildcards"),
        (["check", "a.>.b", "--as", "x", "--subscribe"], 2, "> must be its last token"),
        (["list", "--dir", "nowhere"], 1, "nowhere does not exist: make it with"),
        (["init", "/dev/null/x"], 1, "cannot make the folder /dev/null/x"),
    ],
)
def test_wrong_call_is_one_line(
    folder: Path, admit: Admit, words: list[str], status: int, sentence: str
) -> None:
    more = ["-o", str(folder.parent / "new")] if words[0] == "add" else []
    [line] = admit.err(status, "auth", *words, *more).splitlines()
    assert sentence in line


def test_users_with_nkeys_need_no_renewal(folder: Path, admit: Admit) -> None:
    add(folder, "backup", "saver")
    said = admit("auth", "renew", "--all")
    assert said.status == 0
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert said.err.startswith("nothing to renew: users with NKeys have the permissions")
    assert "there is no user missing" in admit.err(1, "auth", "renew", "missing")
    assert "have NKeys and no JWTs" in admit.err(2, "auth", "revoke", "saver", "--older")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the users to renew, or give --all"),
        (["ada", "--all"], "name the users to renew, or give --all"),
        (["ada", "ben", "-o", "x"], "-o FILE is for one user"),
        (["--all", "-o", "x"], "-o FILE is for one user"),
        (["--jwt", "x.jwt"], "--jwt FILE goes with -o FILE alone"),
        (["ada", "--jwt", "x.jwt", "-o", "x"], "--jwt FILE goes with -o FILE alone"),
    ],
)
def test_options_of_a_renewal_that_contradict_each_other_are_refused(
    folder: Path, admit: Admit, words: list[str], said: str
) -> None:
    assert admit.err(2, "auth", "renew", *words).startswith(f"error: {said}")


def test_a_renewed_jwt_goes_into_the_file_at_hand_or_alone_into_one_to_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admit: Admit
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADMIT_AUTH_DIR", "auth")
    monkeypatch.setenv("ADMIT_NATS_URL", DEAD)
    assert invoke(["auth", "init", "auth", "--jwt"]) == 0
    assert invoke(["auth", "add", "user", "ada", "-n", "a"]) == 0
    assert invoke(["auth", "add", "user", "ben", "-n", "a", "-o", "far.creds"]) == 0
    late = ("add", "user", "old", "-n", "a", "--expires", "0.001s")
    assert invoke(["auth", *late]) == 0
    old = {name: Path(name).read_text() for name in ("ada.creds", "far.creds", "old.creds")}
    said = admit("auth", "renew", "--all")
    assert said.status == 0
    assert said.out == (
        "renewed ada (owner): credentials in ada.creds\n"
        "renewed ben (owner): JWT in ben.jwt; `admit auth renew --jwt ben.jwt -o FILE` puts it "
        "into a credentials FILE\n"
    )
    assert said.err.startswith("older JWTs stay valid")
    assert Path("ada.creds").read_text() != old["ada.creds"]
    assert Path("old.creds").read_text() == old["old.creds"]
    assert "old has expired" in admit.err(2, "auth", "renew", "old")
    assert "ada.creds is of the user ada" in admit.err(
        1, "auth", "renew", "--jwt", "ben.jwt", "-o", "ada.creds"
    )
    assert (
        admit.out("auth", "renew", "--jwt", "ben.jwt", "-o", "far.creds")
        == "renewed ben: credentials in far.creds\n"
    )
    assert Path("ben.jwt").read_text().strip() in Path("far.creds").read_text()
    assert (
        admit.out("auth", "revoke", "ada", "--older") == "revoked the older JWTs of ada (owner)\n"
    )
    assert "old has no older JWT" in admit.err(0, "auth", "revoke", "old", "--older")
    assert admit.out("auth", "list", "-o", "name") == "ada\nben\nold\n"
