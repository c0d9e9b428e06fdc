"""Rules that change while the runner runs: the file of rules, and members of Unix groups."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from admittance.events.facts import Admitted
from admittance.events.system import RunnerStarts
from admittance.job_rules.limits import JobLimits
from admittance.job_rules.options import RuleTexts, check_unix_users, rules_of
from admittance.job_rules.rules import CannotRun, JobRules, UnixUser, UnixUsers
from admittance.job_rules.rules_file import HEAD, rule_with, with_rule, without_rule
from admittance.runner.host import live_rules
from admittance.runner.host.live_rules import LiveRules
from admittance.runtime.errors import SetupError


def admitted(by: str = "", namespace: str = "team-a") -> Admitted:
    return Admitted(namespace=namespace, name="w", uid="u", revision=3, submitted_by=by)


def people(monkeypatch: pytest.MonkeyPatch, uid: int, members: list[str]) -> None:
    """Unix users ada, ben and root of the group team, which lists ``members`` and is ben's own
    group. This process has the Unix user ``uid``."""
    users = {"ada": 1001, "ben": 1002, "toor": 0}
    entries = {
        name: SimpleNamespace(
            pw_name=name,
            pw_uid=uid,
            pw_gid=7 if name == "ben" else uid,
            pw_dir=f"/home/{name}",
            pw_shell="/bin/sh",
        )
        for name, uid in users.items()
    }
    team = SimpleNamespace(gr_gid=7, gr_mem=members)
    monkeypatch.setattr(pwd, "getpwall", lambda: list(entries.values()))
    monkeypatch.setattr(pwd, "getpwnam", entries.__getitem__)
    monkeypatch.setattr(grp, "getgrnam", {"team": team}.__getitem__)
    monkeypatch.setattr(grp, "getgrall", lambda: [team])
    monkeypatch.setattr(os, "geteuid", lambda: uid)


def live(folder: Path, text: str, **more: object) -> tuple[LiveRules, Path]:
    file = folder / "run-as"
    file.write_text(text)
    file.chmod(0o600)
    rules = LiveRules(JobRules(file=str(file), **more))  # type: ignore[arg-type]
    rules.load()
    return rules, file


def uid_of(rules: LiveRules, by: str) -> int | str:
    try:
        user = rules.current.unix_user(admitted(by))
    except CannotRun as refused:
        return str(refused)
    return -1 if user is None else user.uid


def test_same_named_members_of_a_group_run_as_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    people(monkeypatch, 0, ["ada", "toor", "gone"])
    rules = LiveRules(rules_of(RuleTexts(run_as=("@team", "user:ben=9")), {}, executor="local"))
    rules.load()
    assert (uid_of(rules, "ada"), uid_of(rules, "ben")) == (1001, 9)
    for stranger in ("eve", "toor", "gone", ""):
        assert "the runner has no Unix user for jobs of" in str(uid_of(rules, stranger))
    # The jobs of a member have the member's other groups, too.
    assert rules.current.members["ada"].groups == (7, 1001)


def test_new_member_of_a_group_counts_without_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    people(monkeypatch, 0, [])
    rules = LiveRules(JobRules(groups=("team",)))
    rules.load()
    assert "no Unix user" in str(uid_of(rules, "ada"))
    people(monkeypatch, 0, ["ada"])
    assert [rules.refresh() for _ in range(live_rules.GROUPS_EVERY)].count(True) == 1
    assert uid_of(rules, "ada") == 1001


def test_rule_of_a_changed_file_counts_without_a_restart(tmp_path: Path) -> None:
    own = os.geteuid() or 7
    rules, file = live(tmp_path, f"# people\nuser:ada={own}  # the first\n")
    assert uid_of(rules, "ada") == own
    assert not rules.refresh()
    file.write_text("")
    assert not rules.refresh()  # the file may be half written
    file.write_text(f"user:ben={own}\n")
    assert not rules.refresh()
    assert uid_of(rules, "ada") == own
    assert rules.refresh()
    assert uid_of(rules, "ben") == own
    assert "no Unix user for jobs of the user ada" in str(uid_of(rules, "ada"))
    file.unlink()
    assert (rules.refresh(), rules.refresh()) == (False, True)
    assert "no Unix user" in str(uid_of(rules, "ben"))


def test_rule_of_the_file_counts_before_that_of_an_option(tmp_path: Path) -> None:
    rules, _ = live(
        tmp_path, f"user:ada={os.geteuid() or 7}", run_as={"user:ada": UnixUser(uid=9, gid=9)}
    )
    assert uid_of(rules, "ada") == (os.geteuid() or 7)


def writable_file(file: Path) -> None:
    file.chmod(0o620)


def writable_folder(file: Path) -> None:
    file.parent.chmod(0o770)


def other_link(file: Path) -> None:
    file.rename(file.with_name("other"))
    file.symlink_to(file.with_name("other"))


def other_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def other_text(file: Path) -> None:
    file.write_text("ben")


def twice(file: Path) -> None:
    file.write_text("user:ben=7\nuser:ben=8")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (writable_file, "other Unix users may write"),
        (writable_folder, "other Unix users may write"),
        (other_link, "cannot read the rules"),
        (other_folder, "is not a file of rules"),
        (other_text, "ben: it must be user:NAME=UNIX_USER"),
        (twice, "user:ben is given twice"),
    ],
)
def test_file_that_cannot_be_trusted_or_read_changes_no_rules(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    own = os.geteuid() or 7
    folder = tmp_path / "auth"
    folder.mkdir(0o700)
    rules, file = live(folder, f"user:ada={own}")
    spoil(file)
    assert not (rules.refresh() or rules.refresh())
    assert uid_of(rules, "ada") == own
    assert reason in rules.findings()[0].found
    with pytest.raises(SetupError, match=reason):
        LiveRules(JobRules(file=str(file))).load()


def test_file_of_another_unix_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    file = tmp_path / "run-as"
    file.write_text("user:ada=7")
    if owner == 0:
        os.chown(file, 12, 12)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(SetupError, match="belongs to another Unix user"):
        LiveRules(JobRules(file=str(file))).load()


@pytest.mark.parametrize(
    ("uid", "rule", "reason"),
    [
        (0, "user:ada=0", "only the option --run-as lets jobs run as root"),
        (0, "user:ada=no-such-user", "there is no Unix user 'no-such-user'"),
        (1000, "user:ada=1001:1001", "only a runner that is root can start jobs as other"),
        (1000, "user:ada=5-9", "only a runner that is root can start jobs as other"),
    ],
)
def test_rule_of_a_file_that_cannot_be_followed_refuses_its_jobs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, rule: str, reason: str
) -> None:
    monkeypatch.setattr(live_rules, "read_trusted", lambda _: f"{rule}\n*={uid or 1000}:5\n")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    rules, _ = live(tmp_path, "")
    # A less special rule, such as that of `*`, does not count in its place.
    assert reason in str(uid_of(rules, "ada"))
    assert uid_of(rules, "ben") == 1000
    assert reason in rules.findings()[0].found
    announced = rules.current.starts()
    assert announced is not None
    assert (announced.submitters, announced.refused) == ((), ("ada",))


def test_runner_that_is_not_root_has_no_group_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    people(monkeypatch, 1000, ["ada"])
    with pytest.raises(SetupError, match="--run-as @team: only a runner that is root"):
        check_unix_users(JobRules(groups=("team",)))
    with pytest.raises(SetupError, match=r"\(ADMIT_RUN_AS_FILE\): there is no file /no/such"):
        rules_of(RuleTexts(), {"ADMIT_RUN_AS_FILE": "/no/such"}, executor="local")


@pytest.mark.parametrize(
    ("rules", "starts"),
    [
        pytest.param(JobRules(), RunnerStarts(every=True), id="everything"),
        pytest.param(
            JobRules(namespaces=("a",)), RunnerStarts(namespaces=("a",), every=True), id="one"
        ),
        pytest.param(
            JobRules(images=("x/*",)), RunnerStarts(every=True, images=("x/*",)), id="some images"
        ),
        pytest.param(JobRules(file="/f"), RunnerStarts(), id="nothing yet"),
        pytest.param(
            JobRules(
                run_as={
                    "user:ada": UnixUser(uid=1, gid=1),
                    "namespace:a": UnixUser(uid=1, gid=1),
                    "unknown": UnixUser(uid=1, gid=1),
                    "*": UnixUsers(low=1, high=2),
                },
                members={"ben": UnixUser(uid=2, gid=2)},
            ),
            RunnerStarts(submitters=("ada", "ben"), all_of=("a",), unknown=True, every=True),
            id="each key",
        ),
    ],
)
def test_runner_announces_the_users_of_the_jobs_it_starts(
    rules: JobRules, starts: RunnerStarts
) -> None:
    lacks = ("hostPath", "values")
    assert rules.starts() == msgspec.structs.replace(starts, lacks=lacks, pods=500)
    other = msgspec.structs.replace(rules, host_paths=("/srv",), limits=JobLimits(pods=7))
    assert other.starts() == msgspec.structs.replace(starts, lacks=("values",), pods=7)


def test_runner_that_starts_everything_announces_no_limits() -> None:
    rules = JobRules(host_paths=("/srv",), env_files="/values", limits=JobLimits(pods=0))
    assert rules.starts() is None


def test_edited_file_keeps_comments_and_other_rules() -> None:
    text = with_rule("", "user:ada=ada")
    assert text == f"{HEAD}user:ada=ada\n"
    text = with_rule(f"{text}\n# more\n@team # all\n", "user:ada=jobs")
    assert text == f"{HEAD}user:ada=jobs\n\n# more\n@team # all\n"
    assert rule_with(text, "@team") == "@team"
    assert (
        without_rule(without_rule(text, "@team"), "user:ben") == f"{HEAD}user:ada=jobs\n\n# more\n"
    )
    assert rule_with(text, "user:ben") == ""
