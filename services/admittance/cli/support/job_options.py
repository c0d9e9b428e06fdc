"""What `admit submit` takes from the place where it is called: a folder and variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from admittance.cli.support import output
from admittance.cli.support.link import IN_COMMANDS
from admittance.cli.support.options import key_values

if TYPE_CHECKING:
    from admittance.client.requests.link import Link
    from admittance.client.requests.submissions import CommandOptions
    from admittance.client.working_folder import Asked


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
        from admittance.client import environment

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
    from admittance.client.working_folder import asked_folder
    from admittance.runtime.process.this_machine import machine_facts

    asked = asked_folder(chdir, environ, machine_facts(), "--chdir")
    return Origin(environ, asked, env, export, image or "")


async def placed(
    bus: Link, wish: CommandOptions, origin: Origin, *, anyway: bool
) -> tuple[CommandOptions, str]:
    """The command in its folder, with the variables that go with the folder; and one line that says
    which folder that is. Warns of what may not be as meant. Raises BadInput and Refused."""
    from admittance.client.working_folder import asked_place

    image = bool(origin.image)
    place = await asked_place(bus, origin.asked, bus.namespace, image=image, anyway=anyway)
    if place.warning:
        output.warn(place.warning)
    env = origin.variables(is_here=True) if place.is_here else wish.env
    wish = replace(wish, env=env, working_dir=place.path, folder=place.folder)
    return wish, f"folder: {place.said}"
