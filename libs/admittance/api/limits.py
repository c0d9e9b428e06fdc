"""Rules of single fields: numbers, counts and patterns, stated once, at the types.

The schema (`admittance.api.schema`) and the validation (`validation/stated.py`) read them from
here. Decoding does not check them: a manifest gets all its errors at once, and objects stored under
older rules stay readable. ``own``: another rule reports it with its own text, so that `stated`
skips it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

from admittance.api import names

INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)
CONTROLLER_MAX: Final = 253
DESCRIPTION_MAX: Final = 2048
GATE_NAME_MAX: Final = 63
DETAIL_MAX: Final = 32_768
PARAMETERS_MAX: Final = 100
PARAMETER_MAX: Final = 255
"""Characters of the name of a parameter of a ProvisioningRequestConfig, and of its value."""

GROUPS_MAX: Final = 16
PER_GROUP_MAX: Final = 64
CHECKS_MAX: Final = 64
VARIANTS_MAX: Final = 16
POD_SETS_MAX: Final = 18
GATES_MAX: Final = 8
FLAVORS_ALLOWED_MAX: Final = 256
"""The most flavors that a ClusterQueue may have in all its groups."""
NODE_LABELS_MAX: Final = 8
RESOURCES_MAX: Final = 100
UPDATES_MAX: Final = 8


def says(*, required: bool = False, own: bool = False, what: str = "", **schema: Any) -> Meta:
    """A rule of a field. ``required``: it must be present and not empty. ``what``: the name of a
    list's items in the error."""
    extra = {"required": required, "own": own, "what": what}
    return Meta(extra_json_schema=schema, extra=extra)


def many(most: int, what: str, *, required: bool = False) -> Meta:
    """A list with a maximum length; ``required``: at least one item."""
    if required:
        return says(required=True, what=what, minItems=1, maxItems=most)
    return says(what=what, maxItems=most)


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


_NAME: Final = names.SUBDOMAIN_PATTERN
_LABEL_KEY: Final = (
    rf"(?:(?=[^/]{{1,{names.SUBDOMAIN_MAX}}}/){_NAME}/)?(?=[^/]{{1,{names.LABEL_MAX}}}$)"
    rf"{names.QUALIFIED_PATTERN}"
)
_ANY_CASE_KEY: Final = _LABEL_KEY.replace("a-z0-9", "A-Za-z0-9")
_AMOUNT: Final = r"\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"
_SPAN: Final = (
    r"(?=.*[1-9])\+?(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|ms|s|m|h))+"
)

Int32: TypeAlias = Annotated[int, says(minimum=INT32_MIN, maximum=INT32_MAX)]
Natural: TypeAlias = Annotated[int, says(minimum=0, maximum=INT32_MAX)]
Positive: TypeAlias = Annotated[int, says(minimum=1, maximum=INT32_MAX)]

NAME_SCHEMA: Final = {"pattern": _whole(_NAME), "minLength": 1, "maxLength": names.SUBDOMAIN_MAX}
LABEL_SCHEMA: Final = {
    "pattern": _whole(names.LABEL_PATTERN),
    "minLength": 1,
    "maxLength": names.LABEL_MAX,
}
PREFIX_SCHEMA: Final = {
    "pattern": _whole(rf"(?:{names.LABEL_PATTERN}\.)*(?:[a-z0-9][-a-z0-9]*)?"),
    "minLength": 1,
    "maxLength": names.SUBDOMAIN_MAX - 1,
}
"""A generateName: a name begins with it."""

Name: TypeAlias = Annotated[str, says(own=True, **NAME_SCHEMA)]
"""The name of an object."""
RequiredName: TypeAlias = Annotated[str, says(required=True, **NAME_SCHEMA)]
NameOrNone: TypeAlias = Annotated[
    str, says(own=True, pattern=_whole(f"(?:{_NAME})?"), maxLength=names.SUBDOMAIN_MAX)
]
"""The name of an object; "": none."""
Label: TypeAlias = Annotated[str, says(own=True, **LABEL_SCHEMA)]
"""A DNS label."""
RequiredLabel: TypeAlias = Annotated[str, says(required=True, **LABEL_SCHEMA)]
KindName: TypeAlias = Annotated[
    str, says(required=True, pattern=_whole(names.KIND_PATTERN), maxLength=names.LABEL_MAX)
]
ControllerName: TypeAlias = Annotated[
    str, says(required=True, minLength=1, maxLength=CONTROLLER_MAX)
]
GateName: TypeAlias = Annotated[str, says(required=True, minLength=1, maxLength=GATE_NAME_MAX)]
Description: TypeAlias = Annotated[str, says(maxLength=DESCRIPTION_MAX)]
Detail: TypeAlias = Annotated[str, says(own=True, minLength=1, maxLength=DETAIL_MAX)]
Span: TypeAlias = Annotated[str, says(own=True, pattern=_whole(f"(?:{_SPAN})?"))]
RequiredSpan: TypeAlias = Annotated[str, says(required=True, pattern=_whole(_SPAN))]

