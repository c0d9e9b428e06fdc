"""Commands for the system: up, serve, doctor, bench, replay, check-test, provider-test, token,
completion."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from admittance.cli.commands.arguments import ServiceName
from admittance.cli.commands.runner_options import (
    AllowHostPathOption,
    AllowPrivilegeEscalationOption,
    EnvFilesOption,
    FreeSpaceOption,
    JobFolderOption,
    JobImageOption,
    JobNamespaceOption,
    NamespaceOutputLimitOption,
    OutputLimitOption,
    PodLimitOption,
    ProcessLimitOption,
    RunAsFileOption,
    RunAsOption,
    ScratchLimitOption,
    limit_texts,
)
from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import (
    Call,
    NamespaceOption,
    NatsOption,
    OutputOption,
    UrlFrom,
    call_of,
    raise_on_interrupt,
    run,
    run_forever,
    with_options,
)
from admittance.runtime.nats.connection_options import NO_OPTIONS

if TYPE_CHECKING:
    from admittance.cli.conformance import TestOptions
    from admittance.cli.up.up import Options


PANEL = "The system"

LAST_SEQUENCE = 2**63 - 1
"""The largest sequence in a stream that nats-server accepts."""


def service_options(
    ctx: typer.Context,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="State and job output. Default: $ADMIT_DATA_DIR, or ~/.local/share/admittance",
        ),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How the runner starts jobs: local (processes) or docker.",
            envvar="ADMIT_EXECUTOR",
        ),
    ] = "local",
    detach_jobs: Annotated[
        bool,
        typer.Option(
            "--detach-jobs",
            help="Leave jobs running when this ends; the next start on the same data folder takes "
            "them over. If nothing starts there, they stop after $ADMIT_CLAIM_SECONDS (300).",
            envvar="ADMIT_DETACH_JOBS",
        ),
    ] = False,
    run_as: RunAsOption = None,
    run_as_file: RunAsFileOption = None,
    job_namespace: JobNamespaceOption = None,
    job_image: JobImageOption = None,
    job_folder: JobFolderOption = None,
    allow_host_path: AllowHostPathOption = None,
    env_files: EnvFilesOption = None,
    pod_limit: PodLimitOption = None,
    process_limit: ProcessLimitOption = None,
    output_limit: OutputLimitOption = None,
    namespace_output_limit: NamespaceOutputLimitOption = None,
    scratch_limit: ScratchLimitOption = None,
    free_space: FreeSpaceOption = None,
    allow_privilege_escalation: AllowPrivilegeEscalationOption = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Kueue's Configuration file: fair sharing, resources, gates. "
            "Default: $ADMIT_CONFIG",
        ),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            "--admin",
            metavar="HOST:PORT",
            help="Address of /livez, /readyz and /metrics. Default: $ADMIT_ADMIN, or none",
        ),
    ] = None,
    metrics_prefix: Annotated[
        str | None,
        typer.Option(
            "--metrics-prefix",
            metavar="PREFIX",
            help="What names of metrics begin with; kueue_ for dashboards of Kueue. "
            "Default: $ADMIT_METRICS_PREFIX, or admittance_",
        ),
    ] = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> "tuple[Call, Options]":
    """The options of `up` and `serve`."""
    from admittance.cli.up.up import Options
    from admittance.runner.jobs.rule_options import RuleTexts

    return call_of(ctx, nats, namespace), Options(
        data_dir=data_folder(data_dir),
        folder_chosen=data_dir is not None,
        executor=executor,
        detach_jobs=detach_jobs,
        config=config,
        admin=admin,
        metrics_prefix=metrics_prefix,
        rules=RuleTexts(
            run_as=tuple(run_as or ()),
            file=tuple(run_as_file or ()),
            namespaces=tuple(job_namespace or ()),
            images=tuple(job_image or ()),
            folders=tuple(job_folder or ()),
            host_paths=tuple(allow_host_path or ()),
            env_files=(env_files,) if env_files else (),
            limits=limit_texts(
                allow_privilege_escalation,
                pods=pod_limit,
                processes=process_limit,
                output=output_limit,
                namespace_output=namespace_output_limit,
                scratch=scratch_limit,
                free_space=free_space,
            ),
        ),
    )


@with_options(service_options)
def up(
    given: "tuple[Call, Options]",
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P", help="0: a free one. Default: 4222, or a free one", min=0, max=65_535
        ),
    ] = None,
    no_runner: Annotated[
        bool, typer.Option("--no-runner", help="Start nothing that was admitted.")
    ] = False,
    sync_always: Annotated[
        bool,
        typer.Option(
            "--sync-always", help="Every write reaches the disk before it counts; slower."
        ),
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Demand no credentials: every program of this machine may do everything.",
        ),
    ] = False,
    use: Annotated[
        bool,
        typer.Option(
            "--use",
            help="Make this server the one that commands use, although another one runs.",
        ),
    ] = False,
) -> None:
    """Run everything in the foreground: an embedded NATS server and all services.

    Prints `ready nats://…` once everything serves. The server demands credentials: your commands
    find your credentials by a context. Ctrl-C ends the services cleanly and stops the jobs; after
    the next start the jobs run again and keep their earlier output. With --detach-jobs the jobs
    keep running. With --nats no server is embedded: the services use your server.
    """
    from admittance.cli.up import up

    call, options = given
    if call.url_from is UrlFrom.OPTION and port is not None:
        raise BadInput("--port is for the embedded server; it does not go with --nats")
    if call.url_from is UrlFrom.OPTION and use:
        raise BadInput("--use is for the embedded server; it does not go with --nats")
    options = options._replace(
        port=port, runner=not no_runner, sync_always=sync_always, insecure=insecure, use=use
    )
    run_forever(up.up(call, options))


@with_options(service_options)
def serve(given: "tuple[Call, Options]", service: ServiceName) -> None:
    """Run one service against a running NATS server."""
    from admittance.cli.up import up

    call, options = given
    run_forever(up.serve(call, service, options))


def data_folder(typed: Path | None) -> Path:
    """The data folder: the typed folder, else the default folder."""
    if typed is not None:
        return typed
    chosen = os.environ.get("ADMIT_DATA_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "admittance"


@with_options()
def doctor(
    call: Call,
    monitor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="HTTP monitoring port of a nats-server, such as http://127.0.0.1:8222; "
            "repeatable.",
        ),
    ] = None,
    admin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Admin port that services should serve; repeatable. Default: $ADMIT_ADMIN.",
        ),
    ] = None,
) -> None:
    """Check the server, streams, consumers and services; status 1 if something is wrong."""
    from admittance.cli.doctor import doctor

    admins = admin or [one for one in [os.environ.get("ADMIT_ADMIN")] if one]
    run(doctor.doctor(call, doctor.Options(monitors=monitor or (), admin_ports=admins)))


@with_options()
def bench(
    call: Call,
    generator: Annotated[
        Path, typer.Argument(metavar="GENERATOR.yaml", help="Kueue's generator file.")
    ],
    json_path: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the figures to this file."),
    ] = None,
    scale: Annotated[
        float, typer.Option(metavar="F", help="Fraction of the workloads to submit.", min=0.0)
    ] = 1.0,
) -> None:
    """Measure a system with a generator file: an embedded system unless --nats is given."""
    from admittance.bench.run import run as run_benchmark
    from admittance.cli.support.options import Output

    if not scale > 0:
        raise BadInput(f"--scale {scale:g} leaves nothing to measure")
    if not generator.is_file():
        raise BadInput(f"no such file: {generator}")
    url = call.url if call.url_from is UrlFrom.OPTION else None
    raise_on_interrupt()
    status = run_benchmark(
        generator,
        json_path=json_path,
        scale=scale,
        nats_url=url,
        access=call.connection if url else NO_OPTIONS,
        as_json=call.output is Output.JSON,
    )
    if status:
        raise typer.Exit(status)


@with_options()
def replay(
    call: Call,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCENARIO.json[.gz]...", help="Differential scenarios."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write each answer to DIR/NAME.json instead of printing it."
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Compare with the answers in the files; status 1 if any differs."
        ),
    ] = False,
    from_log: Annotated[
        int | None,
        typer.Option(
            metavar="SEQ",
            help="Repeat the decision at this sequence of the log.",
            min=1,
            max=LAST_SEQUENCE,
        ),
    ] = None,
) -> None:
    """Repeat the decisions of scenario files, or one decision from the log.

    Scenarios need no NATS server and print one line of JSON each. Broken files are skipped, and the
    exit status is then 2. With --from-log SEQ the state before that decision is rebuilt; the status
    is 1 if the repeated decision differs.
    """
    if from_log is not None:
        if files or out is not None or check:
            raise BadInput("--from-log repeats one decision; leave out the scenarios")
        from admittance.cli.replay import decision

        run(decision.replay_decision(call, from_log))
        return
    from admittance.cli.replay import replay

    if not files:
        raise BadInput("nothing to replay: name scenario files, or use --from-log SEQ")
    raise_on_interrupt()
    status = replay.replay(files, out=out, check=check)
    if status:
        raise typer.Exit(status)


def token(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names to escape.")],
) -> None:
    """Print the escaped form of a name, as used in subjects, bucket keys and durables."""
    from admittance.events import names as object_names

    for name in names:
        if not name:
            raise BadInput("an empty name has no token")
        typer.echo(object_names.token(name))


def completion(
    shell: Annotated[
        str | None, typer.Argument(metavar="[SHELL]", help="bash, zsh, fish or powershell.")
    ] = None,
) -> None:
    """Print the shell's completion script: `source <(admit completion bash)`."""
    from typer._completion_shared import get_completion_script

    known = ("bash", "zsh", "fish", "powershell", "pwsh")
    chosen = shell or Path(os.environ.get("SHELL", "bash")).name
    if chosen not in known:
        raise BadInput(f'no completion for the shell "{chosen}"; there are {", ".join(known)}')
    typer.echo(
        get_completion_script(prog_name="admit", complete_var="_ADMIT_COMPLETE", shell=chosen)
    )


