"""The rules that say which Unix user runs the jobs of which user, in a folder of users:
``admit auth add --unix`` and ``admit auth run-as``."""

from __future__ import annotations

import os
import pwd
from functools import partial
from pathlib import Path

from admittance.access.users import User
from admittance.cli.support import output
from admittance.client.errors import BadInput
from admittance.job_rules.options import (
    ONLY_ROOT,
    key_of,
    members_of,
    parse_run_as,
    unix_users,
)
from admittance.job_rules.rules import UnixUser
from admittance.job_rules.rules_file import rule_with, rules_in, with_rule, without_rule
from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server.auth_store import AuthStore

SUBMITTERS = ("owner", "user", "admin")
"""The roles of people that submit workloads."""
READ_BY = ", which the runner of `admit up` reads, or one with --run-as-file"


def refuse_wrong(store: AuthStore, user: User, unix: str) -> None:
    """Raises BadInput if jobs of the user cannot run as the Unix user."""
    if user.role not in SUBMITTERS:
        raise BadInput(f"--unix: the role {user.role} submits no jobs")
    refuse_rule(store, f"user:{user.name}={unix}")


def tell(store: AuthStore, user: User, unix: str) -> None:
    """Stores the rule for a new user, and says which Unix user runs its jobs."""
    key = f"user:{user.name}"
    if unix:
        rule = f"{key}={unix}"
        store.change_run_as(partial(with_rule, rule=rule))
        output.say(f"stored the rule {rule} in {store.run_as_file}{READ_BY}")
    elif there := rule_with(store.run_as(), key):
        output.note(f"a rule from before is for its jobs: {there} in {store.run_as_file}")


def forget(store: AuthStore, user: User) -> None:
    """Removes the rule for a user that is gone: a later user of that name must not get its
    rights."""
    rule = rule_with(store.run_as(), f"user:{user.name}")
    if rule:
        store.change_run_as(partial(without_rule, key=key_of(rule)))
        output.say(f"removed the rule {rule} from {store.run_as_file}")


def change(folder: Path, rule: str, *, remove: bool) -> None:
    """Stores or removes one rule. Raises BadInput."""
    store = AuthStore(folder)
    where = store.run_as_file
    if remove:
        key = rule if rule.startswith("@") else rule.partition("=")[0]
        there = rule_with(store.run_as(), key)
        if not there:
            raise BadInput(f"{where} has no rule {key}")
        store.change_run_as(partial(without_rule, key=key))
        output.say(f"removed the rule {there} from {where}")
        return
    refuse_rule(store, rule)
    store.change_run_as(partial(with_rule, rule=rule))
    output.say(f"stored the rule {rule} in {where}{READ_BY}")


def show(folder: Path) -> None:
    """Prints the rules of the folder of users."""
    store = AuthStore(folder)
    rules = rules_in(store.run_as())
    for rule in rules:
        output.say(rule)
    if not rules:
        output.note(f"no rules in {store.run_as_file}: admit auth run-as RULE")


def refuse_rule(store: AuthStore, rule: str) -> None:
    """Raises BadInput for a rule that the runner of the folder's owner could not follow."""
    if rules_in(rule) != [rule]:
        raise BadInput(
            f"{rule!r} cannot be a line of {store.run_as_file}: # begins a comment there"
        )
    try:
        wanted = parse_run_as((rule,), "run-as")
        named = {key: unix_users(text, "run-as") for key, text in wanted.users.items()}
        empty = [group for group in wanted.groups if not members_of(group)]
    except SetupError as error:
        raise BadInput(str(error)) from None
    owner = store.folder.stat().st_uid
    for user in named.values():
        uid = user.uid if isinstance(user, UnixUser) else -1
        if uid == 0:
            raise BadInput(f"{rule}: only the option --run-as of the runner lets jobs run as root")
        if owner != 0 and uid != owner:
            raise BadInput(f"{rule}: the runner is {_name(owner)}; {ONLY_ROOT}")
    if owner != 0 and wanted.groups:
        raise BadInput(f"{rule}: the runner is {_name(owner)}; {ONLY_ROOT}")
    if empty:
        raise BadInput(
            f"{rule}: the Unix group {empty[0]} has no member that jobs can run as (root does not "
            "count): add its members first"
        )


def _name(uid: int) -> str:
    if uid == os.geteuid():
        return f"your Unix user (uid {uid})"
    try:
        return f"the Unix user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the Unix user {uid}"
