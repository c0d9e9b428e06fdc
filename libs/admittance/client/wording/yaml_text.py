"""Objects as YAML, as people write manifests."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

NUMBER_OF_YAML_1_2: Final = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|0o[0-7]+")


class _Dumper(yaml.SafeDumper):
    """Writes YAML; a text of several lines becomes a block. A text that YAML 1.2 alone reads as a
    number, such as 1e3, is quoted."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else "'" if NUMBER_OF_YAML_1_2.fullmatch(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def yaml_text(value: Any) -> str:
    """Plain values as YAML; keys keep their order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text
