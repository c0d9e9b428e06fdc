"""Imported first by the script ``admit``: a signal ends ``serve`` and ``up`` at once while their
modules are still being imported."""

from __future__ import annotations

import sys
from pathlib import PurePath

from admittance.runtime.process.startup import end_at_once_on_signals

if PurePath(sys.argv[0]).name == "admit" and sys.argv[1:2] in (["serve"], ["up"]):
    end_at_once_on_signals()
