"""The call of a function, as bytes that a job reads, and its outcome, as bytes that it leaves.

``python -m admittance.client.calling.called`` is what a job of `AdmittanceExecutor` runs: it reads
the call in the file `CALL` of its folder and writes the outcome to the file `OUTCOME`.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from admittance.client.errors import BadInput

CALL: Final = "call.pickle"
OUTCOME: Final = "outcome.pickle"


def packed(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> bytes:
    """The call as bytes, with the folders in which this program looks for modules. Raises what
    pickling raises."""
    folders = [str(Path(folder).absolute()) for folder in sys.path]
    return pickle.dumps((folders, _dumps((function, args, kwargs))))


def called(call: bytes) -> tuple[bool, bytes]:
    """Runs the packed call; returns whether it returned, and its packed outcome."""
    try:
        folders, inner = pickle.loads(call)
        sys.path.extend(folder for folder in folders if folder not in sys.path)
        function, args, kwargs = pickle.loads(inner)
        return True, _dumps((True, function(*args, **kwargs)))
    except BaseException as error:  # An exit, too, is an outcome of the function.
        traceback.print_exception(error)
        return False, _packed_error(error)


def _packed_error(error: BaseException) -> bytes:
    """The error as bytes that can be read, with its traceback as a note."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        outcome = _dumps((False, error))
        pickle.loads(outcome)  # An error need not take the arguments that pickling gives it.
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(error.__notes__[-1])
        outcome = pickle.dumps((False, plain))
    return outcome


def _dumps(value: object) -> bytes:
    """The value as bytes, also with functions and classes that no module has, such as those of a
    notebook. Raises BadInput without the package for that."""
    try:
        import cloudpickle
    except ImportError:
        raise BadInput(
            "calls of functions need the package cloudpickle: pip install 'admittance[executor]'"
        ) from None
    dumped: bytes = cloudpickle.dumps(value)
    return dumped


def main() -> None:
    """Runs the call in this folder; the exit status is 1 if it raised."""
    succeeded, outcome = called(Path(CALL).read_bytes())
    Path(OUTCOME).write_bytes(outcome)
    sys.stderr.flush()
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
