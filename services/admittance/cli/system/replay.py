"""``admit replay``: plays scenarios with a known outcome through the cores, or repeats one decision
from the log.

A file that cannot be played is reported on standard error, and the exit status is then 2. The
remaining files are still played.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.cli.commands.declare import argument, command, option
from admittance.cli.support import output
from admittance.cli.support.options import Call, Output, raise_on_interrupt, run
from admittance.client.errors import BadInput, one_line
from admittance.runtime.process.progress import Steps

if TYPE_CHECKING:
    from admittance.replay.minimal_system import SettleResult

PARALLEL_MIN: Final = 40
"""From this many scenarios on, several processes are faster than one; a scenario takes about 10 ms.
"""
LAST_SEQUENCE: Final = 2**63 - 1
"""The largest sequence in a stream that nats-server accepts."""


@command()
@argument("[SCENARIO.json[.gz]]...", "Differential scenarios.", name="files")
@option("--out DIR", "Write each answer to DIR/NAME.json instead of printing it.", kind=Path)
@option("--check", "Compare with the answers in the files; status 1 if any differs.")
@option(
    "--from-log SEQ",
    "Repeat the decision at this sequence of the log.",
    kind=int,
    least=1,
    most=LAST_SEQUENCE,
)
def replay(
    call: Call, files: Sequence[str], out: Path | None, check: bool, from_log: int | None
) -> int | None:
    """Repeat the decisions of scenario files, or one decision from the log.

    Scenarios need no NATS server and print one line of JSON each. Broken files are skipped, and the
    exit status is then 2. With --from-log SEQ the state before that decision is rebuilt; the status
    is 1 if the repeated decision differs.
    """
    if from_log is not None:
        if files or out is not None or check:
            raise BadInput("--from-log repeats one decision; leave out the scenarios")
        from admittance.cli.system.replay_decision import replay_decision

        return run(replay_decision(call, from_log))
    if not files:
        raise BadInput("nothing to replay: name scenario files, or use --from-log SEQ")
    if call.output not in (Output.TABLE, Output.JSON):
        raise BadInput(f"scenarios are answered in JSON: leave out -o {call.output}")
    raise_on_interrupt()
    return play_all(files, out=out, check=check)


class Played(NamedTuple):
    """Result of one scenario file. ``text``: the decisions as JSON. ``trouble``: what is wrong with
    the file. ``differs``: differences to the decisions that the file expects; None: the file
    expects none.
    """

    file: str
    name: str = ""
    text: str = ""
    trouble: str = ""
    differs: list[str] | None = None


def play_all(files: Sequence[str], *, out: Path | None, check: bool) -> int:
    """Plays the scenarios and prints the answers, or writes them to ``out``. With check, prints the
    differences to the expected answers instead of the answers. Returns the exit status.
    """
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"--out {out} cannot be made: {error.strerror or error}") from None
    troubles = agreeing = played = 0
    written: dict[str, str] = {}
    for result in _shown(_all(files), len(files), printing=out is None and not check):
        trouble = result.trouble
        if not trouble and out is not None:
            if result.name in written:
                trouble = f"not written: {written[result.name]} is a scenario {result.name}, too"
            else:
                written[result.name] = result.file
                trouble = _write(out / f"{result.name}.json", result.text)
        if not trouble and check and result.differs is None:
            trouble = "nothing to check: the file has no expected answers"
        if trouble:
            output.error(one_line(f"{result.file}: {trouble}"))
            troubles += 1
            continue
        played += 1
        if check:
            agreeing += not result.differs
            for line in result.differs or ():
                output.say(f"{result.name}: {line}")
        elif out is None:
            output.say(result.text)
    if check:
        output.say(f"agree {agreeing}/{played} scenarios")
    if troubles:
        return 2
    return 1 if check and agreeing < played else 0


def _shown(results: Iterator[Played], count: int, *, printing: bool) -> Iterator[Played]:
    """The results, with the progress on a terminal unless every result is printed."""
    if printing:
        yield from results
        return
    with Steps("replay") as steps:
        steps.begin("scenarios", count)
        for done, result in enumerate(results):
            steps.reach(done)
            yield result


def _all(files: Sequence[str]) -> Iterator[Played]:
    """The results of all scenario files, in the order of the files."""
    workers = min(os.cpu_count() or 1, 8)
    if len(files) < PARALLEL_MIN or workers == 1:
        yield from map(play_file, files)
        return
    from concurrent.futures import ProcessPoolExecutor

    sys.stdout.flush()
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(play_file, files, chunksize=max(1, len(files) // (8 * workers)))


def play_file(file: str) -> Played:
    """Reads and plays one scenario file."""
    from admittance.replay.minimal_system import differences
    from admittance.replay.scenario import BadScenario, play, read

    try:
        scenario = read(_bytes(Path(file)))
        decisions = play(scenario)
    except BadScenario as error:
        return Played(file, trouble=str(error))
    except Exception as error:
        # A bug that one scenario triggers must not stop the other scenarios.
        return Played(file, trouble=f"the core fails on it: {type(error).__name__}: {error}")
    expected = scenario.expected
    differs = None
    if expected is not None:
        try:
            differs = list(differences(expected, decisions))
        except (KeyError, TypeError, AttributeError) as error:
            return Played(file, trouble=f"its expected answers have another shape: {error!r}")
    return Played(file, scenario.name, _text(scenario.name, decisions), differs=differs)


def _bytes(path: Path) -> bytes:
    from admittance.replay.scenario import BadScenario

    if path.is_dir():
        raise BadScenario("it is a folder; name its files, as in FOLDER/*.json.gz")
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadScenario(error.strerror or str(error)) from None


def _text(name: str, decisions: Iterable[SettleResult]) -> str:
    return json.dumps({"name": name, "expected": list(decisions)}, separators=(",", ":"))


def _write(path: Path, text: str) -> str:
    """Writes the decisions of a scenario to the file ``path``; returns why the write
    failed, or "".
    """
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return ""
