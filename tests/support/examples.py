"""How many examples a property is tried on."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = os.environ.get("ADMIT_THOROUGH") == "1"
"""`make thorough` sets it: all examples, instead of the part that `make test` tries."""
PART: Final = 3


def examples(count: int) -> int:
    """The number of examples to try: ``count`` if the run is thorough, else a third of it, with
    other examples in each run."""
    return count if THOROUGH else max(1, count // PART)
