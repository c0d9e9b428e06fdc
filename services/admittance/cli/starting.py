"""Imported before anything else by the script ``admit``: what is to run until it is ended ends at
once while its modules are still read."""

from __future__ import annotations

import sys
from pathlib import PurePath

from admittance.runtime.process.starting import end_at_once_on_signals

if PurePath(sys.argv[0]).name == "admit" and sys.argv[1:2] in (["serve"], ["up"]):
    end_at_once_on_signals()
