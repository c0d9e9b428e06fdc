"""What the commands that try out somebody's program are told in the same words."""

from __future__ import annotations

from typing import Annotated

import typer

CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- CMD...",
        help="Start it so, with ADMIT_NATS_URL set. Default: it runs already.",
        show_default=False,
    ),
]
WaitOption = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="Seconds for its first answer. Default: --timeout; 60 with --embedded.",
        min=0.1,
    ),
]
CaseOption = Annotated[
    list[str] | None,
    typer.Option(metavar="CASE", help="Only this one; may be given several times."),
]
EmbeddedOption = Annotated[
    bool, typer.Option("--embedded", help="Start a server for it; nothing else is needed.")
]
PortOption = Annotated[
    int | None,
    typer.Option(metavar="P", help="Of that server. Default: a free one", min=0, max=65_535),
]
