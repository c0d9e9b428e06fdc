"""submit, wait, explain, events, logs: submit workloads and follow them."""

from typing import Annotated

import typer

from admittance.cli.commands.arguments import (
    AllNamespaces,
    Follow,
    PhaseOption,
    QueueOption,
    Target,
    Timeout,
    UsageCall,
    usage_options,
    workload_options,
    workload_options_with_output,
)
from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import Call, key_values, run, with_options
from admittance.cli.support.times import seconds_of, whole_seconds

PANEL = "Workloads"


@with_options()
def submit(
    call: Call,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- CMD...", help="Command of each pod.", show_default=False),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE|DIR|-",
            help="Manifests of Workloads or Jobs instead of a command.",
        ),
    ] = None,
    queue: QueueOption = None,
    name: Annotated[str | None, typer.Option(metavar="N", help="Name. Default: generated.")] = None,
    cpu: Annotated[str | None, typer.Option(metavar="QUANTITY", help="Per pod. Default: 1")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="QUANTITY", help="Per pod. Default: 1Gi")
    ] = None,
    gpu: Annotated[str | None, typer.Option(metavar="QUANTITY", help="Per pod. Default: 0")] = None,
    count: Annotated[int, typer.Option(metavar="PODS", help="Number of pods.", min=1)] = 1,
    priority: Annotated[
        int | None, typer.Option(metavar="P", help="Priority; higher goes first. Default: 0")
    ] = None,
    priority_class: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A WorkloadPriorityClass instead of a priority."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="KEY=VALUE", help="Environment variable; repeatable."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Label; repeatable."),
    ] = None,
    flavor: Annotated[
        list[str] | None,
        typer.Option(
            "--flavor", metavar="FLAVOR", help="Allow only this ResourceFlavor; repeatable."
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Container image, for runners with a container engine."),
    ] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Maximum total run time.")
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until it has finished; the exit status is that of the job."
        ),
    ] = False,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway", help="Submit even if the queue does not exist or can never hold it."
        ),
    ] = False,
    timeout: Timeout = None,
) -> None:
    """Submit a workload: a command after --, or manifests with -f."""
    from admittance.api.reading.from_job import GPU
    from admittance.cli import submit
    from admittance.client.requests.submissions import CommandOptions, check_container, check_whole

    wish = None
    described = (queue, name, cpu, memory, gpu, priority, priority_class, env, label, flavor, image)
    if file:
        if command:
            raise BadInput("either a command after --, or -f; not both")
        others = described[1:]
        described_here = any(word is not None for word in others) or anyway
        if described_here or count != 1 or max_time is not None:
            raise BadInput(
                "with -f the whole workload comes from the manifest; leave out the other options, "
                "except -q"
            )
    elif not command:
        raise BadInput("nothing to submit: name a command after --, or a file with -f")
    else:
        asked = {"cpu": cpu, "memory": memory, GPU: gpu}
        for resource, option in (("cpu", "--cpu"), ("memory", "--memory"), (GPU, "--gpu")):
            check_whole(resource, asked[resource], option)
        variables = key_values(env, "--env")
        check_container(image or "", variables, spelled=("--image", "--env"))
        wish = CommandOptions(
            command=command,
            queue=queue,
            name=name,
            requests={resource: one for resource, one in asked.items() if one is not None},
            count=count,
            priority=priority,
            priority_class=priority_class,
            image=image or "",
            env=variables,
            labels=key_values(label, "--label"),
            flavors=flavor or (),
            max_seconds=None if max_time is None else whole_seconds(max_time, "--max-time"),
        )
    if timeout is not None and not wait:
        raise BadInput("--timeout goes with --wait")
    limit = None if timeout is None else seconds_of(timeout, "--timeout")
    chosen = queue if file else None
    run(
        submit.submit(call, wish, file or [], wait=wait, timeout=limit, anyway=anyway, queue=chosen)
    )


