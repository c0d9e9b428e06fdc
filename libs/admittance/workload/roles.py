"""Which part a workload plays in its family. Imports little: short commands need it."""

from __future__ import annotations

from typing import Final

from admittance.workload.stored import StoredWorkload

PARENT: Final = "parent"
VARIANT: Final = "variant"


def owner_of(workload: StoredWorkload) -> tuple[str, str]:
    """Name and uid of the Workload that the first owner reference of that kind names; ("", "")."""
    for reference in workload.metadata.owner_references:
        if reference.kind == "Workload":
            return reference.name, reference.uid
    return "", ""
