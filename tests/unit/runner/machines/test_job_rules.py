"""The rules for jobs of a runner, and their settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from admittance.events.facts import Admitted
from admittance.job_rules.options import (
    RuleTexts,
    check_unix_users,
    rules_of,
    unix_user,
)
from admittance.job_rules.rules import CannotRun, JobRules, UnixUser, UnixUsers
from admittance.runtime.errors import SetupError


def admitted(by: str = "", namespace: str = "team-a") -> Admitted:
    return Admitted(namespace=namespace, name="w", uid="u", revision=3, submitted_by=by)


def user(number: int) -> UnixUser:
    return UnixUser(uid=number, gid=number)


RULES = JobRules(
    run_as={"user:ada": user(1), "namespace:team-a": user(2), "unknown": user(3)},
)


@pytest.mark.parametrize(
    ("job", "uid"),
    [
        pytest.param(admitted("ada"), 1, id="the submitter first"),
        pytest.param(admitted("bob"), 2, id="then the namespace"),
        pytest.param(admitted(), 2, id="also of a job without a known submitter"),
        pytest.param(admitted(namespace="team-b"), 3, id="then the unknown submitter"),
    ],
)
def test_the_first_rule_of_a_job_names_its_unix_user(job: Admitted, uid: int) -> None:
    user = RULES.unix_user(job)
    assert user is not None
    assert user.uid == uid


def test_rule_for_every_job_counts_last() -> None:
    rules = JobRules(run_as={"*": user(9), "user:ada": user(1)})
    assert rules.unix_user(admitted("ada")) == user(1)
    assert rules.unix_user(admitted("bob")) == rules.unix_user(admitted()) == user(9)


def test_a_range_gives_each_namespace_its_own_unix_user() -> None:
    rules = JobRules(run_as={"*": UnixUsers(low=5000, high=1_000_000)})
    jobs = [admitted(by, f"team-{i}") for i in range(50) for by in ("ada", "bob", "")]
    users = [rules.unix_user(job) for job in jobs]
    assert len({user.uid for user in users if user is not None}) == 50
    assert all(user is not None and 5000 <= user.uid == user.gid <= 1_000_000 for user in users)
    # The files that a job leaves belong to this number, so it must stay the same for ever.
    assert rules.unix_user(admitted(namespace="team-a")) == UnixUser(
        uid=179873, gid=179873, groups=(179873,)
    )


@pytest.mark.parametrize(
    ("job", "option"),
    [
        (
            admitted("bob", "team-b"),
            "the user bob in namespace team-b: name one with --run-as user:bob",
        ),
        (
            admitted(namespace="x"),
            "an unknown submitter in namespace x: name one with --run-as namesp",
        ),
    ],
)
def test_job_without_a_unix_user_is_refused_with_the_option_to_add(
    job: Admitted, option: str
) -> None:
    with pytest.raises(CannotRun) as refused:
        JobRules(run_as={"user:ada": user(1)}).unix_user(job)
    assert option in str(refused.value)


def test_runner_without_unix_users_runs_all_jobs_as_its_own() -> None:
    assert JobRules().unix_user(admitted("ada")) is None


def test_images_outside_the_rules_are_refused() -> None:
    rules = JobRules(images=("example.com/team/*",))
    rules.check_image("example.com/team/train:1")
    with pytest.raises(CannotRun, match="may not run the image example"):
        rules.check_image("example.com/other")


def test_options_replace_the_variables_of_rules(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    env = {
        "ADMIT_RUN_AS": "user:ada=4000000001:7, *=4000000002",
        "ADMIT_JOB_NAMESPACES": "team-b,team-a",
        "ADMIT_JOB_FOLDERS": str(link),
    }
    rules = rules_of(RuleTexts(namespaces=("team-c",)), env, executor="local")
    assert rules.namespaces == ("team-c",)
    assert rules.folders == (str(tmp_path.resolve()),)
    assert rules.run_as["user:ada"] == UnixUser(uid=4000000001, gid=7, groups=(7,))
    assert rules.run_as["*"].gid == 4000000002


def test_known_unix_user_has_its_groups_and_home() -> None:
    user = unix_user("root")
    assert (user.uid, user.name, user.home) == (0, "root", "/root")
    assert 0 in user.groups


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"ADMIT_RUN_AS": "ada=root"}, "must be user:NAME=UNIX_USER"),
        ({"ADMIT_RUN_AS": "user:=root"}, "must be user:NAME=UNIX_USER"),
        ({"ADMIT_RUN_AS": "*"}, "must be user:NAME=UNIX_USER"),
        ({"ADMIT_RUN_AS": "*=no-such-user"}, "there is no Unix user 'no-such-user'"),
        ({"ADMIT_RUN_AS": "*=4294967295"}, "is not the number of a Unix user"),
        ({"ADMIT_RUN_AS": "*=0,*=1"}, "* is given twice"),
        ({"ADMIT_RUN_AS": "*=0-1000"}, "0-1000 is not a range of Unix users without root"),
        ({"ADMIT_RUN_AS": "*=9-8"}, "9-8 is not a range of Unix users"),
        ({"ADMIT_JOB_NAMESPACES": "Team A"}, "is not a name"),
        ({"ADMIT_JOB_FOLDERS": "work"}, "must be an absolute path"),
        ({"ADMIT_SHARED_FOLDERS": "home"}, "the path home must be an absolute path"),
        ({"ADMIT_JOB_IMAGES": "x"}, "has no effect with --executor local, only with docker"),
    ],
)
def test_wrong_rule_is_one_line_with_its_variable(env: dict[str, str], line: str) -> None:
    with pytest.raises(SetupError) as wrong:
        rules_of(RuleTexts(), env, executor="local")
    assert line in str(wrong.value)
    assert f"({next(iter(env))})" in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_runner_that_is_root_must_name_unix_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SetupError, match="name the Unix user of its jobs with --run-as"):
        check_unix_users(JobRules())
    check_unix_users(JobRules(run_as={"*": user(0)}))
    check_unix_users(JobRules(run_as={"*": UnixUsers(low=1, high=9)}))


def test_only_a_runner_that_is_root_may_have_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 5)
    with pytest.raises(SetupError, match="only a runner that is root"):
        check_unix_users(JobRules(run_as={"*": UnixUsers(low=1, high=9)}))


def test_runner_that_is_not_root_starts_jobs_as_itself_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    check_unix_users(JobRules())
    check_unix_users(JobRules(run_as={"user:ada": user(1000)}))
    with pytest.raises(SetupError, match="--run-as user:bob: only a runner that is root"):
        check_unix_users(JobRules(run_as={"user:ada": user(1000), "user:bob": user(1001)}))
