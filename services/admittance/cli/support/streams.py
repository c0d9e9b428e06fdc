"""The standard streams of a command: open, and UTF-8 whatever the locale is."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Final

MODES: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}


def settle_streams() -> None:
    """Opens the null device for each standard stream that the caller has closed (``>&-``), where
    Python has None. Makes output UTF-8, since answers have names and trees that not every locale
    has; bytes of arguments that are not UTF-8 are written as escapes."""
    for name, mode in MODES.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
