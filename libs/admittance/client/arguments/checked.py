"""Checks the arguments of programs: one of a wrong type is named before anything is sent.

The annotations of a method say what it takes, and `checked_methods` compares each call with them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    ParamSpec,
    TypeGuard,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from admittance.client.errors import BadInput

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

INT64_MAX: Final = 2**63 - 1
"""The greatest whole number that a message can have."""

LISTS: Final[Mapping[str, str]] = {
    "command": (
        'command is a list of words, such as ["python", "train.py"]; '
        'a line for the shell is ["sh", "-c", line]'
    ),
    "deletes": 'deletes is a list of kind/name, such as ["workload/nightly"]',
}
"""The error for an argument of that name that is no list."""

NAMES: Final = frozenset(
    {
        "name",
        "new_name",
        "namespace",
        "kind",
        "queue",
        "cluster_queue",
        "cohort",
        "check",
        "priority_class",
        "user",
    }
)
"""The arguments that name something."""
NAME_MAX: Final = 253
"""The most characters of a name. A server ends the connection for a subject that is too long."""

_WORDS: Final[Mapping[object, str]] = {
    str: "a text",
    bytes: "bytes",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    datetime: "a datetime",
    date: "a date",
    Mapping: "a dict",
    Sequence: "a list",
    Iterable: "a list",
}


def checked_methods(cls: type[C]) -> type[C]:
    """The class, with each public method `checked`."""
    for name, made in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(made, classmethod):
            setattr(cls, name, classmethod(checked(made.__func__)))
        elif inspect.isfunction(made):
            setattr(cls, name, checked(made))
    return cls


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which raises BadInput for an argument that its annotation does not allow, and
    for an empty text unless that is the default. An iterable argument is read once, to a tuple.
    Arguments that ``**options`` takes are left to the function that they are passed on to."""
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> Mapping[str, Any]:
        annotations = get_type_hints(function)
        if "environ" in annotations:
            # A variable of an environment need not be a text, and one that is used is checked.
            annotations["environ"] = Mapping
        return annotations

    def check(*args: P.args, **kwargs: P.kwargs) -> inspect.BoundArguments:
        bound = signature.bind(*args, **kwargs)
        for name, given in bound.arguments.items():
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                continue
            hint = hints().get(name, Any)
            value = tuple(given) if get_origin(hint) is Iterable and _is_iterable(given) else given
            if value == "" and isinstance(value, str) and signature.parameters[name].default != "":
                raise BadInput(f"{name} is empty")
            if problem := _problem(name, value, hint):
                raise BadInput(problem)
            if name in NAMES and isinstance(value, str) and len(value) > NAME_MAX:
                raise BadInput(
                    f"{name} has {len(value)} characters, at most {NAME_MAX} are allowed"
                )
            bound.arguments[name] = value
        return bound

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: P.args, **kwargs: P.kwargs) -> Any:
            bound = check(*args, **kwargs)
            return await function(*bound.args, **bound.kwargs)

        return cast(Callable[P, R], later)

    @functools.wraps(function)
    def now(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = check(*args, **kwargs)
        return function(*bound.args, **bound.kwargs)

    return now


def not_default(
    function: Callable[..., object], given: Mapping[str, object], *, but: Iterable[str]
) -> Sequence[str]:
    """The names of the given arguments that differ from the function's defaults. ``but``: names
    that are left out."""
    parameters = inspect.signature(function).parameters
    rest = given.keys() - set(but)
    return [name for name in parameters if name in rest and given[name] != parameters[name].default]


def at_least(least: int, /, **given: int | None) -> None:
    """Raises BadInput for a number that is less than ``least``, or that no message can have."""
    for name, value in given.items():
        if value is not None and value < least:
            raise BadInput(f"{name} {value} is less than {least}")
        if value is not None and value > INT64_MAX:
            raise BadInput(f"{name} {value} is too great a number")


def words(given: str | Sequence[str]) -> Sequence[str]:
    """The texts of a list; of a text itself a list."""
    return (given,) if isinstance(given, str) else given


def _problem(name: str, value: object, hint: Any) -> str:
    """What is wrong with an argument; "" if its annotation allows it."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    inside = ""
    for kind in kinds:
        plain = get_origin(kind) or kind
        if not _is_a(value, plain):
            continue
        inside = _problem_inside(name, value, get_args(kind))
        if not inside:
            return ""
    if inside:
        return inside
    if name in LISTS:
        return LISTS[name]
    if isinstance(value, str) and str in kinds:
        return f"{name} {_shown(value)} is not a text of Unicode"
    if isinstance(value, datetime) and datetime in kinds:
        return f"{name} {value} has no time zone, such as datetime.now(UTC) has"
    return f"{name} {_shown(value)} is not {_said(kinds)}"


def _is_a(value: object, kind: Any) -> bool:
    """Whether the value is of the kind, whatever it contains."""
    if kind is Any:
        return True
    if kind is str:
        return isinstance(value, str) and _is_unicode(value)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if kind is datetime:
        return isinstance(value, datetime) and value.tzinfo is not None
    if kind is date:
        # A datetime is a date of Python, but its day depends on its time zone.
        return isinstance(value, date) and not isinstance(value, datetime)
    if kind in (Sequence, Iterable):
        return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
    return isinstance(value, kind)


def _problem_inside(name: str, value: object, kinds: tuple[Any, ...]) -> str:
    """What is wrong with the first wrong item of a list or dict. ``kinds``: of its items, or of its
    keys and its values; empty: any."""
    items: Iterable[tuple[object, Any]] = ()
    if isinstance(value, Mapping) and len(kinds) == 2:
        items = (
            (item, kind) for pair in value.items() for item, kind in zip(pair, kinds, strict=True)
        )
    elif isinstance(value, Sequence) and len(kinds) == 1:
        items = ((item, kinds[0]) for item in value)
    return next(filter(None, (_problem(f"{name}:", item, kind) for item, kind in items)), "")


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_unicode(value: str) -> bool:
    """False for a text that UTF-8 cannot have."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _said(kinds: Iterable[Any]) -> str:
    """The kinds in words."""
    said = dict.fromkeys(_word(get_origin(kind) or kind) for kind in kinds if kind is not NoneType)
    *others, last = said
    return f"{', '.join(others)} or {last}" if others else last


def _word(kind: Any) -> str:
    if hasattr(kind, "__struct_fields__"):
        return "a manifest of admittance.api"
    return _WORDS.get(kind) or f"of the type {kind.__name__}"


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
