"""Fits plain values to the fields of a Struct, and finds all values that do not fit.

msgspec stops at the first error, but users want all errors of a manifest at once, with suggestions
for misspelled fields. So this module reads again a manifest that msgspec has refused. Nulls count
as absent, as in Kubernetes. A scalar without quotes (`Plain`) gets the type of its field; only the
value of a variable needs its quotes, since Kubernetes refuses `value: true`. The module does not
import the YAML parser, which takes long, since objects from the bus are JSON.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from admittance.api.fields.problems import REQUIRED, TYPE, UNKNOWN, Problem, shown
from admittance.api.fields.struct_types import struct_type
from admittance.api.pods import EnvVar

PROBLEMS_MAX: Final = 50
"""The most problems reported for one object."""

RENAMED: Final[dict[str, str]] = {
    "cohort": "cohortName",
    "parent": "parentName",
    "priorityClassName": "priorityClassRef",
    "priorityClassSource": "priorityClassRef",
}
"""Fields of older versions, and their present names."""

_ABSENT: Final[Any] = object()
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_OCTAL = re.compile(r"0o?[0-7]{1,4}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_TRUTH: Final = {
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_NUMBER_OF_YAML: Final = re.compile(
    r"[-+]?(0|[1-9][0-9]*|0[0-7]+|0x[0-9a-fA-F]+|[0-9]+\.[0-9]*([eE][-+][0-9]+)?)", re.ASCII
)
"""What every reader of YAML takes for a number, and no writer of YAML leaves without quotes."""
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_INT64: Final = 2**63


class Plain(str):
    """A YAML scalar without quotes. The type of the scalar's field decides how it is read."""

    __slots__ = ()


def resolve(value: Any) -> Any:
    """value with its plain scalars read as in YAML 1.2: as null, booleans or numbers, else as
    strings.
    """
    if isinstance(value, Plain):
        return scalar(value)
    if isinstance(value, dict):
        return {key: resolve(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item) for item in value]
    return value


def scalar(text: Plain) -> Any:
    """The value of a plain scalar in a field without a type."""
    if text in _NULLS:
        return None
    if text.lower() in ("true", "false") and text in _TRUTH:
        return _TRUTH[text]
    if len(text) <= 18 and _INT.fullmatch(text):
        return int(text)
    if len(text) <= 40 and _FLOAT.fullmatch(text) and not text.lstrip("+-").startswith("00"):
        return float(text) if not _leading_zero(text) else str(text)
    return str(text)


def _leading_zero(text: str) -> bool:
    bare = text.lstrip("+-")
    return len(bare) > 1 and bare[0] == "0" and bare[1].isdigit()


class _Shape(NamedTuple):
    """The fields of a Struct. ``fields``: types by name in a manifest. ``required``: fields without
    a default.
    """

    fields: dict[str, inspect.Type]
    required: tuple[str, ...]


@lru_cache(maxsize=256)
def _shape(kind: type[msgspec.Struct]) -> _Shape:
    struct = struct_type(kind)
    return _Shape(
        {field.encode_name: _bare(field.type) for field in struct.fields},
        tuple(field.encode_name for field in struct.fields if field.required),
    )


def _bare(kind: inspect.Type) -> inspect.Type:
    """The type of a field without its rules and without null as an alternative."""
    if isinstance(kind, inspect.Metadata):
        return _bare(kind.type)
    if isinstance(kind, inspect.UnionType):
        kinds = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
        return _bare(kinds[0]) if len(kinds) == 1 else kind
    return kind


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def conform(
    value: Any, kind: type[msgspec.Struct], problems: list[Problem], path: str = ""
) -> dict[str, Any]:
    """The value as builtins that fit the Struct. Values that do not fit are left out, and a problem
    for each is added to ``problems``.
    """
    fitted = _fields(value, _shape(kind), path, problems)
    return fitted if isinstance(fitted, dict) else {}


def _name_of(value: Any) -> str:
    if isinstance(value, Plain):
        value = scalar(value)
    for kinds, name in (
        (bool, "true or false"),
        (int, "a number"),
        (float, "a number"),
        (str, "a string"),
        (dict, "a mapping"),
        (list, "a list"),
    ):
        if isinstance(value, kinds):
            return f"{name} ({shown(value)})" if not isinstance(value, dict | list) else name
    return "null"


def _wrong(path: str, expected: str, value: Any, problems: list[Problem]) -> Any:
    problems.append(Problem(path, f"must be {expected}, not {_name_of(value)}", TYPE))
    return _ABSENT


def _is_null(value: Any) -> bool:
    return value is None or (type(value) is Plain and value in _NULLS)


def _unknown(name: str, shape: _Shape) -> str:
    known = list(shape.fields)
    if RENAMED.get(name) in known:
        return f'unknown field; this version calls it "{RENAMED[name]}"'
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    folded = [field for field in known if field.lower() == name.lower().replace("_", "")]
    for suggestion in folded or near:
        return f'unknown field; did you mean "{suggestion}"?'
    return "unknown field"


