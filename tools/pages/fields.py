"""``python -m tools.pages.fields`` writes what each field does into docs/manifests.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from admittance.api.configuration import Configuration
from admittance.api.effects.annotations import KEYS
from admittance.api.effects.configuration import CONFIGURATION
from admittance.api.effects.field_effect import Effect, FieldEffect, Table
from admittance.api.effects.walk import MANIFESTS, inner_struct
from admittance.api.fields.struct_types import struct_type
from admittance.api.manifests import STRUCTS
from admittance.api.meta import Condition, LabelSelector, ObjectMeta, Toleration
from admittance.api.pods import Container, PodTemplate

PAGE: Final = Path(__file__).parents[2] / "docs" / "manifests.md"
BEGIN: Final = (
    "<!-- fields: made by `python -m tools.pages.fields` from libs/admittance/api/effects -->\n"
)
END: Final = "<!-- end of fields -->\n"

SHARED: Final[Mapping[type[msgspec.Struct], str]] = {
    ObjectMeta: "Metadata",
    PodTemplate: "Pod templates of Workload and Job",
    Container: "Containers of pod templates",
    Toleration: "Tolerations",
    LabelSelector: "Label selectors",
    Condition: "Conditions",
}
"""Parts of several kinds, each described once."""

HEAD: Final = """
| | `apply` and `submit -f` | the object |
| --- | --- | --- |
| works | say nothing | has the effect of Kueue or Kubernetes |
| works in part | warn where the value asks for the rest | has the stated effect |
| no effect | warn, unless the value asks for what happens anyway | only keeps the field |
| refused | refuse the object, and name the field | is not stored |

Fields of pods without effect are read neither by admission nor by the local runner or the docker
executor; a runner of your own gets the whole template. A field that is in none of these lists is
unknown, and refused.
"""


class Row(NamedTuple):
    """A field, by its path in the manifest, and its effect."""

    path: str
    effect: FieldEffect


def rows(struct: type[msgspec.Struct], table: Table, path: str = "") -> Iterator[Row]:
    """The fields of a Struct, and of the Structs inside it that `SHARED` does not name."""
    for field in struct_type(struct).fields:
        effect = table[struct][field.encode_name]
        inner, is_list = inner_struct(field.type)
        here = f"{path}{field.encode_name}{'[]' if is_list else ''}"
        yield Row(here, effect)
        if inner is not None and inner not in SHARED:
            yield from rows(inner, table, f"{here}.")


def text() -> str:
    """The generated part of docs/manifests.md."""
    parts = [HEAD]
    for name, struct in STRUCTS.items():
        parts.append(_section(name, struct, MANIFESTS))
    for part, name in SHARED.items():
        parts.append(_section(name, part, MANIFESTS))
    parts.append(_keys())
    parts.append(_section("Configuration", Configuration, CONFIGURATION))
    return "".join(parts) + "\n"


def page() -> str:
    """The text of docs/manifests.md, with its generated part made again."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{text()}{END}{after}"


def _section(name: str, struct: type[msgspec.Struct], table: Table) -> str:
    described = list(rows(struct, table))
    told = [row for row in described if row.effect.about]
    plain = [f"`{row.path}`" for row in described if not row.effect.about]
    lines = [f"\n### {name}\n"]
    if told:
        lines.append("\n| field | | how, or why not |\n| --- | --- | --- |\n")
        lines += [
            f"| `{row.path}` | {_word(row.effect)} | {_about(row.effect)} |\n" for row in told
        ]
    if plain:
        works = textwrap.fill(
            f"Works: {', '.join(plain)}.", 120, break_long_words=False, break_on_hyphens=False
        )
        lines.append(f"\n{works}\n")
    return "".join(lines)


KEYS_HEAD: Final = """
### Labels and annotations of Workload and Job

Other labels and annotations are kept, and `apply` warns about unknown ones of `kueue.x-k8s.io/…`
and `admittance.dev/…`. Annotations with the prefix `provreq.kueue.x-k8s.io/` become parameters of
provisioning requests.

| key | place | | how, or why not |
| --- | --- | --- | --- |
"""


def _keys() -> str:
    lines = [
        f"| `{key}` | {place} | {_word(effect)} | {_about(effect)} |\n"
        for place, keys in KEYS.items()
        for key, effect in keys.items()
    ]
    return KEYS_HEAD + "".join(lines)


def _word(effect: FieldEffect) -> str:
    return "**refused**" if effect.effect is Effect.REFUSED else str(effect.effect)


def _about(effect: FieldEffect) -> str:
    values = effect.usual if isinstance(effect.usual, tuple) else ()
    usual = [value for value in values if isinstance(value, str | bool | int)]
    words = [
        f"`{str(value).lower() if isinstance(value, bool) else value}`"
        for value in usual
        if value is not False
    ]
    return effect.about + (f"; without a warning: {', '.join(words)}" if words else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
