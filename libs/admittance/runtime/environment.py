"""Variables of the environment as values. What is set to nothing counts as not set.

Whatever is wrong is a SetupError that names the variable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from admittance.api.names import subdomain
from admittance.runtime.errors import SetupError

T = TypeVar("T")


def number(env: Mapping[str, str], name: str, default: float, *, least: float) -> float:
    """A finite number, no less than ``least``. Raises SetupError."""
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SetupError(f"{name}={text!r} is not a number")
    if value < least:
        raise SetupError(f"{name}={text} is less than {least:g}")
    return value


def whole(env: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    """A whole number, no less than ``least``. Raises SetupError."""
    value = number(env, name, float(default), least=least)
    if not value.is_integer():
        raise SetupError(f"{name}={env[name]} is not a whole number")
    return int(value)


def choice(env: Mapping[str, str], name: str, choices: Mapping[str, T]) -> T | None:
    """What the word stands for; None: none is set. Raises SetupError."""
    text = env.get(name)
    if not text:
        return None
    if text not in choices:
        raise SetupError(f"{name}={text!r} is none of {', '.join(choices)}")
    return choices[text]


def listed(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    """What stands between commas, each once, in that order; empty: nothing does."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, env.get(name, "").split(",")))))


def named(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The same, of names that an object can have, or can name. Raises SetupError."""
    found = listed(env, name)
    for one in found:
        if complaint := subdomain(one):
            raise SetupError(f"{name}: {complaint}")
    return found