def _fields(value: Any, shape: _Shape, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, dict):
        return _wrong(path, "a mapping", value, problems)
    if len(problems) >= PROBLEMS_MAX:
        return _ABSENT
    fitted: dict[str, Any] = {}
    for name, given in value.items():
        kind = shape.fields.get(name)
        field = f"{path}.{name}" if path else str(name)
        if kind is None:
            problems.append(Problem(field, _unknown(str(name), shape), UNKNOWN))
        elif not _is_null(given):
            item = _fit(given, kind, field, problems)
            if item is not _ABSENT:
                fitted[str(name)] = item
        if len(problems) >= PROBLEMS_MAX:
            return fitted
    for name in shape.required:
        if _is_null(value.get(name)):
            problems.append(Problem(join(path, name), "must be set", REQUIRED))
    return fitted


def _fit(value: Any, kind: inspect.Type, path: str, problems: list[Problem]) -> Any:
    fitter = _FITTERS.get(type(kind))
    return resolve(value) if fitter is None else fitter(value, kind, path, problems)


def _struct(value: Any, kind: Any, path: str, problems: list[Problem]) -> Any:
    given = value.get("value") if kind.cls is EnvVar and isinstance(value, dict) else None
    if type(given) is Plain and (given in _TRUTH or _NUMBER_OF_YAML.fullmatch(given)):
        what = "true or false" if given in _TRUTH else "a number"
        message = f"must be a string, not {what} ({shown(str(given))}): write it in quotes"
        problems.append(Problem(f"{path}.value", message, TYPE))
        value = {**value, "value": None}
    return _fields(value, _shape(kind.cls), path, problems)


def _str(value: Any, _kind: Any, path: str, problems: list[Problem]) -> Any:
    return str(value) if isinstance(value, str) else _wrong(path, "a string", value, problems)


def _rights(value: Any, kind: Any, path: str, problems: list[Problem]) -> Any:
    """The rights of a file: Kubernetes reads ``0644`` as an octal number."""
    if type(value) is Plain and _OCTAL.fullmatch(value):
        return int(value.replace("o", ""), 8)
    return str(value) if type(value) is str else _int(value, kind, path, problems)


def _one_of(value: Any, kind: Any, path: str, problems: list[Problem]) -> Any:
    """A value of one of several types: a quantity, or the rights of a file, which have no
    fraction."""
    if any(isinstance(member, inspect.FloatType) for member in kind.types):
        return _quantity(value, kind, path, problems)
    return _rights(value, kind, path, problems)


def _quantity(value: Any, _kind: Any, path: str, problems: list[Problem]) -> Any:
    """Fits a value to a quantity."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _wrong(path, "a quantity", value, problems)
    return value


def _list(value: Any, kind: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, list | tuple):
        return _wrong(path, "a list", value, problems)
    fitted = []
    of = _bare(kind.item_type)
    for index, element in enumerate(value):
        item = _fit(element, of, f"{path}[{index}]", problems)
        if item is not _ABSENT:
            fitted.append(item)
        if len(problems) >= PROBLEMS_MAX:
            break
    return fitted


def _dict(value: Any, kind: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, dict):
        return _wrong(path, "a mapping", value, problems)
    fitted = {}
    of = _bare(kind.value_type)
    texts = isinstance(of, inspect.StrType)
    for key, given in value.items():
        # Kubernetes reads a null in a map of strings as the empty string.
        item = _fit("" if texts and _is_null(given) else given, of, f"{path}[{key}]", problems)
        if item is not _ABSENT:
            fitted[str(key)] = item
    return fitted


def _int(value: Any, _kind: Any, path: str, problems: list[Problem]) -> Any:
    given = str(value) if type(value) is Plain else value
    if type(value) is Plain:
        if _INT.fullmatch(value):
            # The time to parse a number grows with the square of its digits, so a long number
            # becomes a number beyond every limit.
            value = int(value) if len(value) <= 20 else _INT64
        elif _INT.fullmatch(value.lstrip("+-").lstrip("0") or "0"):
            message = f"must be a whole number without leading zeros, not {shown(str(value))}"
            problems.append(Problem(path, message, TYPE))
            return _ABSENT
    if isinstance(value, bool) or not isinstance(value, int):
        return _wrong(path, "a whole number", value, problems)
    if not -_INT64 <= value < _INT64:
        problems.append(Problem(path, f"{shown(given)} does not fit 64 bits", TYPE))
        return _ABSENT
    return value


def _bool(value: Any, _kind: Any, path: str, problems: list[Problem]) -> Any:
    if type(value) is Plain and value in _TRUTH:
        return _TRUTH[value]
    if isinstance(value, bool):
        return value
    return _wrong(path, "true or false", value, problems)


def _float(value: Any, _kind: Any, path: str, problems: list[Problem]) -> Any:
    if type(value) is Plain:
        value = scalar(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _wrong(path, "a number", value, problems)
    return value


def _time(value: Any, _kind: Any, path: str, problems: list[Problem]) -> Any:
    try:
        moment = msgspec.convert(str(value), datetime)
    except (msgspec.ValidationError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        problems.append(
            Problem(
                path, f"must be a time like 2026-01-01T00:00:00Z, not {shown(str(value))}", TYPE
            )
        )
        return _ABSENT
    return str(value)


_FITTERS: Final[dict[type, Callable[[Any, Any, str, list[Problem]], Any]]] = {
    inspect.StructType: _struct,
    inspect.VarTupleType: _list,
    inspect.DictType: _dict,
    inspect.UnionType: _one_of,
    inspect.StrType: _str,
    inspect.IntType: _int,
    inspect.BoolType: _bool,
    inspect.FloatType: _float,
    inspect.DateTimeType: _time,
}
"""For each type the function that fits a value to it; a field of a type that is not listed accepts
every value."""