def register(app: typer.Typer) -> None:
    """Adds the commands of this module to app."""
    for command in (up, serve, doctor, bench, replay, check_test, provider_test, token, completion):
        app.command(rich_help_panel=PANEL)(command)


def test_options(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- CMD...",
            help="Start it with this command and ADMIT_NATS_URL set. Default: it already runs.",
            show_default=False,
        ),
    ] = None,
    parameters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML or JSON: the parameters, or their manifest."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that one answer may take.", min=0.1)
    ] = 10.0,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds until its first answer. Default: --timeout; 60 with --embedded.",
            min=0.1,
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="CASE", help="Run only this case; repeatable."),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Start a NATS server for the test.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P", help="Port of that server. Default: a free one", min=0, max=65_535
        ),
    ] = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> "TestOptions":
    """Declares the options that `check-test` and `provider-test` share; returns their values."""
    from admittance.cli.conformance import TestOptions

    call = call_of(ctx, nats, namespace, output)
    if port is not None and not embedded:
        raise BadInput("--port is for the server of --embedded")
    if embedded and call.url_from is UrlFrom.OPTION:
        raise BadInput("--embedded starts a server; it does not go with --nats")
    own = (port or 0) if embedded else None
    return TestOptions(call, command or (), parameters, timeout, wait, case or (), own)


