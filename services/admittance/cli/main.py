"""The script ``admit``: what comes before anything heavy is imported, so that Ctrl-C at any moment
ends it without a traceback."""

from __future__ import annotations

from admittance.cli import starting  # noqa: F401  (handles signals before the rest is read)

# isort: split
import os
import sys

from admittance.cli.support.errors import INTERRUPTED


def main() -> None:
    """Runs the command line and ends the process with its status."""
    try:
        from admittance.cli.program import invoke

        status = invoke()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except ImportError as error:
        # Ctrl-C while an extension module is imported may come out as this.
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        status = INTERRUPTED
    if status == INTERRUPTED:
        # Without the interpreter's own end, in which a second Ctrl-C would still be told.
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
