"""How a program names the arguments of requests, for errors about them."""

from __future__ import annotations

from typing import Final, NamedTuple


class Spelling(NamedTuple):
    """The names of arguments; the defaults are those of `Client`. ``in_namespace``: how a request
    chooses the namespace ``{}``. ``check``, ``anyway``: with what comes before a value, or with the
    value."""

    queue: str = "queue"
    namespace: str = "namespace"
    in_namespace: str = 'namespace="{}"'
    anyway: str = "anyway=True"
    image: str = "image"
    env: str = "env"
    inputs: str = "inputs"
    outputs: str = "outputs"
    check: str = "check="
    message: str = "message"
    user: str = "user"
    labels: str = "labels"
    states: str = "states"
    sort_by: str = "sort_by"
    signal: str = "signal"
    array: str = "array"
    fail_fast: str = "fail_fast"
    after: str = "after"
    after_unmet: str = "after_unmet"


IN_PYTHON: Final = Spelling()
