"""``admit logs``: what the pods of a workload printed."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from msgspec.structs import replace

from admittance.cli.get import find
from admittance.cli.show.families import refuse_variant
from admittance.cli.support import kinds
from admittance.cli.support.errors import AnswerIsNo, BadInput
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call
from admittance.cli.support.output import note
from admittance.events.requests import Logs, LogsReply
from admittance.events.shapes import PodLog
from admittance.runtime import clock
from admittance.runtime.telemetry.findings import size_of
from admittance.workload.conditions import Type
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload

POLL_SECONDS: Final = 0.3
NOT_YET_SECONDS: Final = 1.0
FAILED_TO_START: Final = "FailedToStart"
ENDS: Final = frozenset({Phase.FINISHED, Phase.DEACTIVATED, Phase.REJECTED})
"""Phases in which no pod prints any more."""


async def logs(
    call: Call,
    name: str,
    pod: int | None,
    *,
    follow: bool,
    tail: int | None = None,
    previous: int = 0,
) -> None:
    """Prints the output so far, the last ``tail`` lines of each pod; with follow until the workload
    has ended. ``previous``: how many runs back; 0: the newest run.

    If there are several pods, each line begins with its pod. Raises AnswerIsNo if the workload,
    pod, run or output does not exist.
    """
    if follow and previous:
        raise BadInput("an earlier run has ended: --previous does not go with --follow")
    async with link(call) as bus:
        refuse_variant(await find(bus, kinds.WORKLOAD, name), "`admit logs workload {}`")
        asked = Logs(name=name, pod=pod, tail=tail, before=await _before(bus, name, previous))
        writer = Writer(pod)
        offsets: dict[str, int] = {}
        ended, waiting = False, ""
        while True:
            reply = await _ask(bus, asked)
            if reply.error and not (follow and not ended):
                if offsets:
                    return
                found = await find(bus, kinds.WORKLOAD, name)
                raise AnswerIsNo(why_no_output(found.workload()) or reply.error)
            for one in reply.pods:
                offsets[one.pod] = one.offset
            # A pod that starts after the first answer is printed from its first line.
            asked = replace(asked, offsets=dict(offsets), tail=None if offsets else tail)
            if reply.waiting and reply.waiting != waiting:
                note(f"not started yet: {reply.waiting}")
            waiting = reply.waiting
            writer.write(reply.pods)
            if not reply.complete:
                continue
            if not follow or ended:
                break
            # After the end of the workload the output is read once more, so that the last lines are
            # not missed.
            ended = await _has_ended(bus, name) and not any(one.running for one in reply.pods)
            await asyncio.sleep(NOT_YET_SECONDS if reply.error else 0 if ended else POLL_SECONDS)
        writer.end()
    if pod is not None and not offsets:
        raise AnswerIsNo(f'workload "{name}" has no output of a pod "{pod}"')


async def _before(bus: Link, name: str, previous: int) -> int:
    """The revision of the run that follows the wanted run; 0 if the newest run is wanted."""
    before = 0
    for _ in range(previous):
        reply = await _ask(bus, Logs(name=name, tail=0, before=before))
        if reply.error or not reply.revision:
            raise AnswerIsNo(reply.error or "the runner is too old to find earlier runs")
        before = reply.revision
    return before


async def _ask(bus: Link, asked: Logs) -> LogsReply:
    return await bus.ask("logs", asked, LogsReply, namespace=bus.call.namespace)


async def _has_ended(bus: Link, name: str) -> bool:
    try:
        found = await find(bus, kinds.WORKLOAD, name)
    except (AnswerIsNo, BadInput):
        return True
    return phase(found.workload(), clock.now()) in ENDS


def why_no_output(workload: StoredWorkload) -> str:
    """Why the workload has no output, if its job failed to start; else empty."""
    for one in workload.status.conditions:
        if one.type == Type.FINISHED and one.status == "True" and one.reason == FAILED_TO_START:
            name = workload.metadata.name
            return f'workload "{name}" has no output, because it failed to start: {one.message}'
    return ""


class Writer:
    """Writes whole lines of several pods to standard output, each prefixed with its pod. The output
    of a single pod is written unchanged.
    """

    def __init__(self, pod: int | None) -> None:
        self._chosen = pod is not None
        self._half: dict[str, str] = {}
        self._names: set[str] = set()

    def write(self, pods: tuple[PodLog, ...]) -> None:
        """Writes the new output of the pods. Says on standard error what of it is missing."""
        self._names.update(one.pod for one in pods)
        for one in pods:
            if one.cut:
                note(
                    f"{one.pod}: {size_of(one.cut)} of its output before this are not kept: the "
                    "runner keeps the newest output (--output-limit)"
                )
            if one.short:
                note(f"{one.pod}: its lines are too long to count from the end, so this is less")
            if not one.text:
                continue
            text = self._half.pop(one.pod, "") + one.text
            if self._plain:
                sys.stdout.write(text)
                continue
            *lines, rest = text.split("\n")
            self._say(one.pod, lines)
            if rest:
                self._half[one.pod] = rest
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
