"""Sentences about a queue's ``concurrentAdmission`` policy, and why a variant is active."""

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
    ActivityReason.CREATE_DELAY: "its create delay has not passed yet",
    ActivityReason.RACE: "no variant is admitted yet, all variants try",
    ActivityReason.ADMITTED: "the job runs as this variant",
    ActivityReason.NO_MIGRATION: "another variant is admitted, and the policy is NoMigration",
    ActivityReason.LOWER_THAN_ADMITTED: "a better variant is admitted",
    ActivityReason.BELOW_MIN: "it is below the lowest variant that a job may migrate to",
    ActivityReason.DELETE_DELAY: "its delete delay has passed",
    ActivityReason.UPGRADE: "it is better than the admitted variant",
}


def policy(rules: FamilyRules) -> str:
    """One sentence: how the queue's policy treats the variants of a workload."""
    count = len(rules.tags)
    tried = "1 variant is" if count == 1 else f"{count} variants are"
    if rules.mode == "NoMigration":
        return f"NoMigration: {tried} tried, and the first that is admitted stays"
    floor = f", to nothing below {rules.floor}" if rules.floor else ""
    return f"UpgradeOnly: {tried} tried, and the job moves up when a better one is admitted{floor}"


def tag_table(rules: FamilyRules) -> Table:
    """The variants of the queue, best first."""
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
    """Why the policy wants a variant active or inactive, and from or until when.

    ``active``: the current state of the variant; it follows the policy within a moment."""
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