@with_options(test_options)
def check_test(
    options: "TestOptions",
    controller: Annotated[
        str, typer.Argument(metavar="CONTROLLER", help="The controllerName of its AdmissionChecks.")
    ],
    check: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the AdmissionCheck in the requests.")
    ] = "check-test",
) -> None:
    """Test a check controller in any language against the protocol; status 1 if a case fails.

    The workloads of the test requests are in a namespace of their own, so the test does not disturb
    a live deployment. The controller may book real capacity for the test requests: use parameters
    made for tests.
    """
    from admittance.cli import conformance

    run(conformance.check_test(options, controller, check))


@with_options(test_options)
def provider_test(
    options: "TestOptions",
    provisioning_class: Annotated[
        str,
        typer.Argument(metavar="CLASS", help="The provisioning class that it serves."),
    ],
    wrong: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Like --parameters, but the provider must refuse them."),
    ] = None,
    pods: Annotated[int, typer.Option(metavar="N", help="Pods of each request.", min=1)] = 1,
    request: Annotated[
        list[str] | None,
        typer.Option(metavar="RESOURCE=Q", help="Resources of each pod. Default: cpu=1"),
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Node label of each request."),
    ] = None,
    room: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="It has capacity for exactly N such requests: tests that it frees capacity.",
            min=0,
            show_default=False,
        ),
    ] = 0,
) -> None:
    """Test a capacity provider in any language against the protocol; status 1 if a case fails.

    The requests are for workloads in a namespace of their own, so a live deployment is not
    disturbed. The provider books real capacity; all requests are cancelled at the end.
    """
    from admittance.cli import conformance

    run(
        conformance.provider_test(
            options,
            provisioning_class,
            wrong=wrong,
            pods=pods,
            requests=request or (),
            node_selector=node_selector or (),
            room=room,
        )
    )
