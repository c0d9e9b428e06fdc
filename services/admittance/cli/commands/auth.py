"""admit auth: init, add, revoke, reload, run-as, expire, list, show, check.

Imports happen when a command runs, so that help and completion are fast.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from admittance.cli.commands.system import PANEL, data_folder
from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import (
    Call,
    NatsOption,
    call_of,
    call_options_without_output,
    run,
    run_forever,
    with_options,
)

ROLES = (
    *("workload-controller", "scheduler", "retry-timer", "variant-controller"),
    *(
        "provisioning-check",
        "built-in-provider",
        "server-watch",
        "backup",
        "runner",
        "check",
        "provider",
    ),
    *("telemetry", "owner", "user", "approver", "viewer", "admin"),
)


def _roles(incomplete: str) -> list[str]:
    return [role for role in ROLES if role.startswith(incomplete)]


FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="The folder of users. Default: $ADMIT_AUTH_DIR, that of --creds or of the current "
        "context's server, or auth in the data folder",
    ),
]
UserName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the user.")]


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


@with_options(call_options_without_output)
def init(
    call: Call,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    for_compose: Annotated[
        bool,
        typer.Option(
            "--compose",
            help="For compose.yaml: with a user and a credentials file for each container. "
            "A second call makes what is missing.",
        ),
    ] = False,
    jwt: Annotated[
        bool,
        typer.Option(
            "--jwt", help="Users get JWTs that servers check without knowing each user: for many."
        ),
    ] = False,
) -> None:
    """Make a folder of users, and the file that nats-server includes.

    The servers at --nats are asked to read the file again when users change.
    """
    if jwt and for_compose:
        raise BadInput("--jwt and --compose are both given: compose.yaml uses NKeys")
    from admittance.cli.auth import auth, compose

    if for_compose:
        run(compose.init(call, folder))
    else:
        auth.init(call, folder, jwt=jwt)


def add_options(
    ctx: typer.Context,
    nats: NatsOption = None,
) -> Call:
    """Adds the options of `admit auth add` to a command. Here -o names a file, not an output
    format."""
    return call_of(ctx, nats)


@with_options(add_options)
def add(
    call: Call,
    role: Annotated[
        str, typer.Argument(metavar="ROLE", help=", ".join(ROLES), autocompletion=_roles)
    ],
    name: UserName,
    file: Annotated[
        Path | None,
        typer.Option(
            "-o",
            metavar="FILE",
            help="Write the credentials to this new file. Default: NAME.creds in this folder",
        ),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="A namespace; repeatable."),
    ] = None,
    controller: Annotated[
        str, typer.Option(metavar="NAME", help="The controllerName of a check.")
    ] = "",
    provisioning_class: Annotated[
        str, typer.Option("--class", metavar="NAME", help="The class of a provider.")
    ] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="SPAN", help="The user expires after 90s, 1h30m, 30d, …")
    ] = None,
    any_workload: Annotated[
        bool,
        typer.Option(
            "--any-workload",
            help="A user may change every workload of its namespaces. Without it: only those that "
            "it submitted, with the role owner.",
        ),
    ] = False,
    unix: Annotated[
        str,
        typer.Option(metavar="UNIX_USER", help="The Unix user that runs the user's jobs."),
    ] = "",
    folder: FolderOption = None,
) -> None:
    """Add a user with a role, and write its credentials file."""
    from admittance.access.users import user_name_problem
    from admittance.cli.auth import auth
    from admittance.cli.support.times import seconds_of

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
    span = None if expires is None else seconds_of(expires, "--expires")
    wanted = auth.NewUser(
        role, name, namespace or (), controller, provisioning_class, span, file, unix
    )
    run(auth.add(call, _folder(call, folder), wanted))


@with_options(call_options_without_output)
def revoke(call: Call, name: UserName, folder: FolderOption = None) -> None:
    """Remove a user; the servers close its connections within seconds."""
    from admittance.cli.auth import auth

    run(auth.revoke(call, _folder(call, folder), name))


@with_options(call_options_without_output)
def reload(call: Call, folder: FolderOption = None) -> None:
    """Write auth.conf with the roles of this version, and make the servers read it.

    For a nats-server of your own, before the services of a new version start.
    """
    from admittance.cli.auth import auth

    run(auth.write_again(call, _folder(call, folder)))


@with_options(call_options_without_output)
def run_as(
    call: Call,
    rule: Annotated[
        str | None,
        typer.Argument(
            metavar="RULE", help="As for --run-as: user:ada=ada, namespace:team-a=jobs, @team, …"
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the rule.")] = False,
    folder: FolderOption = None,
) -> None:
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


@with_options(call_options_without_output)
def expire(call: Call, folder: FolderOption = None) -> None:
    """Remove users when they expire, until Ctrl-C.

    For a nats-server of your own: `admit up` removes expired users by itself.
    """
    from admittance.cli.auth import expiry

    run_forever(expiry.expire(call, _folder(call, folder)))


@with_options()
def list_(call: Call, folder: FolderOption = None) -> None:
    """List the users."""
    from admittance.cli.auth import auth

    auth.list_users(call, _folder(call, folder))


@with_options()
def show(call: Call, name: UserName, folder: FolderOption = None) -> None:
    """Show a user and what it may do, in words and subjects."""
    from admittance.cli.auth import auth

    auth.show(call, _folder(call, folder), name)


@with_options(call_options_without_output)
def check(
    call: Call,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="A subject of the server.")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The name of the user.")],
    subscribe: Annotated[
        bool, typer.Option("--subscribe", help="To subscribe instead of to publish.")
    ] = False,
    folder: FolderOption = None,
) -> None:
    """Say whether a user may publish a subject, and by which rule; status 1 if not."""
    from admittance.cli.auth import auth

    if status := auth.check(_folder(call, folder), subject, name, subscribe=subscribe):
        raise typer.Exit(status)


def register(app: typer.Typer) -> None:
    """Adds the group `admit auth` to ``app``."""
    group = typer.Typer(
        name="auth",
        help="Users of a locked server: roles, credentials, permissions.",
        no_args_is_help=True,
        rich_help_panel=PANEL,
    )
    for name, command in (
        ("init", init),
        ("add", add),
        ("revoke", revoke),
        ("reload", reload),
        ("run-as", run_as),
        ("expire", expire),
        ("list", list_),
        ("show", show),
        ("check", check),
    ):
        group.command(name)(command)
    app.add_typer(group, name="auth")
