"""What a parent tells of its family: rows, why nothing of it is admitted, and when time alone
changes who may try. LIFECYCLE 4.10.
"""

from __future__ import annotations

from typing import Final

from admittance.family.policy import Wish
from admittance.family.states import changes_next
from admittance.workload.change import with_status
from admittance.workload.conditions import Type, find, is_false, is_true, put
from admittance.workload.families.aggregating import rows_of, seen
from admittance.workload.families.making import wanted_tags
from admittance.workload.families.reading import allowed_flavors, parent_state, variant_state
from admittance.workload.families.together import Together
from admittance.workload.phase import holds_quota, is_reserved
from admittance.workload.standing import Standing, hindered, is_held
from admittance.workload.stored import Say, StoredWorkload, head

EACH_MAX: Final = 300
"""Characters that are told of one variant."""
_HOPELESS: Final = "NoMatchingFlavor"
_RESERVED: Final = "UnsatisfiedAdmissionChecks"
_INACTIVE: Final = "WaitingForFamily"
"""Reasons of a family in which nobody waits for quota: some hold it, or nobody is to try."""


def tell(family: Together, *, asked: bool = False) -> None:
    """Brings up to date what the parent tells, if it is written anyway, if somebody ``asked`` for
    it, or if time changes who may try at another moment now."""
    parent = family.family_head()
    states = [variant_state(one) for one in family.variants.values()]
    done = is_true(parent, Type.FINISHED)
    at = None
    if not done:
        at = changes_next(parent_state(parent), states, family.rules, family.now)
    touched = family.touched(family.parent_name)
    if not touched and not asked and at == parent.status.next_change_at:
        return
    wishes = family.wishes()
    rows = rows_of(map(seen, family.variants.values()), wishes)
    if done:
        # Those that have finished earlier are not looked at any more.
        rows = rows or parent.status.variants
    told = with_status(parent, variants=rows, next_change_at=at)
    standing = None if done else _standing(family, told, wishes)
    if standing is None:
        if told != parent:
            family.keep(told)
        return
    reason, message = standing
    before = find(parent, Type.QUOTA_RESERVED)
    conditions = put(
        told.status.conditions, Type.QUOTA_RESERVED, False, reason, message, now=family.now
    )
    says: tuple[Say, ...] = ()
    if before is None or before.reason != reason:
        says = (Say(what="pending", reason=reason, message=message),)
    elif before.message == message:
        conditions = told.status.conditions
    new = with_status(told, conditions=conditions)
    if new != parent:
        family.keep(new, *says)


def _standing(family: Together, parent: StoredWorkload, wishes: dict[str, Wish]) -> Standing | None:
    """Why nothing of the family is admitted; None: something is, or the reason is not theirs."""
    if holds_quota(parent) or not head(parent).active or is_held(parent):
        return None
    if is_false(parent, Type.REQUEUED):
        return None
    if hindered(parent, family.at_parent) is not None or family.rules is None:
        return None
    if not wanted_tags(parent, family.rules):
        allowed = ", ".join(sorted(allowed_flavors(parent) or ()))
        return Standing(_HOPELESS, f"The queue offers none of the flavors: {allowed}")
    found = [(one, wishes[name]) for name in wishes if (one := family.variants.get(name))]
    if not found:
        return None
    reasons = [
        reserved.reason
        for one, wish in found
        if wish.active
        and not is_reserved(one)
        and (reserved := find(one, Type.QUOTA_RESERVED)) is not None
    ]
    # The best one's: that is what the family would like to be changed. But that one variant has no
    # flavor to match is true of the family only where nobody else has one.
    held = any(map(_holds, found))
    possible = [one for one in reasons if one != _HOPELESS] or ([] if held else reasons)
    reason = possible[0] if possible else _RESERVED if held else _INACTIVE
    return Standing(reason, "; ".join(_told(one, wish) for one, wish in found))


def _holds(one: tuple[StoredWorkload, Wish]) -> bool:
    return is_reserved(one[0]) and one[1].active


def _told(variant: StoredWorkload, wish: Wish) -> str:
    tag = head(variant).variant
    reserved = find(variant, Type.QUOTA_RESERVED)
    if not wish.active:
        return f"{tag}: inactive ({wish.why})"
    if is_reserved(variant):
        waits = sorted(row.name for row in variant.status.admission_checks if row.state != "Ready")
        return f"{tag}: reserved, waits for {', '.join(waits) or 'its admission'}"
    if reserved is None:
        return f"{tag}: not looked at yet"
    return f"{tag}: {reserved.message or reserved.reason}"[:EACH_MAX]
