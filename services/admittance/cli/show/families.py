"""Families as commands read them; they are those of the client."""

from __future__ import annotations

from admittance.client.requests.families import (
    Family,
    FamilyMember,
    family_of,
    is_parent,
    is_variant,
    names_of,
    parent_of,
    refuse_variant,
    rules_for,
    tags_of,
)

__all__ = [
    "Family",
    "FamilyMember",
    "family_of",
    "is_parent",
    "is_variant",
    "names_of",
    "parent_of",
    "refuse_variant",
    "rules_for",
    "tags_of",
]
