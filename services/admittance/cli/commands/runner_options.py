"""The options of a runner: which jobs it starts, as which Unix users, and how much they may use."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from admittance.runner.jobs.job_limits import LimitTexts

RunAsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--run-as",
        metavar="KEY=USER",
        help="The Unix user of jobs. KEY: user:NAME (the submitter), namespace:NAME, unknown "
        "or *. USER: a name, UID, UID:GID, or a range LOW-HIGH with one for each namespace. "
        "Or @GROUP: a submitter with the name of a member of the Unix group runs as that "
        "member. Repeatable. Default: $ADMIT_RUN_AS",
    ),
]
RunAsFileOption = Annotated[
    list[str] | None,
    typer.Option(
        "--run-as-file",
        metavar="FILE",
        help="More rules as for --run-as, one in a line, read again when FILE changes. "
        "Default: $ADMIT_RUN_AS_FILE; of a locked `up`, auth/run-as in its data folder",
    ),
]
JobNamespaceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--job-namespace",
        metavar="NAME",
        help="The runner starts jobs of this namespace only; repeatable. "
        "Default: $ADMIT_JOB_NAMESPACES, or all",
    ),
]
JobImageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--job-image",
        metavar="PATTERN",
        help="Containers may run such images only; repeatable. Default: $ADMIT_JOB_IMAGES, or all",
    ),
]
JobFolderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--job-folder",
        metavar="DIR",
        help="Working folders of local jobs lie in this folder; repeatable. "
        "Default: $ADMIT_JOB_FOLDERS, or everywhere",
    ),
]
AllowHostPathOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host-path",
        metavar="DIR",
        help="Jobs may mount this folder by hostPath; repeatable. "
        "Default: $ADMIT_ALLOW_HOST_PATHS, or none",
    ),
]
EnvFilesOption = Annotated[
    str | None,
    typer.Option(
        "--env-files",
        metavar="DIR",
        help="Values of ConfigMaps and Secrets: DIR/NAMESPACE/secrets/NAME/KEY and configmaps/…. "
        "Default: $ADMIT_ENV_FILES, or none",
    ),
]
PodLimitOption = Annotated[
    str | None,
    typer.Option(
        "--pod-limit",
        metavar="N",
        help="Pods of one namespace that the runner runs at once; 0: any number. "
        "Default: $ADMIT_POD_LIMIT, or 500",
    ),
]
ProcessLimitOption = Annotated[
    str | None,
    typer.Option(
        "--process-limit",
        metavar="N",
        help="Processes and threads of each other Unix user of --run-as, or of each container; "
        "0: any number. "
        "Default: $ADMIT_PROCESS_LIMIT, or 16384",
    ),
]
OutputLimitOption = Annotated[
    str | None,
    typer.Option(
        "--output-limit",
        metavar="SIZE",
        help="Output that the runner keeps of one run, the newest; 0: all. "
        "Default: $ADMIT_OUTPUT_LIMIT, or 100Mi",
    ),
]
NamespaceOutputLimitOption = Annotated[
    str | None,
    typer.Option(
        "--namespace-output-limit",
        metavar="SIZE",
        help="Output that the runner keeps of all runs of a namespace, the newest; 0: all. "
        "Default: $ADMIT_NAMESPACE_OUTPUT_LIMIT, or 10Gi",
    ),
]
ScratchLimitOption = Annotated[
    str | None,
    typer.Option(
        "--scratch-limit",
        metavar="SIZE",
        help="Files of one run in its scratch folders and emptyDir volumes; a job with more fails; "
        "0: any number. Default: $ADMIT_SCRATCH_LIMIT, or 50Gi",
    ),
]
FreeSpaceOption = Annotated[
    str | None,
    typer.Option(
        "--free-space",
        metavar="SIZE",
        help="No job starts while the disk of the data folder has less free space. "
        "Default: $ADMIT_FREE_SPACE, or 256Mi",
    ),
]
AllowPrivilegeEscalationOption = Annotated[
    bool | None,
    typer.Option(
        "--allow-privilege-escalation/--no-allow-privilege-escalation",
        help="Programs such as sudo may give jobs more rights. "
        "Default: $ADMIT_ALLOW_PRIVILEGE_ESCALATION, or no",
    ),
]


def limit_texts(privilege_escalation: bool | None, **given: str | None) -> "LimitTexts":
    """The limits of a runner as its options say; None: the option was not given."""
    from admittance.runner.jobs.job_limits import LimitTexts

    escalation = {None: "", True: "1", False: "0"}[privilege_escalation]
    texts = {name: text or "" for name, text in given.items()}
    return LimitTexts(**texts, privilege_escalation=escalation)
