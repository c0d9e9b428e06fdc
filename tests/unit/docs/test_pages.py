"""Links, paths and modules that pages and docstrings name exist."""

import re
from functools import cache
from pathlib import Path

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


@cache
def anchors(page: Path) -> set[str]:
    """GitHub's anchors of the headings, and those that are written as HTML."""
    text = page.read_text()
    names = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for title in re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        names.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return names


def leads_somewhere(page: Path, target: str, anchor: str) -> bool:
    """Whether a link of the page to another place of the repository has its file and heading."""
    path = (page.parent / target) if target else page
    return path.exists() and (not anchor or path.suffix != ".md" or anchor in anchors(path))


def test_links_of_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}#{anchor}"
        for page in PAGES
        for target, anchor in LINK.findall(CODE.sub("", page.read_text()))
        if ":" not in target and not leads_somewhere(page, target, anchor)
    ]
    assert broken == []


PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|yaml|sh|md|json|toml|yml))`")
HOMES = [ROOT, ROOT / "libs" / "admittance", ROOT / "services" / "admittance", ROOT / "tests"]
DOTTED = re.compile(r"(?<!`)`(admittance\.[\w.]+)`")
SOURCES = [
    path
    for base in ("libs", "services", "tests", "tools", "benchmarks")
    for path in sorted((ROOT / base).rglob("*.py"))
]


def is_defined(dotted: str) -> bool:
    """Whether a module or package has the name, or a module that contains the last words."""
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        for base in ("libs", "services"):
            path = ROOT.joinpath(base, *parts[:split])
            if split == len(parts) and path.is_dir():
                return True
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.exists() and set(parts[split:]) <= set(
                    re.findall(r"\w+", file.read_text())
                ):
                    return True
    return False


def test_files_named_on_pages_exist() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        for path in PATH.findall(page.read_text())
        if not any((home / path).exists() for home in HOMES)
    ]
    assert missing == []


def test_modules_named_on_pages_and_in_docstrings_exist() -> None:
    named = {
        (path.relative_to(ROOT).as_posix(), dotted)
        for path in (*PAGES, *SOURCES)
        for dotted in DOTTED.findall(path.read_text())
    }
    assert [(page, dotted) for page, dotted in sorted(named) if not is_defined(dotted)] == []


CITATION = re.compile(r"(docs/[\w/-]+\.md)((?:(?:,| to)?\s*#[\w-]+(?:\.\d+)*)+)")
"""A page and its sections, such as ``docs/spec/lifecycle.md#2.2 to #2.4, #T09``."""


def test_sections_that_code_and_messages_name_exist() -> None:
    cited = {
        (page, anchor)
        for path in SOURCES
        for page, sections in CITATION.findall(path.read_text())
        for anchor in re.findall(r"#([\w.-]*[\w-])", sections)
    }
    assert ("docs/spec/lifecycle.md", "2.7") in cited
    existing = {page: anchors(ROOT / page) for page, _ in cited}
    assert [(page, anchor) for page, anchor in sorted(cited) if anchor not in existing[page]] == []


def test_a_workload_is_followed_through_at_most_25_files() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("## One workload, from")[2].partition("\n## ")[0]
    assert 15 <= len(set(re.findall(r"`([\w/]+\.py)`", section))) <= 25
