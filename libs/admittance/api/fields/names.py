"""The syntax of names, labels and resources, as in Kubernetes.

A function ``…_error`` returns what is wrong with a text, as a sentence; "": the text is valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from admittance.api.fields.problems import DUPLICATE, INVALID, TOO_LONG, Problem, shown
from admittance.text_cache import text_cache

SUBDOMAIN_MAX: Final = 253
LABEL_MAX: Final = 63

LABEL_PATTERN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN_PATTERN: Final = rf"{LABEL_PATTERN}(\.{LABEL_PATTERN})*"
QUALIFIED_PATTERN: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
LABEL_VALUE_PATTERN: Final = rf"({QUALIFIED_PATTERN})?"
KIND_PATTERN: Final = r"[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?"

_LABEL = re.compile(LABEL_PATTERN, re.ASCII)
_SUBDOMAIN = re.compile(SUBDOMAIN_PATTERN, re.ASCII)
_QUALIFIED = re.compile(QUALIFIED_PATTERN, re.ASCII)
_LABEL_VALUE = re.compile(LABEL_VALUE_PATTERN, re.ASCII)
_KIND = re.compile(KIND_PATTERN, re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_ANNOTATIONS_MAX: Final = 256 * 1024


@text_cache(16_384)
def name_error(name: str) -> str:
    """The error in the name of an object (a DNS-1123 subdomain)."""
    return _name_error(name, SUBDOMAIN_MAX, _SUBDOMAIN, "digits, '-' and '.',")


@text_cache(16_384)
def label_error(name: str) -> str:
    """The error in a DNS label: the name of a namespace, a pod set or a variant."""
    return _name_error(name, LABEL_MAX, _LABEL, "digits and '-',")


def _name_error(name: str, longest: int, syntax: re.Pattern[str], others: str) -> str:
    """``others``: what a name may have beside lower case letters."""
    if len(name) > longest:
        return f"has {len(name)} characters, at most {longest} are allowed"
    if not syntax.fullmatch(name):
        return (
            f"{shown(name)} is not a name: lower case letters, {others} beginning and "
            f"ending with a letter or digit{_suggestion(name, syntax)}"
        )
    return ""


def _suggestion(name: str, syntax: re.Pattern[str]) -> str:
    """The end of a sentence that suggests the valid name most like ``name``; "": there is no such
    name.
    """
    mended = name.lower().replace("_", "-").replace(" ", "-").strip("-.")
    return f"; did you mean {mended}?" if syntax.fullmatch(mended) else ""


@text_cache(16_384)
def label_key_error(key: str) -> str:
    """The error in the key of a label or the name of a resource: ``[DNS name/]name``."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or name_error(prefix)):
        return f"{shown(key)} has no DNS name before the '/'"
    if not name:
        return f"{shown(key)} has no name part"
    if len(name) > LABEL_MAX:
        return f"the name part of {shown(key)} has more than {LABEL_MAX} characters"
    if not _QUALIFIED.fullmatch(name):
        return (
            f"{shown(key)} is not a label key: letters, digits, '-', '_' and '.', beginning and "
            "ending with a letter or digit, behind an optional DNS name and '/'"
        )
    return ""


@text_cache(16_384)
def label_value_error(value: str) -> str:
    """The error in the value of a label."""
    if len(value) > LABEL_MAX:
        return f"has {len(value)} characters, at most {LABEL_MAX} are allowed"
    if not _LABEL_VALUE.fullmatch(value):
        return (
            f"{shown(value)} is not a label value: letters, digits, '-', '_' and '.', beginning "
            "and ending with a letter or digit"
        )
    return ""


def kind_error(kind: str) -> str:
    """The error in the name of a kind."""
    valid = len(kind) <= LABEL_MAX and _KIND.fullmatch(kind) is not None
    return "" if valid else f"{shown(kind)} is not a kind: letters, digits and '-'"


def variable_error(name: str) -> str:
    """The error in the name of a variable, as Kubernetes and shells take it."""
    if _VARIABLE.fullmatch(name):
        return ""
    return (
        f"{shown(name)} is not the name of a variable: letters, digits, _ . and -, and no digit "
        "first"
    )


def image_error(image: str) -> str:
    """The error in the name of an image: engines would take it as an option or refuse it, or it
    would be expanded."""
    if image.isprintable() and " " not in image and "$" not in image and image[:1] not in ("", "-"):
        return ""
    return f"{shown(image)} is not the name of an image: no spaces, no $, and no - first"


def code_of(error: str) -> str:
    """TooLong for an error about length, else Invalid."""
    return TOO_LONG if error.startswith("has ") else INVALID


def check_labels(labels: Mapping[str, str], field: str = "") -> list[Problem]:
    """The errors in labels, node labels or a node selector."""
    problems = []
    for key, value in labels.items():
        if error := label_key_error(key):
            problems.append(Problem(field, error))
        if error := label_value_error(value):
            problems.append(Problem(field, f"the value of {shown(key)}: {error}"))
    return problems


def check_annotations(annotations: Mapping[str, str], field: str = "") -> list[Problem]:
    """The errors in annotations: keys have the syntax of label keys, but in any case; 256 KiB in
    all.
    """
    problems = [
        Problem(field, error) for key in annotations if (error := label_key_error(key.lower()))
    ]
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > _ANNOTATIONS_MAX:
        problems.append(Problem(field, f"has more than {_ANNOTATIONS_MAX} characters", TOO_LONG))
    return problems


def check_unique(values: Iterable[str], field: str, part: str = "") -> list[Problem]:
    """A problem for each duplicate in ``values``, which are the items of the list ``field``.
    ``part``: the field of an item that holds the value, as ``.name``.
    """
    seen: set[str] = set()
    problems = []
    for index, value in enumerate(values):
        if value in seen:
            message = f"{shown(value)} is listed twice"
            problems.append(Problem(f"{field}[{index}]{part}", message, DUPLICATE))
        seen.add(value)
    return problems
