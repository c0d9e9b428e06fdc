"""``admit auth``: users of a locked server."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from admittance.cli.commands.arguments import typed_call
from admittance.cli.commands.declare import (
    ALL,
    PLACE,
    SERVER,
    argument,
    command,
    group,
    option,
)
from admittance.cli.support import output, times
from admittance.cli.support.options import Call, Output, data_folder
from admittance.client.errors import BadInput

ANY_KEY: Final = "U" + "A" * 55
"""Stands for the key of a new user until the folder of users makes one."""
OLD_JWTS: Final = (
    "the JWTs of users keep the permissions that their roles had when the JWTs were made: for an "
    "upgrade that changes roles, run `admit auth renew` before the new version starts"
)


def roles(_ctx: click.Context | None = None, _start: str = "") -> Sequence[str]:
    from admittance.access.roles import ROLES

    return list(ROLES)


folder_option = option(
    "--dir DIR",
    "The folder of users. Default: $ADMIT_AUTH_DIR, that of --creds or of the current "
    "context's server, or auth in the data folder",
    name="folder",
    kind=Path,
)
user_name = argument("NAME", "The name of the user.")


def _users(ctx: click.Context, _start: str) -> Sequence[str]:
    """The names of the users in the folder, for completion."""
    from admittance.runtime.errors import AdmittanceError
    from admittance.runtime.nats_server.auth_store import AuthStore

    try:
        users = AuthStore(_folder(typed_call(ctx), ctx.params.get("folder"))).users
    except (BadInput, AdmittanceError):
        return []
    given = ctx.params.get("names") or ()
    return [user.name for user in users if user.name not in given]


known_user = argument("NAME", "The name of the user.", complete=_users)


def _folder(call: Call, typed: Path | None) -> Path:
    if typed is not None:
        return typed
    chosen = os.environ.get("ADMIT_AUTH_DIR")
    if chosen:
        return Path(chosen)
    creds = call.given.get("creds") or call.environ.get("ADMIT_NATS_CREDS")
    return _folder_of_creds(creds) or _folder_of_context() or data_folder(None) / "auth"


def _folder_of_creds(creds: object) -> Path | None:
    """The folder of users that has the credentials file; None if there is no such folder."""
    folder = Path(str(creds)).parent if creds else None
    with suppress(OSError):
        return folder if folder is not None and (folder / "users.json").exists() else None
    return None


def _folder_of_context() -> Path | None:
    """The folder of users that has the credentials file of the current context, as that of `admit
    up` does; None if there is no such folder."""
    from admittance.runtime.nats.contexts import BadContext, current

    with suppress(BadContext, OSError):
        used = current(os.environ)
        return _folder_of_creds(used.creds) if used is not None else None
    return None


@command(PLACE)
@argument("DIR", "A new folder.", name="folder", kind=Path)
@option(
    "--compose",
    "For compose.yaml: with a user and a credentials file for each container. "
    "A second call makes what is missing.",
)
@option("--jwt", "Users get JWTs that servers check without knowing each user: for many.")
async def init(call: Call, folder: Path, compose: bool, jwt: bool) -> None:
    """Make a folder of users, and the file that nats-server includes.

    The servers at --nats are asked to read the file again when users change.
    """
    from admittance.cli.auth.compose import init
    from admittance.runtime.nats_server.auth_store import CONFIG, AuthStore

    if jwt and compose:
        raise BadInput("--jwt and --compose are both given: compose.yaml uses NKeys")
    if compose:
        await init(call, folder)
        return
    AuthStore(folder).create(call.url, jwt=jwt)
    output.say(f"created {folder}")
    output.note(
        f"nats-server: put its configuration into {folder}, with the line: include ./{CONFIG}; "
        f"users: admit auth add ROLE NAME --dir {shlex.quote(str(folder))} -o FILE"
    )


@command(SERVER, own_output=True)
@argument("ROLE", lambda: ", ".join(roles()), complete=roles)
@user_name
@option(
    "-o FILE",
    "Write the credentials to this new file. Default: NAME.creds in this folder",
    name="file",
    kind=Path,
)
@option("--namespace -n NAME", "A namespace; repeatable.", many=True)
@option("--controller NAME", "The controllerName of a check.", default="")
@option("--class NAME", "The class of a provider.", name="provisioning_class", default="")
@option("--expires SPAN", "The user expires after 90s, 1h30m, 30d, …")
@option(
    "--any-workload",
    "A user may change every workload of its namespaces. Without it: only those that "
    "it submitted, with the role owner.",
)
@option("--unix UNIX_USER", "The Unix user that runs the user's jobs.", default="")
@folder_option
async def add(
    call: Call,
    role: str,
    name: str,
    file: Path | None,
    namespace: Sequence[str],
    controller: str,
    provisioning_class: str,
    expires: str | None,
    any_workload: bool,
    unix: str,
    folder: Path | None,
) -> None:
    """Add a user with a role, and write its credentials file."""
    from admittance.access.roles import problems
    from admittance.access.users import User, user_name_problem
    from admittance.cli.auth import auth, job_users
    from admittance.runtime import clock
    from admittance.runtime.nats_server.auth_store import AuthStore

    if problem := user_name_problem(name):
        raise BadInput(problem)
    if file is None:
        file = Path(f"{name}.creds")
    if not str(file) or file.is_dir():
        raise BadInput(f"-o {file}: name a new file")
    if any_workload and role != "user":
        raise BadInput("--any-workload is for the role user")
    if role == "user" and not any_workload:
        role = "owner"
    span = None if expires is None else times.seconds_of(expires, "--expires")
    now = clock.now()
    user = User(
        name=name,
        role=role,
        key=ANY_KEY,
        namespaces=tuple(dict.fromkeys(namespace)),
        controller=controller,
        class_name=provisioning_class,
        created=now,
        expires=auth.expiry_of(now, span),
    )
    if wrong := problems(user):
        raise BadInput(*wrong)
    store = AuthStore(_folder(call, folder))
    if unix:
        job_users.refuse_wrong(store, user, unix)
    store.add(user, file)
    output.say(f"added {user.name} ({user.role}): credentials in {file}")
    job_users.tell(store, user, unix)
    await auth.tell_servers(call, store, added=True)


@command(PLACE)
@known_user
@option("--expires SPAN", "The token expires after 90s, 1h30m, 30d, …", default="12h")
@folder_option
async def token(call: Call, name: str, expires: str, folder: Path | None) -> None:
    """Print a token that signs a person in to the web page as a user, until it expires.

    The token is a second key of the user, with the same rights. `admit auth revoke` ends it, too.
    """
    from admittance.cli.auth import auth
    from admittance.runtime import clock
    from admittance.runtime.nats.login_tokens import token_of_credentials
    from admittance.runtime.nats_server.auth_store import AuthStore

    now = clock.now()
    ends = auth.expiry_of(now, times.seconds_of(expires, "--expires"))
    assert ends is not None
    store = AuthStore(_folder(call, folder))
    text = store.add_key(name, now, ends)
    await auth.tell_servers(call, store, added=True)
    output.say(token_of_credentials(text))


@command(PLACE)
@known_user
@option("--older", "Only its JWTs before the newest; the user stays.")
@folder_option
async def revoke(call: Call, name: str, older: bool, folder: Path | None) -> None:
    """Remove a user; the servers close its connections within seconds."""
    from admittance.cli.auth import auth, job_users, renewal
    from admittance.runtime.nats_server.auth_store import AuthStore

    if older:
        await renewal.revoke_older(call, _folder(call, folder), name)
        return
    store = AuthStore(_folder(call, folder))
    gone = store.remove(name)
    output.say(f"revoked {gone.name} ({gone.role})")
    job_users.forget(store, gone)
    await auth.tell_servers(call, store)


@command(SERVER, own_output=True)
@argument("[NAME]...", "The users.", name="names", complete=_users)
@option("--all", "All users that have not expired.", name="every")
@option(
    "-o FILE",
    "The credentials file of the user, or a new file for its JWT alone. Default: NAME.creds in "
    "this folder, or NAME.jwt if that is not there",
    name="file",
    kind=Path,
)
@option(
    "--revoke-old", "End the older JWTs of these users; their programs connect with the new ones."
)
@option(
    "--jwt FILE",
    "Put this JWT, which an administrator made, into your credentials file -o.",
    kind=Path,
)
@folder_option
async def renew(
    call: Call,
    names: Sequence[str],
    every: bool,
    file: Path | None,
    revoke_old: bool,
    jwt: Path | None,
    folder: Path | None,
) -> None:
    """Give users JWTs with the permissions that their roles have in this version.

    For a folder of `admit auth init --jwt`, after an upgrade that changed roles. Keys stay, so only
    the JWT in a credentials file changes. Programs read the file when they connect.
    """
    from admittance.cli.auth import renewal

    if jwt is not None:
        if names or every or revoke_old or folder is not None or file is None:
            raise BadInput("--jwt FILE goes with -o FILE alone, your credentials file")
        renewal.put(jwt, file)
        return
    if every == bool(names):
        raise BadInput("name the users to renew, or give --all")
    if file is not None and (every or len(names) > 1):
        raise BadInput("-o FILE is for one user")
    target = _folder(call, folder)
    await renewal.renew(call, target, names, file, every=every, revoke_old=revoke_old)


@command(PLACE)
@folder_option
async def reload(call: Call, folder: Path | None) -> None:
    """Write auth.conf with the roles of this version, and make the servers read it.

    For a nats-server of your own, before the services of a new version start.
    """
    from admittance.cli.auth import auth
    from admittance.runtime.nats_server.auth_store import CONFIG, AuthStore

    store = AuthStore(_folder(call, folder))
    store.rewrite()
    output.say(f"written: {store.folder / CONFIG}")
    if store.has_jwts:
        output.note(OLD_JWTS)
    await auth.tell_servers(call, store)


@command(PLACE)
@argument("[RULE]", "As for --run-as: user:ada=ada, namespace:team-a=jobs, @team, …")
@option("--remove", "Remove the rule.")
@folder_option
def run_as(call: Call, rule: str | None, remove: bool, folder: Path | None) -> None:
    """Store a rule for the Unix user of jobs; without RULE: list the rules.

    The runner of `admit up`, or with --run-as-file DIR/run-as, reads them within seconds.
    """
    from admittance.cli.auth import job_users

    if rule is not None:
        job_users.change(_folder(call, folder), rule, remove=remove)
    elif remove:
        raise BadInput("--remove: name the rule")
    else:
        job_users.show(_folder(call, folder))


@command(PLACE, forever=True)
@folder_option
async def expire(call: Call, folder: Path | None) -> None:
    """Remove users when they expire, until Ctrl-C.

    For a nats-server of your own: `admit up` removes expired users by itself.
    """
    from admittance.cli.auth import expiry

    await expiry.expire(call, _folder(call, folder))


@command(ALL)
@folder_option
def list_(call: Call, folder: Path | None) -> None:
    """List the users."""
    from admittance.cli.auth import auth

    auth.list_users(call, _folder(call, folder))


@command(without=[Output.NAME])
@known_user
@folder_option
def show(call: Call, name: str, folder: Path | None) -> None:
    """Show a user and what it may do, in words and subjects."""
    from admittance.cli.auth import auth

    auth.show(call, _folder(call, folder), name)


@command(PLACE)
@argument("SUBJECT", "A subject of the server.")
@option("--as NAME", "The name of the user.", name="name", required=True, complete=_users)
@option("--subscribe", "To subscribe instead of to publish.")
@folder_option
def check(call: Call, subject: str, name: str, subscribe: bool, folder: Path | None) -> int:
    """Say whether a user may publish a subject, and by which rule; status 1 if not."""
    from admittance.cli.auth import auth

    return auth.check(_folder(call, folder), subject, name, subscribe=subscribe)


auth = group(
    "Users of a locked server: roles, credentials, permissions.",
    *(init, add, token, revoke, renew, reload, run_as, expire, list_, show, check),
)
