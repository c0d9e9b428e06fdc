"""``admit logs``: what the pods of a workload printed."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING

from admittance.cli.commands.arguments import follow, workload_command
from admittance.cli.commands.declare import option
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.cli.support.output import note
from admittance.client import requests
from admittance.client.errors import BadInput

if TYPE_CHECKING:
    from admittance.client.requests.link import Link
    from admittance.events.shapes import PodLog


@workload_command()
@option("--pod I", "Only the pod with this index.", kind=int, least=0)
@follow
@option("--tail N", "Only the last N lines of each pod.", kind=int, least=0)
@option("--previous -p", "The run before the newest one; -pp: the one before that.", count=True)
async def logs(
    call: Call, name: str, pod: int | None, follow: bool, tail: int | None, previous: int
) -> None:
    """Show the output of a workload's pods.

    Shows the newest run, with --previous an earlier run, which had another admission. Runners
    delete the output of old runs.
    """
    if follow and previous:
        raise BadInput("an earlier run has ended: --previous does not go with --follow")
    async with link(call) as bus:
        await show_output(bus, name, pod=pod, follow=follow, tail=tail, previous=previous)


async def show_output(
    bus: Link,
    name: str,
    namespace: str = "",
    *,
    pod: int | None = None,
    follow: bool = False,
    tail: int | None = None,
    previous: int = 0,
) -> None:
    """Prints the output of a workload. The parameters are those of `requests.history.output_of`,
    and so are the errors."""
    writer = Writer(pod)
    waiting = missing = ""
    replies = requests.history.output_of(
        bus,
        name,
        namespace,
        pod=pod,
        follow=follow,
        tail=tail,
        previous=previous,
        instead="`admit logs workload {}`",
    )
    async with aclosing(replies):
        async for reply in replies:
            if reply.waiting and reply.waiting != waiting:
                note(f"not started yet: {reply.waiting}")
            waiting = reply.waiting
            if reply.missing and reply.missing != missing:
                note(reply.missing)
            missing = reply.missing
            writer.write(reply.pods)
    writer.end()


class Writer:
    """Writes whole lines of several pods to standard output, each prefixed with its pod. The output
    of a single pod is written unchanged.
    """

    def __init__(self, pod: int | None) -> None:
        self._chosen = pod is not None
        self._half: dict[str, str] = {}
        self._names: set[str] = set()

    def write(self, pods: tuple[PodLog, ...]) -> None:
        """Writes the new output of the pods. Prints to standard error how much of the output is
        missing."""
        from admittance.runtime.telemetry.findings import size_of

        self._names.update(pod.pod for pod in pods)
        for pod in pods:
            if pod.cut:
                note(
                    f"{pod.pod}: {size_of(pod.cut)} of its output before this are not kept: the "
                    "runner keeps the newest output (--output-limit)"
                )
            if pod.short:
                note(f"{pod.pod}: its lines are too long to count from the end, so this is less")
            if not pod.text:
                continue
            text = self._half.pop(pod.pod, "") + pod.text
            if self._plain:
                sys.stdout.write(text)
                continue
            *lines, rest = text.split("\n")
            self._say(pod.pod, lines)
            if rest:
                self._half[pod.pod] = rest
        sys.stdout.flush()

    def end(self) -> None:
        """Writes the last lines without a line break."""
        for pod, rest in self._half.items():
            self._say(pod, [rest])
        self._half.clear()
        sys.stdout.flush()

    @property
    def _plain(self) -> bool:
        return self._chosen or len(self._names) <= 1

    def _say(self, pod: str, lines: list[str]) -> None:
        for line in lines:
            sys.stdout.write(f"{pod} | {line}\n")
