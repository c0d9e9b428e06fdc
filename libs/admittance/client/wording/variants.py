"""Why a variant is active or not, in words."""

from __future__ import annotations

from typing import Final

from admittance.family import ActivityReason

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
"""What each reason says about a variant."""
