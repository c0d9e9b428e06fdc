"""The script ``admit``. The script installs signal handlers before it imports anything that takes
time, so that a signal at the start ends the process in silence. A signal that arrives even earlier,
while Python itself starts, still prints Python's traceback.
"""

# `signal` imports enum; Ctrl-C during that import would print a traceback.
import _signal  # type: ignore[import-not-found]
import gc
import os
import sys

INTERRUPTED = 130
"""Exit status after Ctrl-C. The value is repeated from `admittance.cli.commands.program`, because
that module takes long to import.
"""
IS_SCRIPT = os.path.basename(sys.argv[0]) == "admit"  # noqa: PTH119  (pathlib takes long to import)


def end_at_once() -> None:
    """Makes Ctrl-C end the process at once: the process has not begun anything that needs an
    orderly end.
    """
    _signal.signal(_signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


if IS_SCRIPT:
    end_at_once()
if IS_SCRIPT and sys.argv[1:2] in (["serve"], ["up"]):
    from admittance.runtime.process.startup import end_at_once_on_signals

    end_at_once_on_signals()


def main() -> None:
    """Runs the command line and ends the process with its status."""
    if not IS_SCRIPT:
        end_at_once()
    # Imports make many objects that live until the end, so garbage collection would find nothing.
    gc.set_threshold(200_000)
    try:
        from admittance.cli.commands.program import invoke
        from admittance.cli.support.streams import settle_streams

        settle_streams()
        status = invoke()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except ImportError as error:
        # Ctrl-C during the import of an extension module may be raised as ImportError.
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        status = INTERRUPTED
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    if status == INTERRUPTED:
        # The process ends without the interpreter's shutdown, during which a second Ctrl-C would
        # print a traceback.
        _leave(status)
    # Without the freeze the interpreter's shutdown would collect garbage several times, although
    # the end of the process frees all memory anyway.
    gc.freeze()
    sys.exit(status)


def _leave(status: int) -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass
    os._exit(status)


if __name__ == "__main__":
    main()
