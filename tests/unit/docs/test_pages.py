"""Links and paths on the pages exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s#]+)?(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of the headings, and those that are written as HTML."""
    text = page.read_text()
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for title in re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(CODE.sub("", page.read_text())):
        if ":" in target:
            continue
        path = (page.parent / target) if target else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_files_named_in_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+/[\w/]+\.py)`", text))
    homes = (ROOT, ROOT / "libs" / "admittance")
    assert [path for path in sorted(named) if not any((h / path).exists() for h in homes)] == []


def test_a_workload_is_followed_through_at_most_25_files() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("## One workload, from")[2].partition("\n## ")[0]
    assert 15 <= len(set(re.findall(r"`([\w/]+\.py)`", section))) <= 25
