"""``admit bench``: plays one of Kueue's generator files on a live system, and prints figures."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from admittance.cli.commands.declare import argument, command, option
from admittance.cli.support.options import Call, Output, UrlFrom, raise_on_interrupt
from admittance.client.errors import BadInput
from admittance.runtime.nats.connection_options import NO_OPTIONS

PAIRS: Final = 3
"""With --against."""


@command(without=[Output.YAML, Output.NAME])
@argument("GENERATOR.yaml", "Kueue's generator file.", name="generator", kind=Path)
@option("--json FILE", "Also write the figures to this file.", name="json_path", kind=Path)
@option("--scale F", "Fraction of the workloads to submit.", kind=float, least=0.0, default=1.0)
@option("--distinct", "Give each workload a spec that no other workload has.")
@option(
    "--against VERSION",
    "Also measure another version, in turns, and show the ratios: a folder with its code, or a "
    "commit of the clone that has this code.",
)
@option("--pairs N", f"How often both versions are measured. [default: {PAIRS}]", kind=int, least=1)
def bench(
    call: Call,
    generator: Path,
    json_path: Path | None,
    scale: float,
    distinct: bool,
    against: str | None,
    pairs: int | None,
) -> int:
    """Measure a system with a generator file: an embedded system unless --nats is given."""
    from admittance.bench import against as versions
    from admittance.bench.run import run

    if pairs is not None and against is None:
        raise BadInput("--pairs is for --against")
    if not scale > 0:
        raise BadInput(f"--scale {scale:g} leaves nothing to measure")
    if not generator.is_file():
        raise BadInput(f"no such file: {generator}")
    url = call.url if call.url_from is UrlFrom.OPTION else None
    if url and against is not None:
        raise BadInput("--against starts the systems of both versions: leave --nats out")
    raise_on_interrupt()
    as_json = call.output is Output.JSON
    if against is not None:
        return versions.compare(
            generator,
            against,
            pairs=pairs or PAIRS,
            scale=scale,
            distinct=distinct,
            json_path=json_path,
            as_json=as_json,
        )
    return run(
        generator,
        json_path=json_path,
        scale=scale,
        distinct=distinct,
        nats_url=url,
        access=call.connection if url else NO_OPTIONS,
        as_json=as_json,
    )
