"""Plays the tests in several processes: ``--workers N``.

The tests are collected once, and each worker is a fork of the process that has collected them. A
worker plays one part of the tests after the other and sends its reports to that process. A worker
that collects for itself, as those of pytest-xdist do, needs five seconds of CPU for it.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import traceback
from collections.abc import Sequence
from itertools import groupby
from multiprocessing import Pipe, util
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final
from warnings import WarningMessage

import pytest

from admittance.runtime import chance

NUMBER_BYTES: Final = 4
PIPE_BYTES: Final = 65536
"""A pipe takes so many bytes before anything reads from it."""

Part = list[pytest.Item]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers", type=int, default=0, metavar="N", help="play the tests in N forked processes"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders the tests: while some workers wait for processes, others play stories, which compute
    only. Files that wait long come first and short ones last, so that workers end together."""
    folders = {item.path: item.nodeid.split("/", 2)[1] for item in items}
    waiting = sorted(
        (f for f in folders if folders[f] in ("system", "integration")), key=_by_folder
    )
    place = {file: number / len(waiting) for number, file in enumerate(waiting)}
    stories = [item for item in items if plays_stories(item.nodeid)]
    apart = {item: number / len(stories) for number, item in enumerate(stories)}
    items.sort(key=lambda item: apart.get(item, place.get(item.path, 1.0)))


LONGEST: Final = (
    *("providers_page", "aws_reconciler", "kubernetes_reconciler", "auth_command"),
    *("budget_sample", "aws_live", "checks_page", "runner_claims", "runner_crashes", "logins"),
    *("provider_test", "ends_in_time", "samples_conform", "shell_sample"),
)
"""The files outside of `system` that wait longest, in this order."""


def _by_folder(file: Path) -> tuple[bool, int]:
    name = file.stem.removeprefix("test_")
    if name in LONGEST:
        return False, LONGEST.index(name)
    return "system" not in file.parts, len(LONGEST)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Has workers play the tests. None: pytest plays them itself, or says what is wrong."""
    options = session.config.option
    if not options.workers or options.collectonly or session.testsfailed:
        return None
    parts = parts_of(session.items)
    Workers(session, parts).play(min(options.workers, len(parts)))
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def parts_of(items: Sequence[pytest.Item]) -> list[Part]:
    """What a worker plays without a break: the tests of a file, for fixtures of modules; of stories
    each one."""

    def part(item: pytest.Item) -> str:
        return item.nodeid if plays_stories(item.nodeid) else str(item.path)

    return [list(together) for _, together in groupby(items, part)]


def plays_stories(nodeid: str) -> bool:
    """Whether the test does nothing but compute, for seconds."""
    return "/hunting/test_seeds_of_" in nodeid or "/hunting/test_bites" in nodeid


class Workers:
    """The process that has collected the tests: it starts the workers, and reports what they send
    as if it had played the tests."""

    def __init__(self, session: pytest.Session, parts: Sequence[Part]) -> None:
        self._session = session
        self._parts = parts
        self._hook: Any = session.config.hook
        self._pids: dict[Connection, int] = {}
        self._plays: dict[Connection, str] = {}
        """The test that each worker plays."""
        self._turns, writing = os.pipe()
        numbers = [number.to_bytes(NUMBER_BYTES, "big") for number in range(len(parts))]
        assert len(numbers) * NUMBER_BYTES <= PIPE_BYTES, f"{len(parts)} parts are too many"
        os.write(writing, b"".join(numbers))
        os.close(writing)

    def play(self, count: int) -> None:
        """Plays all parts in so many processes, up to the failure that ends the session."""
        terminal = self._session.config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False
        try:
            for number in range(count):
                self._start(number)
            while self._pids:
                for connection in wait(list(self._pids)):
                    assert isinstance(connection, Connection)
                    self._read(connection)
                if self._session.shouldfail or self._session.shouldstop:
                    os.read(self._turns, PIPE_BYTES)  # So the workers end.
        finally:
            for pid in self._pids.values():
                os.kill(pid, signal.SIGINT)
                os.waitpid(pid, 0)
            os.close(self._turns)

    def _start(self, number: int) -> None:
        factory = self._session.config._tmp_path_factory  # type: ignore[attr-defined]
        folder = factory.getbasetemp() / f"w{number}"
        receiving, sending = Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            _work(self._session, self._parts, self._turns, sending, folder)
        sending.close()
        self._pids[receiving] = pid

    def _read(self, connection: Connection) -> None:
        try:
            what, about = pickle.loads(connection.recv_bytes())
        except EOFError:
            self._ended(connection)
            return
        if what == "begins":
            self._plays[connection] = about["nodeid"]
            self._hook.pytest_runtest_logstart(**about)
        elif what == "ends":
            del self._plays[connection]
            self._hook.pytest_runtest_logfinish(**about)
        elif what == "warns":
            self._hook.pytest_warning_recorded.call_historic(kwargs=about)
        else:
            config = self._session.config
            report = self._hook.pytest_report_from_serializable(config=config, data=about)
            self._hook.pytest_runtest_logreport(report=report)

    def _ended(self, connection: Connection) -> None:
        pid = self._pids.pop(connection)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            test = self._plays.get(connection, "a worker")
            said = f"its process ended with status {status}, and left out the rest of the part"
            report = pytest.TestReport(test, ("", None, test), {}, "failed", said, "call")
            self._hook.pytest_runtest_logreport(report=report)


class _Sender:
    """Sends what happens in a worker, in place of a terminal."""

    def __init__(self, config: pytest.Config, sending: Connection) -> None:
        self._config = config
        self._sending = sending

    def _send(self, what: str, about: dict[str, Any]) -> None:
        self._sending.send_bytes(pickle.dumps((what, about)))

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._send("begins", {"nodeid": nodeid, "location": location})

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._send("ends", {"nodeid": nodeid, "location": location})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook: Any = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send("reports", data)

    def pytest_warning_recorded(
        self, warning_message: WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        said = UserWarning(str(warning_message.message))
        where = warning_message.filename, warning_message.lineno
        warning = WarningMessage(said, UserWarning, *where)
        about = {"when": when, "nodeid": nodeid, "location": location}
        self._send("warns", {"warning_message": warning, **about})


def _work(
    session: pytest.Session, parts: Sequence[Part], turns: int, sending: Connection, folder: Path
) -> None:
    """Plays parts until none is left, and ends the process."""
    config, status = session.config, 1
    try:
        plugins: Any = config.pluginmanager
        plugins.unregister(name="terminalreporter")
        # Otherwise all workers would write what tests print into the same file.
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        folder.mkdir()
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        (folder / "config").mkdir()
        os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
        random.seed()
        chance._fast.seed()
        plugins.register(_Sender(config, sending))
        while number := os.read(turns, NUMBER_BYTES):
            _play(parts[int.from_bytes(number, "big")])
        status = 0
    except KeyboardInterrupt:
        # A terminal interrupts the workers, too.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        session._setupstate.teardown_exact(None)
    except BaseException:
        traceback.print_exc()
    finally:
        util._exit_function()  # type: ignore[attr-defined]  # ends processes of multiprocessing
        os._exit(status)


def _play(part: Part) -> None:
    for item, following in zip(part, [*part[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
