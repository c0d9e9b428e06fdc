"""Rules of single fields: ranges, words, counts and syntax, stated once, at the types.

The JSON Schema (`tools.manifests_schema`) and `validation/field_rules.py` read these rules.
Decoding does not check these rules, so that all errors of a manifest are found at once, and objects
stored under older rules stay readable. A field with ``own`` in its rule is checked by other code,
with its own error text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

from admittance.api.fields import names, units
from admittance.api.fields.problems import TOO_LONG, Problem
from admittance.text_cache import pair_cache

INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)
INT32: Final = range(INT32_MIN, INT32_MAX + 1)
CONTROLLER_MAX: Final = 253
DESCRIPTION_MAX: Final = 2048
GATE_NAME_MAX: Final = 63
DETAIL_MAX: Final = 32_768
PARAMETERS_MAX: Final = 100
PARAMETER_MAX: Final = 255
"""The most characters of the name and of the value of a parameter in a ProvisioningRequestConfig.
"""

MANIFEST_BYTES_MAX: Final = 512 * 1024
"""The most bytes that metadata and spec of a workload may have. The stored workload, with
status, updates of checks and outbox, must fit into one message of 1 MiB."""
GROUPS_MAX: Final = 16
LEVELS_MAX: Final = 16
PER_GROUP_MAX: Final = 64
CHECKS_MAX: Final = 64
VARIANTS_MAX: Final = 16
"""The most explicit variants of a ClusterQueue."""
FLAVOR_VARIANTS_DEFAULT: Final = 32
"""The most flavors that are variants, unless ``concurrentAdmission.maxFlavors`` is set."""
FLAVOR_VARIANTS_MAX: Final = 64
"""The highest value of ``concurrentAdmission.maxFlavors`` in a configuration."""
POD_SETS_MAX: Final = 18
GATES_MAX: Final = 8
FLAVORS_ALLOWED_MAX: Final = 256
"""The most flavors that a ClusterQueue may have in all its resource groups together."""
NODE_LABELS_MAX: Final = 8
RESOURCES_MAX: Final = 100
UPDATES_MAX: Final = 8


Syntax: TypeAlias = Callable[[Any], str]
"""A function that returns the error in a value, as a sentence; "": the value is valid."""
Entries: TypeAlias = Callable[[Any], list[Problem]]
"""A function that returns the errors in a map; their fields are relative to the map: ``""`` or
``[key]``.
"""


def field_rule(
    *,
    required: bool = False,
    own: bool = False,
    what: str = "",
    syntax: Syntax | None = None,
    entries: Entries | None = None,
    **schema: Any,
) -> Meta:
    """A rule of a field, for ``Annotated``. ``required``: the field must be present and not empty.
    ``what``: how errors name the items of a list. ``schema``: keywords of JSON Schema.
    """
    extra = {"required": required, "own": own, "what": what, "syntax": syntax, "entries": entries}
    return Meta(extra_json_schema=schema, extra=extra)


def list_rule(most: int, what: str, *, required: bool = False) -> Meta:
    """A rule for a list with a maximum length; ``required``: the list has at least one item."""
    if required:
        return field_rule(required=True, what=what, minItems=1, maxItems=most)
    return field_rule(what=what, maxItems=most)


def or_empty(syntax: Syntax) -> Syntax:
    """A copy of a syntax rule that also accepts the empty text."""
    return lambda value: syntax(value) if value else ""


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


def check_amounts(amounts: Mapping[str, Any]) -> list[Problem]:
    """The errors in the requested quantities of resources."""
    problems: list[Problem] = []
    for resource, written in amounts.items():
        problems += _check_requested(resource, written)
    return problems


@pair_cache(16_384)
def _check_requested(resource: str, written: str | int | float) -> tuple[Problem, ...]:
    """The errors in the requested quantity of one resource. Thousands of containers request the
    same."""
    if resource != "pods":
        return tuple(_check_amount(resource, written))
    reserved = Problem("[pods]", "is reserved: pods are counted, not requested")
    return (reserved, *_check_amount(resource, written))


def check_held(amounts: Mapping[str, Any]) -> list[Problem]:
    """The errors in the amounts of resources that one user may hold."""
    return [
        problem
        for resource, written in amounts.items()
        for problem in _check_amount(resource, written)
    ]


def check_held_by_label(by_label: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """The errors in the keys of labels, and in the amounts that the workloads with one value of a
    label may hold."""
    problems: list[Problem] = []
    for key, amounts in by_label.items():
        if error := names.label_key_error(key):
            problems.append(Problem(f"[{key}]", error))
        elif not amounts:
            problems.append(Problem(f"[{key}]", "must name at least one resource"))
        inner = check_held(amounts)
        problems += [problem._replace(field=f"[{key}]{problem.field}") for problem in inner]
    return problems


def _check_amount(resource: str, written: str | int | float) -> list[Problem]:
    problems: list[Problem] = []
    field = f"[{resource}]"
    if error := names.label_key_error(resource):
        problems.append(Problem(field, error))
    if error := units.quantity_error(written):
        problems.append(Problem(field, error))
    elif is_extended(resource) and units.parse(written).denominator != 1:
        problems.append(Problem(field, f"must be a whole number, not {written}"))
    return problems


def is_extended(resource: str) -> bool:
    """Whether a resource is of devices, such as ``nvidia.com/gpu``, and so counted in whole
    numbers, as in Kubernetes."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def _check_parameters(parameters: Mapping[str, str]) -> list[Problem]:
    """The errors in the parameters of a ProvisioningRequestConfig, by the limits of
    `admittance.provisioning.new_request`.
    """
    problems: list[Problem] = []
    message = f"has more than {PARAMETER_MAX} characters"
    for key, value in parameters.items():
        if not key:
            problems.append(Problem("", "has a parameter without a name"))
        elif len(key) > PARAMETER_MAX:
            problems.append(Problem(f"[{key[:60]}]", f"the name {message}", TOO_LONG))
        if len(value) > PARAMETER_MAX:
            problems.append(Problem(f"[{key[:60]}]", message, TOO_LONG))
    return problems


