"""The types of messages by which a history of the log is narrowed."""

from __future__ import annotations

from typing import Final

from admittance.events.subjects import (
    CHECK_FACTS,
    PERSON_FACTS,
    PROVISIONING_FACTS,
    TIMER_DUE,
    USER_FACTS,
    WORKLOAD_FACTS,
)

DEAD_LETTER: Final = "dead_letter"
OBJECTS: Final = ("object_applied", "object_deleted")


def _subjects() -> dict[str, tuple[str, ...]]:
    types: dict[str, tuple[str, ...]] = {}
    for key in WORKLOAD_FACTS:
        by_people = (f"{USER_FACTS}*.{key}",) if key in PERSON_FACTS else ()
        types[key] = (f"admit.workload.{key}", *by_people)
    for key in PERSON_FACTS.keys() - WORKLOAD_FACTS.keys():
        types[key] = (f"{USER_FACTS}*.{key}",)
    types |= {f"check_{key}": (f"admit.check.{key}.*",) for key in CHECK_FACTS}
    types |= {f"provisioning_{key}": (f"admit.provisioning.{key}.*",) for key in PROVISIONING_FACTS}
    types |= {key: (f"admit.{key.replace('_', '.')}.*",) for key in OBJECTS}
    types["timer_due"] = (f"{TIMER_DUE}*",)
    types[DEAD_LETTER] = ()
    return dict(sorted(types.items()))


FACT_TYPES: Final = _subjects()
"""The parts of the subjects before namespace and name, by type. A dead letter has the namespace and
name of the message inside it, and none in its subject."""
