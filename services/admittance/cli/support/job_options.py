"""What `admit submit` takes from the place where it is called: variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from admittance.cli.support import output
from admittance.cli.support.options import key_values


def job_variables(
    environ: Mapping[str, str], env: Sequence[str], export: Sequence[str], *, image: str
) -> dict[str, str]:
    """The variables of the job, from ``--env`` and ``--export``. Prints which of them ``ALL`` left
    out. Raises BadInput."""
    from admittance.client import environment

    # An image has an environment of its own.
    default = () if image else environment.EVERYWHERE
    taken = environment.exported(environ, export, default)
    if taken.left_out:
        output.note(
            f"left out of --export {environment.ALL}, as they may be secrets or are no plain text: "
            f"{', '.join(taken.left_out)}; name those that the job needs"
        )
    return {**taken.variables, **key_values(env, "--env")}
