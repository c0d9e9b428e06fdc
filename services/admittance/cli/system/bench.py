"""``admit bench``: plays one of Kueue's generator files on a live system, and prints figures."""

from __future__ import annotations

from pathlib import Path

from admittance.cli.commands.declare import argument, command, option
from admittance.cli.support.options import Call, Output, UrlFrom, raise_on_interrupt
from admittance.client.errors import BadInput
from admittance.runtime.nats.connection_options import NO_OPTIONS


@command(without=[Output.YAML, Output.NAME])
@argument("GENERATOR.yaml", "Kueue's generator file.", name="generator", kind=Path)
@option("--json FILE", "Also write the figures to this file.", name="json_path", kind=Path)
@option("--scale F", "Fraction of the workloads to submit.", kind=float, least=0.0, default=1.0)
def bench(call: Call, generator: Path, json_path: Path | None, scale: float) -> int:
    """Measure a system with a generator file: an embedded system unless --nats is given."""
    from admittance.bench.run import run

    if not scale > 0:
        raise BadInput(f"--scale {scale:g} leaves nothing to measure")
    if not generator.is_file():
        raise BadInput(f"no such file: {generator}")
    url = call.url if call.url_from is UrlFrom.OPTION else None
    raise_on_interrupt()
    return run(
        generator,
        json_path=json_path,
        scale=scale,
        nats_url=url,
        access=call.connection if url else NO_OPTIONS,
        as_json=call.output is Output.JSON,
    )