@with_options(workload_options)
def wait(on: Target, phase: PhaseOption, timeout: Timeout = None) -> None:
    """Wait until a workload is in a phase, or has Succeeded or Failed.

    A later phase counts too: Running for Admitted, both for QuotaReserved, and a workload that ran
    to its end for all three. The status is 1 if the phase can no longer be reached, and for
    Finished if the job failed.
    """
    from admittance.cli import wait

    limit = None if timeout is None else seconds_of(timeout, "--timeout")
    run(wait.wait(on.call, on.name, phase, limit))


@with_options(workload_options_with_output)
def explain(on: Target) -> None:
    """Explain why a workload waits, for each flavor and check, and what would unblock it."""
    from admittance.cli import explain

    run(explain.explain(on.call, on.name))


@with_options()
def events(
    call: Call,
    workload: Annotated[
        str | None, typer.Option("--workload", metavar="NAME", help="Only events of this workload.")
    ] = None,
    follow: Follow = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only events since: 10m, 2h, or 2026-02-07T00:10:00Z."),
    ] = None,
    all_namespaces: AllNamespaces = False,
) -> None:
    """Show events from the log, oldest first.

    -o wide adds the sequence on the log; -o json prints one line of JSON per event.
    """
    from admittance.cli import events
    from admittance.cli.support.times import moment_of
    from admittance.runtime import clock

    moment = None if since is None else moment_of(since, "--since", clock.now())
    run(
        events.events(
            call,
            workload=workload,
            follow=follow,
            since=moment,
            all_namespaces=all_namespaces,
        )
    )


@with_options(workload_options_with_output)
def trace(on: Target) -> None:
    """Show a workload's time in the queue, checks, admissions, runs and evictions as a tree.

    The tree is made from the log: the spans are those that the telemetry service exports. -o wide
    cuts nothing and adds the ids of spans; -o json prints the spans.
    """
    from admittance.cli.trace import trace

    run(trace.trace(on.call, on.name))


@with_options(workload_options)
def logs(
    on: Target,
    pod: Annotated[
        int | None, typer.Option(metavar="I", help="Only the pod with this index.", min=0)
    ] = None,
    follow: Follow = False,
    tail: Annotated[
        int | None,
        typer.Option(metavar="N", help="Only the last N lines of each pod.", min=0),
    ] = None,
    previous: Annotated[
        int,
        typer.Option(
            "--previous",
            "-p",
            count=True,
            help="The run before the newest one; -pp: the one before that.",
            show_default=False,
        ),
    ] = 0,
) -> None:
    """Show the output of a workload's pods.

    Shows the newest run, with --previous an earlier run, which had another admission. Runners
    delete the output of old runs.
    """
    from admittance.cli import logs

    run(logs.logs(on.call, on.name, pod, follow=follow, tail=tail, previous=previous))


@with_options(usage_options)
def usage(
    on: UsageCall,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WORD,...",
            help="One sum for each: cluster-queue, namespace, queue, user, flavor.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DAY",
            help="First day: 2026-11-26, or 7d. Default: the first of the month of the last day.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="Last day, included: 2026-11-26, or 7d. Default: today."),
    ] = None,
    all_namespaces: AllNamespaces = False,
) -> None:
    """Show how much quota workloads held, for how long, and what came of them.

    Days are in UTC and counted whole. Runs, and the time that they waited, count on the day on
    which the run ended; hours count on the days on which the quota was held.
    """
    from admittance.cli.usage.usage import show_usage

    words = tuple(word.strip() for word in by.split(",")) if by is not None else ()
    run(
        show_usage(
            on.call,
            on.shape,
            by=words,
            since=since,
            until=until,
            all_namespaces=all_namespaces,
        )
    )


def register(app: typer.Typer) -> None:
    """Adds the commands of this module to app."""
    for command in (submit, wait, explain, events, trace, logs, usage):
        app.command(rich_help_panel=PANEL)(command)
