"""Loads `nats.js` at its first use.

nats-py imports `nats.js` with its client, a fifth of what a short command imports, and nothing but
`Client.jetstream` and messages with headers need the package. `importlib.util.LazyLoader` would
load the package as soon as nats-py imports it.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

NAME = "nats.js"


def load_at_first_use() -> None:
    """Puts a module in place of `nats.js` that loads the package when it is used. Does nothing if
    nats-py is imported already, or not found."""
    package = None if "nats" in sys.modules else find_spec("nats")
    if package is None or package.origin is None:
        return
    spec = PathFinder.find_spec(NAME, [str(Path(package.origin).parent)])
    if spec is None or spec.loader is None:
        return
    loader, module = spec.loader, module_from_spec(spec)
    # Without `__path__`, an import of a module of `nats.js` asks `load` for the path, and so loads
    # the package before the module.
    path = vars(module).pop("__path__")

    def load(name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        del vars(module)["__getattr__"]
        vars(module)["__path__"] = path
        loader.exec_module(module)
        return getattr(module, name)

    vars(module)["__getattr__"] = load
    sys.modules[NAME] = module


def bind() -> None:
    """Makes `nats.js` an attribute of `nats`, as an import of the package would have done."""
    import nats

    if not hasattr(nats, "js"):
        vars(nats)["js"] = sys.modules[NAME]