LabelKey: TypeAlias = Annotated[str, says(own=True, pattern=_whole(_LABEL_KEY))]
LabelKeyOrNone: TypeAlias = Annotated[str, says(own=True, pattern=_whole(f"(?:{_LABEL_KEY})?"))]
RequiredLabelKey: TypeAlias = Annotated[
    str, says(own=True, required=True, pattern=_whole(_LABEL_KEY))
]
LabelValue: TypeAlias = Annotated[
    str, says(own=True, pattern=_whole(names.LABEL_VALUE_PATTERN), maxLength=names.LABEL_MAX)
]
NodeValue: TypeAlias = Annotated[
    str,
    says(
        own=True, pattern=_whole(f"{names.LABEL_VALUE_PATTERN}|-+[0-9]+"), maxLength=names.LABEL_MAX
    ),
]
"""The value of a label, or a number that a label is compared with."""
Labels: TypeAlias = Annotated[
    dict[str, LabelValue], says(own=True, propertyNames={"pattern": _whole(_LABEL_KEY)})
]
Annotations: TypeAlias = Annotated[
    dict[str, str], says(own=True, propertyNames={"pattern": _whole(_ANY_CASE_KEY)})
]
NodeLabels: TypeAlias = Annotated[
    dict[str, LabelValue],
    says(
        what="labels",
        propertyNames={"pattern": _whole(_LABEL_KEY)},
        maxProperties=NODE_LABELS_MAX,
    ),
]
Parameters: TypeAlias = Annotated[
    dict[str, Annotated[str, says(own=True, maxLength=PARAMETER_MAX)]],
    says(
        what="parameters",
        propertyNames={"minLength": 1, "maxLength": PARAMETER_MAX},
        maxProperties=PARAMETERS_MAX,
    ),
]
Quantity: TypeAlias = Annotated[
    str | int | float, says(own=True, pattern=_whole(_AMOUNT), maxLength=128, minimum=0)
]
"""As written in the manifest; `admittance.api.units` reads it."""
Amounts: TypeAlias = Annotated[
    dict[str, Quantity],
    says(own=True, propertyNames={"pattern": _whole(_LABEL_KEY), "not": {"const": "pods"}}),
]
"""The requested quantity of each resource."""


STRATEGIES: Final = ("StrictFIFO", "BestEffortFIFO")
STOP_POLICIES: Final = ("None", "Hold", "HoldAndDrain")
FUNGIBILITY: Final = ("MayStopSearch", "TryNextFlavor")
PREFERENCES: Final = ("BorrowingOverPreemption", "PreemptionOverBorrowing")
RECLAIM: Final = ("Never", "LowerPriority", "Any")
WITHIN: Final = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
BORROW: Final = ("Never", "LowerPriority")
SCOPES: Final = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
QUOTA_CUTS: Final = ("", "evict")
MODES: Final = ("NoMigration", "UpgradeOnly")
POLICIES: Final = ("Anytime", "AfterCheckPassedOrOnDemand")
RETRIES: Final = ("static", "backoff")
MERGES: Final = ("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements")
ROLES: Final = ("regular", "parent", "variant")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS: Final = (*OPERATORS, "Gt", "Lt")
FIELD_OPERATORS: Final = ("In", "NotIn")
TOLERATION_OPERATORS: Final = ("", "Equal", "Exists")
CLASSES: Final = {
    "kueue.x-k8s.io": "WorkloadPriorityClass",
    "scheduling.k8s.io": "PriorityClass",
}
"""Groups of priority classes, and the kind in each."""


def _of(words: Iterable[str], *, required: bool = False) -> Meta:
    return says(required=required, enum=list(words))


Strategy: TypeAlias = Annotated[str, _of(STRATEGIES)]
StopPolicy: TypeAlias = Annotated[str, _of(STOP_POLICIES)]
Fungibility: TypeAlias = Annotated[str, _of(FUNGIBILITY)]
Preference: TypeAlias = Annotated[str, _of(PREFERENCES)]
Reclaim: TypeAlias = Annotated[str, _of(RECLAIM)]
Within: TypeAlias = Annotated[str, _of(WITHIN)]
Borrow: TypeAlias = Annotated[str, _of(BORROW)]
Scope: TypeAlias = Annotated[str, _of(SCOPES)]
QuotaCut: TypeAlias = Annotated[str, _of(QUOTA_CUTS)]
Mode: TypeAlias = Annotated[str, _of(MODES)]
Policy: TypeAlias = Annotated[str, _of(POLICIES)]
Retry: TypeAlias = Annotated[str, _of(RETRIES)]
Merge: TypeAlias = Annotated[str, _of(MERGES)]
Role: TypeAlias = Annotated[str, _of(ROLES)]
Operator: TypeAlias = Annotated[str, _of(OPERATORS)]
NodeOperator: TypeAlias = Annotated[str, _of(NODE_OPERATORS)]
FieldOperator: TypeAlias = Annotated[str, _of(FIELD_OPERATORS)]
TolerationOperator: TypeAlias = Annotated[str, _of(TOLERATION_OPERATORS)]
Effect: TypeAlias = Annotated[str, _of(EFFECTS, required=True)]
EffectOrNone: TypeAlias = Annotated[str, _of(("", *EFFECTS))]
ClassGroup: TypeAlias = Annotated[str, _of(CLASSES)]
ClassKind: TypeAlias = Annotated[str, says(own=True, enum=list(CLASSES.values()))]
