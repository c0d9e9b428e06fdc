"""Reasons are constants of one module, and a page lists them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.pages.reasons import PAGE, page, sections

from admittance.events import reasons
from admittance.runner.jobs import job_policy

ROOT = Path(__file__).parents[3]
APART = {
    "libs/admittance/events/reasons.py",
    "services/admittance/runner/jobs/job_policy.py",  # the shim imports it, so it imports nothing
    "libs/admittance/checks/controller.py",  # the default of a public method
}
LISTED = {reason.word: reason for _, listed in sections() for reason in listed}
WORDS = {word for word in LISTED if word not in ("Pending", "Ready", "Rejected")}
"""Without those that are states of checks, too."""


def sources() -> list[Path]:
    paths = [path for root in ("libs", "services") for path in (ROOT / root).rglob("*.py")]
    return sorted(path for path in paths if path.relative_to(ROOT).as_posix() not in APART)


def _says_a_reason(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("reason", "status_reason")


def literal_reasons(path: Path) -> Iterator[tuple[str, int, str]]:
    """Words in the place of a reason: arguments ``reason=``, and values compared with a reason."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.keyword(arg="reason", value=value):
                words = [value]
            case ast.Compare(left=left, comparators=others) if any(
                map(_says_a_reason, (left, *others))
            ):
                words = [left, *others]
            case _:
                continue
        for value in words:
            if isinstance(value, ast.Constant) and value.value in WORDS:
                yield path.name, value.lineno, value.value


def test_the_page_of_reasons_is_current() -> None:
    assert PAGE.read_text() == page(), "run python -m tools.pages.reasons"


def test_every_reason_has_a_meaning_and_is_listed_once() -> None:
    constants = {
        value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)
    }
    assert constants == set(LISTED)
    assert len(constants) == sum(len(listed) for _, listed in sections())
    assert [reason.word for reason in LISTED.values() if not reason.about.endswith(".")] == []


@pytest.mark.parametrize("root", ["libs", "services"])
def test_no_module_spells_a_reason_out(root: str) -> None:
    literals = [
        literal_reason
        for path in sources()
        if ROOT / root in path.parents
        for literal_reason in literal_reasons(path)
    ]
    assert literals == []


def test_a_literal_reason_would_be_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('note(reason="OnHold")\nif evicted.reason != "Preempted":\n    pass\n')
    assert {word for _, _, word in literal_reasons(path)} == {"OnHold", "Preempted"}


def test_the_reasons_of_the_shim_are_those_of_the_page() -> None:
    names = [
        name for name in vars(job_policy) if name.endswith(("_EXCEEDED", "_POLICY", "_INDEXES"))
    ]
    assert len(names) == 6
    assert all(getattr(job_policy, name) == getattr(reasons, name) for name in names)
