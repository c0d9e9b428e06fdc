"""Writes `sync_client` and `sync_job` of `admittance.client`: the methods of `Client` and `Job`
without ``await``.

``python -m tools.sync_client``. Signatures and docstrings are those of `job.py`, and of `client.py`
with the classes from which `Client` inherits methods.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "libs" / "admittance" / "client"
NAMES: Final = ("Job", "Client")

HEAD: Final = '''"""`Sync{name}`: `{name}` for programs without a loop.

Made by ``python -m tools.sync_client``; edit {sources} instead.
"""

from __future__ import annotations

{imports}


class Sync{name}:
    """{about}"""
'''

JOB: Final = """

    def __init__(self, thread: LoopThread, job: Job) -> None:
        self._thread = thread
        self._inner = job

    def __repr__(self) -> str:
        return f"<{{type(self).__name__}} {{self.namespace}}/{{self.name}}>"

{methods}"""

CLIENT: Final = '''
    def __init__(self, thread: LoopThread, client: Client) -> None:
        self._thread = thread
        self._inner = client
        thread.close_with(client.close)

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """{close}"""
        self._thread.end()

{methods}'''

ABOUT_CLIENT: Final = """A connection to the system, as `Client` is, with methods that return
    results without ``await``. `connect` makes one; it is closed at the end of ``with``, or when
    Python ends.

    Its connection lives on a thread of its own, so that it works in a notebook, and several threads
    may use one. A call raises an error of `admittance.client.errors`."""

IMPORTS: Final = """import os
from collections.abc import Iterator
from admittance.client.calls import LoopThread
from admittance.client.client import Client
from admittance.client.holding import Kept, SyncHold, hold_on
from admittance.client.job import Job
"""
SYNC: Final = {
    "Job": "SyncJob",
    "Client": "SyncClient",
    "Hold": "SyncHold",
    "WorkloadHold": "Kept",
}
"""The classes without ``await``, by those with."""
SYNC_JOB: Final = "from admittance.client.sync_job import SyncJob\n"


def methods(cls: ast.ClassDef) -> Iterator[str]:
    """The source of each public method of a class but ``close``, without ``await``."""
    for node in cls.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.name.startswith("_") and node.name != "close":
            yield _method(node)


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    assert node.returns is not None, node.name
    returned = ast.unparse(node.returns)
    kinds = [ast.unparse(decorator) for decorator in node.decorator_list]
    names = [argument.arg for argument in node.args.args[1:]]
    options = [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
    given = ", ".join(
        [*names, *(f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs), *options]
    )
    inner = f"self._inner.{node.name}"
    call = f"{inner}({given})"
    later = f"lambda: {call}" if given else inner
    if "classmethod" in kinds:
        body = f"""
        thread = LoopThread()
        try:
            return cls(thread, thread.run(lambda: Client.{node.name}({given})))
        except BaseException:
            thread.end()
            raise
        """
    elif "property" in kinds:
        body = f"return self._inner.{node.name}"
    elif "overload" in kinds:
        body = "..."
    elif returned == "WorkloadHold | Hold":
        body = f"return hold_on(self._thread, {later})"
    elif returned == "Hold":
        body = f"return SyncHold(self._thread, {later})"
    elif returned.startswith("Stream["):
        body = f"return self._thread.iterate({later})"
    elif isinstance(node, ast.AsyncFunctionDef):
        body = f"self._thread.run({later})"
        body = f"return SyncJob(self._thread, {body})" if returned == "Job" else f"return {body}"
    else:
        body = f"return SyncJob(self._thread, {call})"
    returned = returned.replace("Stream[", "Iterator[")
    shown = " | ".join(SYNC.get(part, part) for part in returned.split(" | "))
    lines = [f"@{decorator}" for decorator in kinds]
    lines.append(f"def {node.name}({ast.unparse(node.args)}) -> {shown}:")
    whole = "".join(f"    {line}\n" for line in lines)
    if "overload" not in kinds:
        doc = ast.get_docstring(node, clean=False)
        assert doc, f"{node.name} has no docstring"
        whole += f'        """{doc}"""\n'
    return whole + "".join(f"        {line.removeprefix(' ' * 8)}\n" for line in body.split("\n"))


def target(name: str) -> Path:
    """The module with the class ``Sync<name>``."""
    return FOLDER / f"sync_{name.lower()}.py"


def class_in(tree: ast.Module, name: str) -> ast.ClassDef:
    """The class of that name in a module."""
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def module_of(tree: ast.Module, name: str) -> str:
    """The path in `admittance.client` of the module from which a module imports a class."""
    return next(
        str(node.module).removeprefix("admittance.client.").replace(".", "/") + ".py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]
    )


def written(name: str) -> str:
    """The text of the module, before it is formatted."""
    source = FOLDER / f"{name.lower()}.py"
    tree = ast.parse(source.read_text())
    cls = class_in(tree, name)
    trees, classes = [tree], [cls]
    for inherited in cls.bases:
        base = ast.unparse(inherited)
        trees.append(ast.parse((FOLDER / module_of(tree, base)).read_text()))
        classes.append(class_in(trees[-1], base))
    imports = "".join(
        f"{ast.unparse(node)}\n"
        for node in chain.from_iterable(each.body for each in trees)
        if isinstance(node, ast.Import | ast.ImportFrom) and "__future__" not in ast.unparse(node)
    )
    close = next(
        (
            node
            for node in cls.body
            if isinstance(node, ast.AsyncFunctionDef) and node.name == "close"
        ),
        None,
    )
    head = HEAD.format(
        name=name,
        sources=f"`{source.name}`" + (" or a module of `methods`" if cls.bases else ""),
        imports=IMPORTS + (SYNC_JOB if name == "Client" else "") + imports,
        about=ABOUT_CLIENT if name == "Client" else ast.get_docstring(cls, clean=False),
    )
    return head + {"Job": JOB, "Client": CLIENT}[name].format(
        close=ast.get_docstring(close, clean=False) if close is not None else "",
        methods="\n".join(chain.from_iterable(map(methods, classes))),
    )


def formatted(text: str, path: Path) -> str:
    """The text of the module as ruff leaves it, without imports that it does not use."""
    name = str(path.relative_to(ROOT))
    ruff = [sys.executable, "-m", "ruff"]
    for words in (
        ["check", "--fix", "--quiet", "--select", "F401,I", "--stdin-filename", name, "-"],
        ["format", "--quiet", "--stdin-filename", name, "-"],
    ):
        done = subprocess.run(
            [*ruff, *words], input=text, capture_output=True, text=True, cwd=ROOT, check=True
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    for each in NAMES:
        target(each).write_text(formatted(written(each), target(each)))
