"""What clients and commands ask of the system, as functions on a `Link`.

`requests.objects.find`, `requests.changes.give_verdict`: a module, also one of a subject, is
imported at its first use, so that a command is declared without them.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admittance.client.requests import applying as applying
    from admittance.client.requests import budgets as budgets
    from admittance.client.requests import files as files
    from admittance.client.requests import forecasts as forecasts
    from admittance.client.requests import link as link
    from admittance.client.requests import machines as machines
    from admittance.client.requests import objects as objects
    from admittance.client.requests import past as past
    from admittance.client.requests import selection as selection
    from admittance.client.requests import then as then
    from admittance.client.requests import usage as usage
    from admittance.client.requests.queues import capacity as capacity
    from admittance.client.requests.queues import overview as overview
    from admittance.client.requests.queues import questions as questions
    from admittance.client.requests.submissions import commands as commands
    from admittance.client.requests.submissions import fit as fit
    from admittance.client.requests.submissions import holds as holds
    from admittance.client.requests.submissions import manifests as manifests
    from admittance.client.requests.submissions import priority_classes as priority_classes
    from admittance.client.requests.submissions import resubmission as resubmission
    from admittance.client.requests.submissions import submitting as submitting
    from admittance.client.requests.submissions import warnings as warnings
    from admittance.client.requests.workloads import arrays as arrays
    from admittance.client.requests.workloads import changes as changes
    from admittance.client.requests.workloads import explanation as explanation
    from admittance.client.requests.workloads import facts as facts
    from admittance.client.requests.workloads import families as families
    from admittance.client.requests.workloads import history as history
    from admittance.client.requests.workloads import traces as traces
    from admittance.client.requests.workloads import waits as waits

SUBJECTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("capacity", "overview", "questions"), "queues."),
    **dict.fromkeys(
        (
            "commands",
            "fit",
            "holds",
            "manifests",
            "priority_classes",
            "resubmission",
            "submitting",
            "warnings",
        ),
        "submissions.",
    ),
    **dict.fromkeys(
        ("arrays", "changes", "explanation", "facts", "families", "history", "traces", "waits"),
        "workloads.",
    ),
}
"""The package of each module that is in one."""


def __getattr__(name: str) -> object:
    inside = SUBJECTS.get(name, "") + name
    try:
        return import_module(f"{__name__}.{inside}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{inside}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
