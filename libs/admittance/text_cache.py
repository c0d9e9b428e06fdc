"""Caches for functions of texts.

Any user may send a text of a megabyte as a name. Thousands of them would fill memory if a cache
kept them, so these caches keep short texts only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

R = TypeVar("R")
B = TypeVar("B")

LONGEST: Final = 512
"""The most characters of a text that a cache keeps: more than any valid name has."""


class _Results(dict[str, R]):
    """The results of a function by its texts. A lookup of a known text calls no code in Python."""

    def __init__(self, function: Callable[[str], R], maxsize: int) -> None:
        super().__init__()
        self._function = function
        self._maxsize = maxsize

    def __missing__(self, text: str) -> R:
        result = self._function(text)
        if len(text) <= LONGEST:
            if len(self) >= self._maxsize:
                self.clear()
            self[text] = result
        return result


def text_cache(maxsize: int) -> Callable[[Callable[[str], R]], Callable[[str], R]]:
    """A decorator: the results for at most ``maxsize`` texts are kept."""

    def decorate(function: Callable[[str], R]) -> Callable[[str], R]:
        return _Results(function, maxsize).__getitem__

    return decorate


def pair_cache(maxsize: int) -> Callable[[Callable[[str, B], R]], Callable[[str, B], R]]:
    """A decorator for functions of a text and a second value, which is a number or a text. The
    cache is ``typed``: True equals 1, but need not have the result for 1."""

    def decorate(function: Callable[[str, B], R]) -> Callable[[str, B], R]:
        kept = lru_cache(maxsize=maxsize, typed=True)(function)

        def call(text: str, second: B) -> R:
            if len(text) > LONGEST or (isinstance(second, str) and len(second) > LONGEST):
                return function(text, second)
            return kept(text, second)

        call.__doc__ = function.__doc__
        return call

    return decorate
