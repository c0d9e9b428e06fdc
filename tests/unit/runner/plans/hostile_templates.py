"""Random pod templates that a hostile user could submit: each is a normal one with some values
replaced by values of any kind, such as a zero byte, a list in place of a name, or half a source
of a variable."""

from __future__ import annotations

import copy
from random import Random
from typing import Any, Final

_TEXTS: Final = (
    *("", "\0", "a\0b", "=", "A=B", "$(A)", "$(", "$$", "../..", "/", "~", "é\U0001f600", "\n"),
    *("x" * 5_000, "-v/:/host", "*", "\x7f", "true", "metadata.name", "status.podIP", "."),
)
_NUMBERS: Final = (0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308)
_PATHS: Final = ("command", "args", "workingDir", "env", "image", "name", "restartPolicy")


def hostile_template(chance: Random) -> dict[str, Any]:
    """A random template. The same state of ``chance`` gives the same template."""
    template = _template(chance)
    for _ in range(chance.randint(0, 3)):
        _spoil(chance, template)
    return template


def _template(chance: Random) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": "busybox",
        "command": ["/bin/echo", "$(GREETING)"],
        "args": ["a", "b"],
        "workingDir": "/tmp",
        "env": [
            {"name": "GREETING", "value": "hello"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "KEY", "valueFrom": _source(chance) if chance.random() < 0.5 else None},
        ],
    }
    if chance.random() < 0.3:
        container["envFrom"] = [{"secretRef": {"name": "s", "optional": True}, "prefix": "P_"}]
    if chance.random() < 0.5:
        container["volumeMounts"] = [{"name": "v", "mountPath": "/tmp", "subPath": "a/b"}]
    spec: dict[str, Any] = {
        "containers": [copy.deepcopy(container) for _ in range(chance.randint(0, 2))],
        "initContainers": [copy.deepcopy(container) for _ in range(chance.randint(0, 1))],
        "terminationGracePeriodSeconds": chance.choice((None, None, 0, 5, *_NUMBERS[:5])),
    }
    volume: dict[str, Any] = chance.choice(
        ({"emptyDir": {}}, {"hostPath": {"path": "/tmp"}}, {"secret": {}}, {})
    )
    spec["volumes"] = [{"name": "v", **volume}]
    policy = chance.choice(('{"backoffLimit": 1}', *_TEXTS))
    metadata = {"annotations": {"admittance.dev/completions": chance.choice(("3", *_TEXTS))}}
    if chance.random() < 0.5:
        metadata["annotations"]["admittance.dev/job-policy"] = policy
    return {"metadata": metadata, "spec": spec}


def _source(chance: Random) -> Any:
    name = chance.choice(("fieldRef", "secretKeyRef", "configMapKeyRef", "resourceFieldRef", "x"))
    field = chance.choice(("fieldPath", "key", "name", "resource"))
    return chance.choice(
        (None, {name: _any(chance)}, {name: {field: _any(chance)}}, {name: {}}, {}, _any(chance))
    )


def _any(chance: Random, depth: int = 0) -> Any:
    kind = chance.randint(0, 5 if depth < 3 else 2)
    if kind == 0:
        return chance.choice(_TEXTS)
    if kind == 1:
        return chance.choice(_NUMBERS)
    if kind == 2:
        return chance.choice((None, True, False))
    if kind == 3:
        return [_any(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    if kind == 4:
        return {str(_any(chance, 3)): _any(chance, depth + 1) for _ in range(chance.randint(0, 3))}
    return {chance.choice(_PATHS): _any(chance, depth + 1)}


def _spoil(chance: Random, template: Any) -> None:
    """Replaces one value in the template by another one."""
    at = template
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = chance.choice(keys)
        below = at[key]
        if not isinstance(below, dict | list) or chance.random() < 0.2:
            # Most values stay of their type, so that validation does not refuse everything.
            text = isinstance(below, str) and chance.random() < 0.7
            at[key] = chance.choice(_TEXTS) if text else _any(chance)
            return
        at = below
