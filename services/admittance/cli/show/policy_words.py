"""What a queue's ``concurrentAdmission`` says, and why a variant is active, in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from admittance.cli.show import tables
from admittance.cli.support.output import Column, Table
from admittance.cli.support.times import span, stamp
from admittance.family.policy import ActivityReason, DesiredState, FamilyRules, ParentState, Tag

SENTENCES: Final[dict[str, str]] = {
    ActivityReason.PARENT: "the parent is not active",
    ActivityReason.REJECTED: "a check rejected it",
    ActivityReason.USER: "a user stopped it",
    ActivityReason.REQUEUING_LIMIT: "its pods were not ready in time too often",
    ActivityReason.CREATE_DELAY: "its time has not come yet",
    ActivityReason.RACE: "nothing of the family is admitted, everybody tries",
    ActivityReason.ADMITTED: "the job has this place",
    ActivityReason.NO_MIGRATION: "another one is admitted, and nobody moves",
    ActivityReason.LOWER_THAN_ADMITTED: "a better one is admitted",
    ActivityReason.BELOW_MIN: "nobody moves up to so little",
    ActivityReason.DELETE_DELAY: "its time is over",
    ActivityReason.UPGRADE: "it would be better than the admitted one",
}


def policy(rules: FamilyRules) -> str:
    """What becomes of a workload of the queue, in one sentence."""
    count = len(rules.tags)
    tried = "1 variant is" if count == 1 else f"{count} variants are"
    if rules.mode == "NoMigration":
        return f"NoMigration: {tried} tried, and the first that is admitted stays"
    floor = f", to nothing below {rules.floor}" if rules.floor else ""
    return f"UpgradeOnly: {tried} tried, and the job moves up when a better one can be had{floor}"


def tag_table(rules: FamilyRules) -> Table:
    """Each variant of the queue, the best first."""
    columns = (
        Column("PLACE", right=True),
        Column("VARIANT"),
        Column("FLAVORS"),
        Column("FROM"),
        Column("UNTIL"),
    )
    rows = [
        (
            str(tag.place + 1),
            tag.name,
            ",".join(tag.flavors),
            f"{span(tag.create_delay)} after the beginning" if tag.create_delay else "at once",
            tables.NOTHING
            if tag.delete_delay is None
            else f"{span(tag.delete_delay)} after the first admission",
        )
        for tag in rules.tags
    ]
    return Table(columns, rows)


def because(
    wish: DesiredState, active: bool, tag: Tag | None, parent: ParentState, now: datetime
) -> str:
    """Why policy wants a variant as it does, and from when or until when. ``active``: as it is,
    which follows within a moment."""
    text = f"{wish.why}: {SENTENCES[wish.why]}"
    if tag is not None:
        begins = parent.start + timedelta(seconds=tag.create_delay)
        ends = (
            parent.first_admitted + timedelta(seconds=tag.delete_delay)
            if parent.first_admitted is not None and tag.delete_delay is not None
            else None
        )
        if wish.why is ActivityReason.CREATE_DELAY:
            text += f" (from {_moment(begins, now)})"
        elif wish.why is ActivityReason.DELETE_DELAY and ends is not None:
            text += f" (since {stamp(ends)})"
        elif wish.why is ActivityReason.UPGRADE and ends is not None:
            text += f" (until {_moment(ends, now)})"
    if wish.active != active:
        text += f"; it is about to be turned {'on' if wish.active else 'off'}"
    return text


def _moment(moment: datetime, now: datetime) -> str:
    return f"{stamp(moment)}, in {span((moment - now).total_seconds())}"
