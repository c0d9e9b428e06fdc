"""The verdict on one workload, from what its account has used and may still use."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from admittance.budgets.rules import BudgetRules, BudgetWindow, hundredths, moment, number


class Account(NamedTuple):
    """``used``: what the account has used in the window up to now. ``ahead``: what its jobs, and
    those that are approved, may still use, as far as they have a time limit."""

    name: str
    used: Fraction = Fraction(0)
    ahead: Fraction = Fraction(0)


class Answer(NamedTuple):
    """A verdict. ``delay``: of a Retry, in seconds."""

    state: str
    message: str
    delay: int | None = None


def answer(
    rules: BudgetRules,
    window: BudgetWindow,
    account: Account,
    *,
    rate: Fraction,
    seconds: int | None,
    now: float,
    longest: int,
) -> Answer:
    """Whether a workload may start. ``rate``: what a second of the workload counts. ``seconds``:
    its time limit; None: it has none. ``now``: seconds since 1970. ``longest``: the longest delay
    that the deployment allows, in seconds.

    The whole time limit is charged, also the part after the window: so if all jobs have one, no
    window passes its limit, the next one included. Amounts are compared as they are shown, in
    hundredths: the second between the reservation of quota and the start of a job keeps no other
    job of exactly the right size from starting."""
    limit = rules.limit_of(account.name)
    name = account.name or "jobs without a user"
    if limit is None:
        return Answer("Ready", f"no budget is set for {name}")
    has = "have" if not account.name else "has"
    used, ahead = hundredths(account.used), hundredths(account.ahead)
    text = f"{name} {has} used {number(used)} of {number(limit)} {rules.unit} {window.name}"
    if ahead:
        text += f", and its jobs may use {number(ahead)} more"
    if not rate:
        return Answer("Ready", f"{text}; this job uses none")
    booked = used + ahead
    if seconds is None:
        fits = booked < limit
        text += "; this job has no time limit"
        text += ", so it may pass the budget" if fits else ""
    else:
        charge = hundredths(rate * seconds)
        fits = booked + charge <= limit
        text += f"; this job may use {number(charge)}"
        if charge > limit:
            text += ", more than the whole budget"
    if fits:
        return Answer("Ready", text)
    again = math.ceil(min(window.end, now + longest, now + (rules.longest or longest)))
    return Answer("Retry", f"{text}; asked again {moment(again)}", math.ceil(again - now))
