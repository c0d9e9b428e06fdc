"""The syntax of names, labels and resources, after Kubernetes. Each answer is a sentence or ""."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from admittance.api.problems import INVALID, TOO_LONG, Problem, shown

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
_ANNOTATIONS_MAX: Final = 256 * 1024


@lru_cache(maxsize=16_384)
def subdomain(name: str) -> str:
    """What is wrong with name as the name of an object (DNS-1123 subdomain); "" for nothing."""
    if len(name) > SUBDOMAIN_MAX:
        return f"has {len(name)} characters, at most {SUBDOMAIN_MAX} are allowed"
    if not _SUBDOMAIN.fullmatch(name):
        return (
            f"{shown(name)} is no name: lower case letters, digits, '-' and '.', beginning and "
            f"ending with a letter or digit{_meant(name, _SUBDOMAIN)}"
        )
    return ""


@lru_cache(maxsize=16_384)
def label(name: str) -> str:
    """What is wrong with name as a DNS label (namespaces, pod sets, variants); "" for nothing."""
    if len(name) > LABEL_MAX:
        return f"has {len(name)} characters, at most {LABEL_MAX} are allowed"
    if not _LABEL.fullmatch(name):
        return (
            f"{shown(name)} is no name: lower case letters, digits and '-', beginning and ending "
            f"with a letter or digit{_meant(name, _LABEL)}"
        )
    return ""


def _meant(name: str, syntax: re.Pattern[str]) -> str:
    """The name that it would be in lower case, as the end of a sentence; "": none."""
    mended = name.lower().replace("_", "-").replace(" ", "-").strip("-.")
    return f"; did you mean {mended}?" if syntax.fullmatch(mended) else ""


@lru_cache(maxsize=16_384)
def qualified(key: str) -> str:
    """What is wrong with key as the key of a label: ``[subdomain/]name``; "" for nothing."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or subdomain(prefix)):
        return f"{shown(key)} has no DNS name before the '/'"
    if not name:
        return f"{shown(key)} has no name part"
    if len(name) > LABEL_MAX:
        return f"the name part of {shown(key)} has more than {LABEL_MAX} characters"
    if not _QUALIFIED.fullmatch(name):
        return (
            f"{shown(key)} is no label key: letters, digits, '-', '_' and '.', beginning and "
            "ending with a letter or digit, behind an optional DNS name and '/'"
        )
    return ""


@lru_cache(maxsize=16_384)
def label_value(value: str) -> str:
    """What is wrong with value as the value of a label; "" for nothing."""
    if len(value) > LABEL_MAX:
        return f"has {len(value)} characters, at most {LABEL_MAX} are allowed"
    if not _LABEL_VALUE.fullmatch(value):
        return (
            f"{shown(value)} is no label value: letters, digits, '-', '_' and '.', beginning and "
            "ending with a letter or digit"
        )
    return ""


def is_kind(kind: str) -> bool:
    """Whether kind can be the kind of an object."""
    return len(kind) <= LABEL_MAX and _KIND.fullmatch(kind) is not None


def code_of(complaint: str) -> str:
    """TooLong for a complaint about length, else Invalid."""
    return TOO_LONG if complaint.startswith("has ") else INVALID


def check_labels(labels: Mapping[str, str], field: str) -> list[Problem]:
    """The labels (or node labels, or node selector) at field."""
    found = []
    for key, value in labels.items():
        if complaint := qualified(key):
            found.append(Problem(field, complaint))
        if complaint := label_value(value):
            found.append(Problem(field, f"the value of {shown(key)}: {complaint}"))
    return found


def check_annotations(annotations: Mapping[str, str], field: str) -> list[Problem]:
    """The annotations at field: keys like labels in any case, and 256 KiB together."""
    found = [
        Problem(field, complaint) for key in annotations if (complaint := qualified(key.lower()))
    ]
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > _ANNOTATIONS_MAX:
        found.append(Problem(field, f"has more than {_ANNOTATIONS_MAX} characters", TOO_LONG))
    return found


def repeated(values: Iterable[str]) -> list[int]:
    """The positions at which a value stands that stood before."""
    seen: set[str] = set()
    again = []
    for index, value in enumerate(values):
        if value in seen:
            again.append(index)
        seen.add(value)
    return again
