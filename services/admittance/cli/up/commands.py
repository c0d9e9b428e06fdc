"""``admit up`` and ``admit serve``: their options, among them which jobs a runner starts, as which
Unix users, and how much the jobs may use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from admittance.cli.commands.declare import PLACE, argument, command, option, stacked
from admittance.cli.support.options import Call, UrlFrom, data_folder
from admittance.client.errors import BadInput

if TYPE_CHECKING:
    from admittance.cli.up.options import Options
    from admittance.runtime.process.service import Service


def _services() -> Sequence[str]:
    from admittance.services import PAGE, SERVICES

    return [*SERVICES, PAGE.name]


def service_named(name: str) -> Service:
    """The service of that name, with hyphens or underscores. Raises BadInput if there is none."""
    from admittance.services import PAGE, SERVICES

    service = SERVICES.get(name.lower().replace("_", "-"))
    if service is None:
        raise BadInput(
            f'there is no service "{name}"; there are {", ".join([*SERVICES, PAGE.name])}'
        )
    return service


service_argument = argument(
    "SERVICE", lambda: ", ".join(_services()), complete=lambda _ctx, _start: _services()
)
job_options = stacked(
    option(
        "--run-as KEY=USER",
        "The Unix user of jobs. KEY: user:NAME (the submitter), namespace:NAME, unknown "
        "or *. USER: a name, UID, UID:GID, or a range LOW-HIGH with one for each namespace. "
        "Or @GROUP: a submitter with the name of a member of the Unix group runs as that "
        "member. Repeatable. Default: $ADMIT_RUN_AS",
        many=True,
    ),
    option(
        "--run-as-file FILE",
        "More rules as for --run-as, one in a line, read again when FILE changes. "
        "Default: $ADMIT_RUN_AS_FILE; of a locked `up`, auth/run-as in its data folder",
        name="file",
        many=True,
    ),
    option(
        "--job-namespace NAME",
        "The runner starts jobs of this namespace only; repeatable. "
        "Default: $ADMIT_JOB_NAMESPACES, or all",
        name="namespaces",
        many=True,
    ),
    option(
        "--job-image PATTERN",
        "Containers may run only images that match PATTERN; repeatable. "
        "Default: $ADMIT_JOB_IMAGES, or all",
        name="images",
        many=True,
    ),
    option(
        "--job-folder DIR",
        "Working folders of local jobs lie in this folder; repeatable. "
        "Default: $ADMIT_JOB_FOLDERS, or everywhere",
        name="folders",
        many=True,
    ),
    option(
        "--shared-folder DIR",
        "This folder is the same on the machines of submitters, whose jobs may start in it; "
        "repeatable. Default: $ADMIT_SHARED_FOLDERS, or none",
        name="shared_folders",
        many=True,
    ),
    option(
        "--checkpoint-folder DIR",
        "Folder of $ADMITTANCE_CHECKPOINT_DIR of jobs, on a common file system the same for all "
        "machines. Default: $ADMIT_CHECKPOINT_FOLDER, or one in the data folder",
    ),
    option(
        "--allow-host-path DIR",
        "Jobs may mount this folder by hostPath; repeatable. "
        "Default: $ADMIT_ALLOW_HOST_PATHS, or none",
        name="host_paths",
        many=True,
    ),
    option(
        "--env-files DIR",
        "Values of ConfigMaps and Secrets: DIR/NAMESPACE/secrets/NAME/KEY and configmaps/…. "
        "Default: $ADMIT_ENV_FILES, or none",
    ),
    option(
        "--pod-limit N",
        "Pods of one namespace that the runner runs at once, each counted once for each "
        "container; 0: any number. "
        "Default: $ADMIT_POD_LIMIT, or 500",
        name="pods",
    ),
    option(
        "--process-limit N",
        "Processes and threads of each other Unix user of --run-as, or of each container; "
        "0: any number. Default: $ADMIT_PROCESS_LIMIT, or 16384",
        name="processes",
    ),
    option(
        "--output-limit SIZE",
        "Output that the runner keeps of one run, the newest; 0: all. "
        "Default: $ADMIT_OUTPUT_LIMIT, or 100Mi",
        name="output",
    ),
    option(
        "--namespace-output-limit SIZE",
        "Output that the runner keeps of all runs of a namespace, the newest; 0: all. "
        "Default: $ADMIT_NAMESPACE_OUTPUT_LIMIT, or 10Gi",
        name="namespace_output",
    ),
    option(
        "--scratch-limit SIZE",
        "Files of one run in its scratch folders and emptyDir volumes; a job with more fails; "
        "0: any number. Default: $ADMIT_SCRATCH_LIMIT, or 50Gi",
        name="scratch",
    ),
    option(
        "--free-space SIZE",
        "No job starts while the disk of the data folder has less free space. "
        "Default: $ADMIT_FREE_SPACE, or 256Mi",
    ),
    option(
        "--cgroup PATH",
        "The control group below which the kernel limits memory, processes and cpu of jobs; none: "
        "no limits of memory and cpu. Default: $ADMIT_CGROUP, or the runner's own group",
    ),
    option(
        "--allow-privilege-escalation/--no-allow-privilege-escalation",
        "Programs such as sudo may give jobs more rights. "
        "Default: $ADMIT_ALLOW_PRIVILEGE_ESCALATION, or no",
        name="escalation",
    ),
)
hook_options = stacked(
    option(
        "--prolog CMD",
        "Runs on the machine as the runner's Unix user before the first pod of each job; if it "
        "fails, the machine is drained and the job runs elsewhere. Default: $ADMIT_PROLOG, or none",
    ),
    option(
        "--epilog CMD",
        "Runs on the machine after the last process of each job; if it fails, the machine is "
        "drained. Default: $ADMIT_EPILOG, or none",
    ),
    option(
        "--prolog-timeout SPAN",
        "Time that the prolog and the epilog may take, each. Default: $ADMIT_PROLOG_TIMEOUT, or 5m",
    ),
)
machine_options = stacked(
    option(
        "--device RESOURCE=IDS",
        "Devices of this machine by index, UUID or file, such as nvidia.com/gpu=0,1; 0x4: four "
        "jobs may share device 0; no IDS: none. Repeatable. Default: $ADMIT_DEVICES, or those "
        "detected",
        name="devices",
        many=True,
    ),
    option(
        "--capacity RESOURCE=N",
        "How much this machine has of a resource, such as cpu=8 or memory=64Gi. Repeatable. "
        "Default: $ADMIT_CAPACITY, or what is detected",
        name="capacity",
        many=True,
    ),
    option(
        "--label KEY=VALUE",
        "A label of this machine, beside kubernetes.io/hostname, arch and os. Repeatable. "
        "Default: $ADMIT_LABELS",
        name="labels",
        many=True,
    ),
    option(
        "--taint KEY=VALUE:EFFECT",
        "A taint of this machine, which jobs must tolerate. Repeatable. Default: $ADMIT_TAINTS",
        name="taints",
        many=True,
    ),
)
service_options = stacked(
    option(
        "--data-dir DIR",
        "State and job output. Default: $ADMIT_DATA_DIR, or ~/.local/share/admittance",
        kind=Path,
    ),
    option(
        "--executor HOW",
        "How the runner starts jobs: local (processes) or docker.",
        default="local",
        variable="ADMIT_EXECUTOR",
    ),
    option(
        "--detach-jobs",
        "Leave jobs running when this ends; the next start on the same data folder takes "
        "them over. If nothing starts there, they stop after $ADMIT_CLAIM_SECONDS (300).",
        variable="ADMIT_DETACH_JOBS",
    ),
    job_options,
    hook_options,
    machine_options,
    option(
        "--config FILE",
        "Kueue's Configuration file: fair sharing, resources, gates. Default: $ADMIT_CONFIG",
        kind=Path,
    ),
    option(
        "--admin HOST:PORT",
        "Address of /livez, /readyz and /metrics. Default: $ADMIT_ADMIN, or none",
    ),
    option(
        "--metrics-prefix PREFIX",
        "What names of metrics begin with; kueue_ for dashboards of Kueue. "
        "Default: $ADMIT_METRICS_PREFIX, or admittance_",
    ),
)


web_options = stacked(
    option(
        "--web HOST:PORT",
        "Address of the web page. Default: $ADMIT_WEB, or 127.0.0.1:4280, or a free port of `up`",
        name="web",
        variable="ADMIT_WEB",
    ),
    option(
        "--web-url URL",
        "The web page as browsers reach it, such as https://admit.example.org behind a server "
        "with TLS. Default: $ADMIT_WEB_URL, or http:// and its address",
        variable="ADMIT_WEB_URL",
    ),
)


people_options = stacked(
    option(
        "--trust-header NAME",
        "Header in which a proxy names the person that it has signed in. Of the web page only",
    ),
    option(
        "--people DIR",
        "Folder with a credentials file NAME.creds for each person of --trust-header",
        kind=Path,
    ),
    option(
        "--proxy IP",
        "Address of the proxy of --trust-header; repeatable. Default: this machine",
        many=True,
    ),
)


def _options(
    *,
    data_dir: Path | None,
    env_files: str | None,
    checkpoint_folder: str | None,
    escalation: bool | None,
    **given: Any,
) -> Options:
    """The options of `up` and `serve`. The other options of jobs have the names of the fields of
    `RuleTexts`, `LimitTexts` and `HookTexts`, those of machines the names of `MachineTexts`."""
    from admittance.cli.up.options import Options
    from admittance.job_rules.hooks import HookTexts
    from admittance.job_rules.limits import LimitTexts
    from admittance.job_rules.machine_options import MachineTexts
    from admittance.job_rules.options import RuleTexts

    limits = {name: given.pop(name) or "" for name in LimitTexts.__struct_fields__ if name in given}
    hooks = {name: given.pop(name) or "" for name in HookTexts.__struct_fields__ if name in given}
    rules = {name: given.pop(name) for name in RuleTexts._fields if name in given}
    machine = {name: tuple(given.pop(name)) for name in MachineTexts._fields if name in given}
    return Options(
        data_dir=data_folder(data_dir),
        folder_chosen=data_dir is not None,
        rules=RuleTexts(
            **rules,
            env_files=(env_files,) if env_files else (),
            checkpoint_folder=(checkpoint_folder,) if checkpoint_folder else (),
            limits=LimitTexts(
                **limits, privilege_escalation={None: "", True: "1", False: "0"}[escalation]
            ),
            hooks=HookTexts(**hooks),
        ),
        machine=MachineTexts(**machine),
        **given,
    )


@command(PLACE, forever=True)
@option("--port P", "0: a free one. Default: 4222, or a free one", kind=int, least=0, most=65_535)
@option("--no-runner", "Start nothing that was admitted.")
@option("--sync-always", "Every write reaches the disk before it counts; slower.")
@option("--insecure", "Demand no credentials: every program of this machine may do everything.")
@option("--use", "Make this server the one that commands use, although another one runs.")
@option(
    "--processes",
    "How many processes run the services. With 2 the workload-controller has one of its own, which "
    "is faster and takes 50 MiB more. auto: 2 where there are two processors.",
    choices=("1", "2", "auto"),
    name="service_processes",
    default="auto",
    variable="ADMIT_PROCESSES",
)
@option("--no-web", "Serve no web page.", variable="ADMIT_NO_WEB")
@web_options
@service_options
async def up(
    call: Call,
    port: int | None,
    no_runner: bool,
    sync_always: bool,
    insecure: bool,
    use: bool,
    **given: Any,
) -> int:
    """Run everything in the foreground: an embedded NATS server and all services.

    Prints `web http://…`, the link of the web page, and `ready nats://…` once everything serves.
    The server demands credentials: your commands find your credentials by a context. Ctrl-C ends
    the services cleanly and stops the jobs; after the next start the jobs run again and keep their
    earlier output. With --detach-jobs the jobs keep running. With --nats no server is embedded: the
    services use your server.
    """
    from admittance.cli.up import up

    if call.url_from is UrlFrom.OPTION and port is not None:
        raise BadInput("--port is for the embedded server; it does not go with --nats")
    if call.url_from is UrlFrom.OPTION and use:
        raise BadInput("--use is for the embedded server; it does not go with --nats")
    options = _options(
        port=port,
        runner=not no_runner,
        sync_always=sync_always,
        insecure=insecure,
        use=use,
        **given,
    )
    return await up.up(call, options)


@command(PLACE, forever=True)
@service_argument
@people_options
@web_options
@service_options
async def serve(call: Call, service: str, **given: Any) -> int:
    """Run one service, or the web page, against a running NATS server."""
    from admittance.cli.up import page, up
    from admittance.services import PAGE

    options = _options(**{**given, "proxy": tuple(given["proxy"])})
    if service.lower() == PAGE.name:
        return await page.serve(call, options)
    if options.trust_header or options.people or options.proxy:
        raise BadInput("--trust-header, --people and --proxy are for `admit serve web`")
    return await up.serve(call, service_named(service), options)
