"""The script ``admit``. It imports little before its error handling, so that Ctrl-C never prints a
traceback."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import PurePath

from admittance.cli.support.errors import INTERRUPTED
from admittance.runtime.process.startup import YOUNG, end_at_once_on_signals

# A signal ends `serve` and `up` at once while their modules are still being imported.
if PurePath(sys.argv[0]).name == "admit" and sys.argv[1:2] in (["serve"], ["up"]):
    end_at_once_on_signals()


def main() -> None:
    """Runs the command line and ends the process with its status."""
    # Imports make many objects that live until the end: a search for garbage finds none.
    gc.set_threshold(YOUNG)
    try:
        from admittance.cli.commands.program import invoke

        status = invoke()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except ImportError as error:
        # Ctrl-C during the import of an extension module may be raised as ImportError.
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        status = INTERRUPTED
    if status == INTERRUPTED:
        # Skips the shutdown of the interpreter, which would report a second Ctrl-C.
        _leave(status)
    sys.exit(status)


def _leave(status: int) -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (KeyboardInterrupt, OSError):
        pass
    os._exit(status)


if __name__ == "__main__":
    main()
