"""What `admit submit` takes from the place where it is called, a folder and variables; and the time
of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.cli.support import output, times
from admittance.cli.support.link import IN_COMMANDS
from admittance.cli.support.options import key_values
from admittance.client.errors import BadInput

if TYPE_CHECKING:
    from admittance.api.fields.warning_signal import WarningSignal
    from admittance.client.requests.files import WantedFiles
    from admittance.client.requests.link import Link
    from admittance.client.requests.submissions.commands import CommandOptions
    from admittance.client.requests.submissions.working_folder import Asked

WARNING_SECONDS: Final = 60
"""How long before the time limit a warning comes unless the submitter says it."""


OF_INPUTS: Final = "one of the run, with the files of --input"
OF_OUTPUTS: Final = "an empty one of the run, in which the job leaves the files of --output"


class Origin(NamedTuple):
    """Where a command is submitted. ``environ``: the variables of this process. ``asked``: the
    folder in which the job is to start. ``env``, ``export``, ``image``: the values of the
    options."""

    environ: Mapping[str, str]
    asked: Asked
    env: Sequence[str]
    export: Sequence[str]
    image: str

    def variables(self, *, is_here: bool) -> dict[str, str]:
        """The variables of the job. ``is_here``: whether it starts in a folder of the submitter, as
        the submitter's Unix user. Raises BadInput."""
        from admittance.client.arguments import environment

        # An image has an environment of its own.
        default = environment.SAME_MACHINE if is_here else environment.EVERYWHERE
        taken = environment.exported(self.environ, self.export, () if self.image else default)
        variables = {**taken.variables, **key_values(self.env, "--env")}
        environment.check_environment(variables, spelled=IN_COMMANDS)
        if taken.left_out and not is_here:
            output.note(
                f"left out of --export {environment.ALL}, as they may be secrets or are no plain "
                f"text: {', '.join(taken.left_out)}; name those that the job needs"
            )
        return variables


def origin_of(
    environ: Mapping[str, str],
    chdir: str | None,
    env: Sequence[str],
    export: Sequence[str],
    image: str | None,
) -> Origin:
    """The place of this submission. Raises BadInput for a folder that cannot be meant."""
    from admittance.client.requests.submissions.working_folder import asked_folder
    from admittance.runtime.process.this_machine import machine_facts

    asked = asked_folder(chdir, environ, machine_facts(), "--chdir")
    return Origin(environ, asked, env, export, image or "")


async def placed(
    bus: Link, wish: CommandOptions, origin: Origin, *, anyway: bool, files: WantedFiles | None
) -> tuple[CommandOptions, str]:
    """The command in its folder, with the variables that go with the folder; and one line that says
    which folder that is. ``files``: a job with files starts in a folder of the run, unless
    another one was chosen. Warns of what may not be as meant. Raises BadInput and Refused."""
    from admittance.client.requests.submissions.working_folder import asked_place

    if files is not None and not origin.asked.chosen:
        return wish, f"folder: {OF_INPUTS if files.inputs else OF_OUTPUTS}"
    image = bool(origin.image)
    place = await asked_place(
        bus, origin.asked, bus.namespace, wish.queue, image=image, anyway=anyway
    )
    if place.warning:
        output.warn(place.warning)
    env = origin.variables(is_here=True) if place.is_here else wish.env
    wish = replace(wish, env=env, working_dir=place.path, folder=place.folder)
    return wish, f"folder: {place.said}"


def time_limit(limit: str | None, max_time: str | None) -> int | None:
    """The seconds of ``--time``, which has the old name ``--max-time``, too. Raises BadInput."""
    if limit is not None and max_time is not None:
        raise BadInput("--time and --max-time are the same: leave out --max-time")
    for text, option in ((limit, "--time"), (max_time, "--max-time")):
        if text is not None:
            return times.whole_seconds(text, option)
    return None


def warning_of(text: str | None) -> WarningSignal | None:
    """The warning of ``--signal``. Raises BadInput."""
    if text is None:
        return None
    from admittance.api.fields.warning_signal import (
        SECONDS_MAX,
        BadWarning,
        WarningSignal,
        signal_name,
    )

    name, at, span = text.partition("@")
    before = times.whole_seconds(span, f"--signal {name}@") if at else WARNING_SECONDS
    try:
        warning = WarningSignal(signal_name(name), before)
    except BadWarning as error:
        raise BadInput(f"--signal {error}") from None
    if before > SECONDS_MAX:
        raise BadInput(f"--signal {text}: at most {SECONDS_MAX // 86_400} days before the limit")
    return warning


def requests_of(cpu: str | None, memory: str | None, gpu: str | None) -> dict[str, str]:
    """The given amounts by resource. Raises BadInput for an amount that would be rounded up."""
    from admittance.api.reading.from_job import GPU
    from admittance.client.requests.submissions.commands import check_whole

    named = (("cpu", "--cpu", cpu), ("memory", "--memory", memory), (GPU, "--gpu", gpu))
    asked = {}
    for resource, spelled, amount in named:
        if amount is not None:
            check_whole(resource, amount, spelled)
            asked[resource] = amount
    return asked
