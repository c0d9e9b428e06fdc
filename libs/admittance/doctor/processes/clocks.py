"""Checks of `admit doctor`: clocks of services, of nats-server and of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from admittance.client.health import HealthAnswer
from admittance.doctor.finding import Finding, note, ok, wrong

OFF_SECONDS: Final = 1.0
"""Clocks that differ by fewer seconds than this count as equal. Synchronised machines differ by
milliseconds.
"""
TODO: Final = "synchronise it (`timedatectl`, chrony): docs/operations.md#the-clock-is-off"


class Offset(NamedTuple):
    """The seconds by which a clock is ahead of this machine's clock are between ``least`` and
    ``most``: a message takes an unknown time."""

    least: float
    most: float


def offset(shown: datetime, asked: datetime, answered: datetime) -> Offset:
    """The offset of a clock that showed ``shown`` at some time between the times ``asked`` and
    ``answered`` of this machine's clock."""
    return Offset((shown - answered).total_seconds(), (shown - asked).total_seconds())


def clock_findings(answers: Sequence[HealthAnswer], server: Offset | None) -> list[Finding]:
    """The clocks that differ from nats-server's; one finding if all agree. ``server``: the clock of
    nats-server; None: nats-server did not answer, and clocks of services are compared with that of
    this machine.
    """
    base = server or Offset(0.0, 0.0)
    reference = "nats-server's clock" if server else "the clock of this machine"
    findings: list[Finding] = []
    known = 0
    for answer in answers:
        if answer.reply.time is None:
            continue  # Services of an earlier version do not report their clock.
        known += 1
        theirs = offset(answer.reply.time, answer.asked, answer.answered)
        if text := _difference(theirs, base):
            what = f"clock of {answer.reply.service}"
            findings.append(wrong(what, f"{answer.reply.instance} is {text} {reference}", TODO))
    if server is not None and (text := _difference(Offset(0.0, 0.0), server)):
        # This is only a note, because nothing but this command uses the clock of this machine,
        # unless services run on the machine too.
        findings.append(note("clock of this machine", f"{text} {reference}", TODO))
    if not findings and (known or server):
        with_server = " and nats-server" if server else ""
        findings.append(
            ok("clocks", f"{known} services{with_server} agree within {OFF_SECONDS:g} s")
        )
    return findings


def _difference(clock: Offset, base: Offset) -> str:
    """By how much the clock differs for certain; empty if it may be right."""
    ahead, behind = clock.least - base.most, base.least - clock.most
    if ahead > OFF_SECONDS:
        return f"{ahead:.1f} s ahead of"
    if behind > OFF_SECONDS:
        return f"{behind:.1f} s behind"
    return ""