_NAME: Final = names.SUBDOMAIN_PATTERN
_LABEL_KEY: Final = (
    rf"(?:(?=[^/]{{1,{names.SUBDOMAIN_MAX}}}/){_NAME}/)?(?=[^/]{{1,{names.LABEL_MAX}}}$)"
    rf"{names.QUALIFIED_PATTERN}"
)
_ANY_CASE_KEY: Final = _LABEL_KEY.replace("a-z0-9", "A-Za-z0-9")
_AMOUNT: Final = r"\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"
_DURATION: Final = (
    r"(?=.*[1-9])\+?(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|ms|s|m|h))+"
)

Int32: TypeAlias = Annotated[int, field_rule(minimum=INT32_MIN, maximum=INT32_MAX)]
Natural: TypeAlias = Annotated[int, field_rule(minimum=0, maximum=INT32_MAX)]
LeaseSeconds: TypeAlias = Annotated[int, field_rule(minimum=5, maximum=86_400)]
Positive: TypeAlias = Annotated[int, field_rule(minimum=1, maximum=INT32_MAX)]

NAME_SCHEMA: Final = {"pattern": _whole(_NAME), "minLength": 1, "maxLength": names.SUBDOMAIN_MAX}
LABEL_SCHEMA: Final = {
    "pattern": _whole(names.LABEL_PATTERN),
    "minLength": 1,
    "maxLength": names.LABEL_MAX,
}

Name: TypeAlias = Annotated[str, field_rule(syntax=names.name_error, **NAME_SCHEMA)]
"""The name of an object."""
RequiredName: TypeAlias = Annotated[
    str, field_rule(required=True, syntax=names.name_error, **NAME_SCHEMA)
]
NameOrNone: TypeAlias = Annotated[
    str,
    field_rule(
        syntax=or_empty(names.name_error),
        pattern=_whole(f"(?:{_NAME})?"),
        maxLength=names.SUBDOMAIN_MAX,
    ),
]
"""The name of an object; "": no object."""
Label: TypeAlias = Annotated[str, field_rule(syntax=names.label_error, **LABEL_SCHEMA)]
"""A DNS label."""
RequiredLabel: TypeAlias = Annotated[
    str, field_rule(required=True, syntax=names.label_error, **LABEL_SCHEMA)
]
KindName: TypeAlias = Annotated[
    str,
    field_rule(
        required=True,
        syntax=names.kind_error,
        pattern=_whole(names.KIND_PATTERN),
        maxLength=names.LABEL_MAX,
    ),
]
ControllerName: TypeAlias = Annotated[
    str, field_rule(required=True, minLength=1, maxLength=CONTROLLER_MAX)
]
GateName: TypeAlias = Annotated[
    str, field_rule(required=True, minLength=1, maxLength=GATE_NAME_MAX)
]
Description: TypeAlias = Annotated[str, field_rule(maxLength=DESCRIPTION_MAX)]
Detail: TypeAlias = Annotated[str, field_rule(minLength=1, maxLength=DETAIL_MAX)]
Duration: TypeAlias = Annotated[
    str, field_rule(syntax=or_empty(units.delay_error), pattern=_whole(f"(?:{_DURATION})?"))
]
RequiredDuration: TypeAlias = Annotated[
    str, field_rule(required=True, syntax=units.delay_error, pattern=_whole(_DURATION))
]
Factor: TypeAlias = Annotated[float, field_rule(minimum=1)]
Jitter: TypeAlias = Annotated[float, field_rule(minimum=0, maximum=1)]

LabelKey: TypeAlias = Annotated[
    str, field_rule(syntax=names.label_key_error, pattern=_whole(_LABEL_KEY))
]
LabelKeyOrNone: TypeAlias = Annotated[
    str,
    field_rule(syntax=or_empty(names.label_key_error), pattern=_whole(f"(?:{_LABEL_KEY})?")),
]
RequiredLabelKey: TypeAlias = Annotated[
    str, field_rule(required=True, syntax=names.label_key_error, pattern=_whole(_LABEL_KEY))
]
LabelValue: TypeAlias = Annotated[
    str,
    field_rule(
        syntax=names.label_value_error,
        pattern=_whole(names.LABEL_VALUE_PATTERN),
        maxLength=names.LABEL_MAX,
    ),
]
NodeValue: TypeAlias = Annotated[
    str,
    field_rule(
        own=True, pattern=_whole(f"{names.LABEL_VALUE_PATTERN}|-+[0-9]+"), maxLength=names.LABEL_MAX
    ),
]
"""A value in a node affinity: the value of a label, or a number that a label is compared with."""
Labels: TypeAlias = Annotated[
    dict[str, LabelValue],
    field_rule(entries=names.check_labels, propertyNames={"pattern": _whole(_LABEL_KEY)}),
]
Annotations: TypeAlias = Annotated[
    dict[str, str],
    field_rule(entries=names.check_annotations, propertyNames={"pattern": _whole(_ANY_CASE_KEY)}),
]
NodeLabels: TypeAlias = Annotated[
    dict[str, LabelValue],
    field_rule(
        what="labels",
        entries=names.check_labels,
        propertyNames={"pattern": _whole(_LABEL_KEY)},
        maxProperties=NODE_LABELS_MAX,
    ),
]
Parameters: TypeAlias = Annotated[
    dict[str, Annotated[str, field_rule(own=True, maxLength=PARAMETER_MAX)]],
    field_rule(
        what="parameters",
        entries=_check_parameters,
        propertyNames={"minLength": 1, "maxLength": PARAMETER_MAX},
        maxProperties=PARAMETERS_MAX,
    ),
]
Quantity: TypeAlias = Annotated[
    str | int | float,
    field_rule(syntax=units.quantity_error, pattern=_whole(_AMOUNT), maxLength=128, minimum=0),
]
"""A quantity as written in the manifest; `admittance.api.fields.units` parses it."""
Amounts: TypeAlias = Annotated[
    dict[str, Quantity],
    field_rule(
        entries=check_amounts,
        propertyNames={"pattern": _whole(_LABEL_KEY), "not": {"const": "pods"}},
    ),
]
"""The requested quantity of each resource."""
_HELD: Final = {
    "propertyNames": {"pattern": _whole(_LABEL_KEY)},
    "maxProperties": PER_GROUP_MAX,
}
HeldAmounts: TypeAlias = Annotated[
    dict[str, Quantity], field_rule(what="resources", entries=check_held, **_HELD)
]
"""The most that one user may hold, of each resource."""
HeldByLabel: TypeAlias = Annotated[
    dict[str, Annotated[dict[str, Quantity], field_rule(own=True, minProperties=1, **_HELD)]],
    field_rule(
        what="labels",
        entries=check_held_by_label,
        propertyNames={"pattern": _whole(_LABEL_KEY)},
        maxProperties=NODE_LABELS_MAX,
    ),
]
"""For each key of a label the most that the workloads with one value of it may hold."""


def _mode_error(value: str | int) -> str:
    if isinstance(value, str):
        return "" if re.fullmatch("00?[0-7]{1,3}", value) else _MODE
    return "" if not isinstance(value, bool) and 0 <= value <= MODE_MAX else _MODE


MODE_MAX: Final = 0o777
_MODE: Final = "must be the rights of a file, from 0 to 0777 (511)"
FileMode: TypeAlias = Annotated[
    str | int,
    field_rule(syntax=_mode_error, pattern=_whole("00?[0-7]{1,3}"), minimum=0, maximum=MODE_MAX),
]
"""The rights of a file: a number, or text in octal digits, as YAML has ``0644``."""

STRATEGIES: Final = ("StrictFIFO", "BestEffortFIFO")
STOP_POLICIES: Final = ("None", "Hold", "HoldAndDrain")
FUNGIBILITY: Final = ("MayStopSearch", "TryNextFlavor")
PREFERENCES: Final = ("BorrowingOverPreemption", "PreemptionOverBorrowing")
RECLAIM: Final = ("Never", "LowerPriority", "Any")
WITHIN: Final = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
BORROW: Final = ("Never", "LowerPriority")
SCOPES: Final = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
USAGE_OF: Final = ("LocalQueue", "User")
QUOTA_CUTS: Final = ("", "evict")
SWITCH: Final = ("On", "Off")
BACKFILLS: Final = ("", "Easy")
MODES: Final = ("NoMigration", "UpgradeOnly")
POLICIES: Final = ("Anytime", "AfterCheckPassedOrOnDemand")
PREEMPTING: Final = ("PreemptLowerPriority", "Never")
MIN_RUN_POLICIES: Final = ("Required", "Preferred")
RETRIES: Final = ("static", "backoff")
MERGES: Final = ("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements")
ROLES: Final = ("regular", "parent", "variant", "array")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS: Final = (*OPERATORS, "Gt", "Lt")
FIELD_OPERATORS: Final = ("In", "NotIn")
TOLERATION_OPERATORS: Final = ("", "Equal", "Exists")
CLASSES: Final = {
    "kueue.x-k8s.io": "WorkloadPriorityClass",
    "scheduling.k8s.io": "PriorityClass",
}
"""The API groups that have priority classes, each with the kind of its class."""


def one_of(words: Iterable[str], *, required: bool = False) -> Meta:
    """The rule for a field with one of ``words`` as its value."""
    return field_rule(required=required, enum=list(words))


Strategy: TypeAlias = Annotated[str, one_of(STRATEGIES)]
StopPolicy: TypeAlias = Annotated[str, one_of(STOP_POLICIES)]
Fungibility: TypeAlias = Annotated[str, one_of(FUNGIBILITY)]
Preference: TypeAlias = Annotated[str, one_of(PREFERENCES)]
Reclaim: TypeAlias = Annotated[str, one_of(RECLAIM)]
Within: TypeAlias = Annotated[str, one_of(WITHIN)]
Borrow: TypeAlias = Annotated[str, one_of(BORROW)]
Scope: TypeAlias = Annotated[str, one_of(SCOPES)]
UsageOf: TypeAlias = Annotated[str, one_of(USAGE_OF)]
QuotaCut: TypeAlias = Annotated[str, one_of(QUOTA_CUTS)]
Switch: TypeAlias = Annotated[str, one_of(SWITCH)]
Backfill: TypeAlias = Annotated[str, one_of(BACKFILLS)]
MinRunPolicy: TypeAlias = Annotated[str, one_of(MIN_RUN_POLICIES)]
Mode: TypeAlias = Annotated[str, one_of(MODES)]
Policy: TypeAlias = Annotated[str, one_of(POLICIES)]
Preempting: TypeAlias = Annotated[str, one_of(PREEMPTING)]
Retry: TypeAlias = Annotated[str, one_of(RETRIES)]
Merge: TypeAlias = Annotated[str, one_of(MERGES)]
Role: TypeAlias = Annotated[str, one_of(ROLES)]
Operator: TypeAlias = Annotated[str, one_of(OPERATORS)]
NodeOperator: TypeAlias = Annotated[str, one_of(NODE_OPERATORS)]
FieldOperator: TypeAlias = Annotated[str, one_of(FIELD_OPERATORS)]
TolerationOperator: TypeAlias = Annotated[str, one_of(TOLERATION_OPERATORS)]
CompletionMode: TypeAlias = Annotated[str, one_of(("NonIndexed", "Indexed"))]
Effect: TypeAlias = Annotated[str, one_of(EFFECTS, required=True)]
EffectOrNone: TypeAlias = Annotated[str, one_of(("", *EFFECTS))]
ClassGroup: TypeAlias = Annotated[str, one_of(CLASSES)]
ClassKind: TypeAlias = Annotated[str, field_rule(own=True, enum=list(CLASSES.values()))]
