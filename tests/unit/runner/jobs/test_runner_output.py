"""The kept output of a run: its parts, bounded reads of it, and requests that share threads."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import msgspec
import pytest

from admittance.events.requests.history import Logs, LogsReply
from admittance.runner.host import data_folder
from admittance.runner.host.data_folder import RunFolder
from admittance.runner.host.port import RunFiles
from admittance.runner.host.records import RunIdentity, run_key
from admittance.runner.logs import log_reader
from admittance.runner.logs.log_reader import LogReader, read_logs
from admittance.runner.logs.namespace_limit import NamespaceOutput
from admittance.runner.logs.pod_output import PodOutput, ReadBudget
from admittance.runner.output.parts import part_name, pods_with_output
from admittance.runtime import clock


def a_run(path: Path, namespace: str = "team") -> RunFolder:
    (path / "out").mkdir(parents=True)
    key = run_key(namespace, "train", 7)
    return RunFolder(
        path,
        RunIdentity(key=key, namespace=namespace, name="train", uid="u", revision=7),
    )


def write_part(run: RunFolder, pod: str, start: int, data: bytes) -> Path:
    path = run.path / "out" / part_name(pod, start)
    path.write_bytes(data)
    return path


def test_parts_of_pods_are_in_order_and_other_files_are_skipped(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    for pod, start in (("main-10", 0), ("main-2", 90), ("main-2", 100), ("a-b-0", 0)):
        write_part(run, pod, start, b"x")
    for other in ("main.log", "main-x.log", "core", "main-0.log.gz", "main-0.log.-1"):
        (tmp_path / "out" / other).write_bytes(b"x")
    pods = pods_with_output(str(tmp_path / "out"))
    assert [(pod, [start for start, _ in parts]) for pod, parts in pods.items()] == [
        ("a-b-0", [0]),
        ("main-2", [90, 100]),
        ("main-10", [0]),
    ]
    assert list(pods_with_output(str(tmp_path / "out"), 2)) == ["main-2"]
    assert pods_with_output(str(tmp_path / "nothing")) == {}
    assert pods_with_output(str(tmp_path / "out" / "core")) == {}


KEPT_CASES: dict[str, tuple[dict[int, str], Logs, tuple[str, int, int]]] = {
    "all": ({0: "abc", 3: "def"}, Logs(name="train"), ("abcdef", 6, 0)),
    "cut": ({30: "abc", 33: "d"}, Logs(name="train"), ("abcd", 34, 30)),
    "kept": ({30: "abc"}, Logs(name="train", offsets={"main-0": 31}), ("bc", 33, 0)),
    "a gap": ({30: "abc"}, Logs(name="train", offsets={"main-0": 10}), ("abc", 33, 20)),
    "beyond": ({30: "abc"}, Logs(name="train", offsets={"main-0": 99}), ("abc", 33, 30)),
    "lost between": ({0: "ab", 10: "cd"}, Logs(name="train"), ("ab", 2, 0)),
    "after": ({0: "ab", 10: "cd"}, Logs(name="train", offsets={"main-0": 2}), ("cd", 12, 8)),
    "tail": ({30: "a\nb", 33: "\nc\n"}, Logs(name="train", tail=2), ("b\nc\n", 36, 0)),
    "long tail": ({30: "a\nb"}, Logs(name="train", tail=5), ("a\nb", 33, 0)),
}


@pytest.mark.parametrize("case", KEPT_CASES)
def test_the_kept_output_is_read_as_one_text(case: str, tmp_path: Path) -> None:
    parts, asked, shown = KEPT_CASES[case]
    run = a_run(tmp_path)
    for start, text in parts.items():
        write_part(run, "main-0", start, text.encode())
    (pod,) = read_logs(run, asked).pods
    assert (pod.text, pod.offset, pod.cut) == shown
    assert not pod.short


def test_half_a_character_before_lost_output_does_not_stop_a_reader(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    write_part(run, "main-0", 0, "€".encode()[:1])
    write_part(run, "main-0", 10, b"end")
    asked = Logs(name="train")
    text = ""
    for _ in range(3):
        reply = read_logs(run, asked)
        text += reply.pods[0].text
        asked = msgspec.structs.replace(asked, offsets={"main-0": reply.pods[0].offset})
    assert reply.complete
    assert text == "\N{REPLACEMENT CHARACTER}end"


def test_the_tail_of_an_endless_file_reads_a_bounded_part(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    path = write_part(run, "main-0", 0, b"begin\n")
    os.truncate(path, 4 << 40)
    reply = read_logs(run, Logs(name="train", tail=5))
    (pod,) = reply.pods
    assert pod.short
    assert (4 << 40) - log_reader.TAIL_BYTES <= pod.offset <= 4 << 40
    # Zeros are longer in JSON.
    assert 100_000 < len(pod.text) <= log_reader.REPLY_BYTES
    assert len(msgspec.json.encode(reply)) < 1_000_000


@pytest.mark.parametrize(
    ("size", "seconds"),
    [pytest.param(5_000, 9.0, id="bytes"), pytest.param(1 << 30, 0.0, id="time")],
)
def test_a_spent_budget_ends_the_search_for_lines(
    tmp_path: Path, size: int, seconds: float
) -> None:
    run = a_run(tmp_path)
    write_part(run, "main-0", 0, b"x" * 100_000)
    budget = ReadBudget(size, clock.monotonic() + seconds)
    with PodOutput(pods_with_output(str(tmp_path / "out"))["main-0"]) as output:
        offset, whole = output.tail_offset(1, budget)
    assert not whole
    assert offset >= 100_000 - size


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    os.mkfifo(tmp_path / "out" / "main-0.log")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "out" / "main-1.log").symlink_to(tmp_path / "secret")
    assert [pod.text for pod in read_logs(run, Logs(name="train")).pods] == ["", ""]


async def test_slow_reads_of_a_namespace_leave_threads_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {name: a_run(tmp_path / name, name) for name in ("greedy", "quiet")}
    gate = threading.Event()

    def slow(run: RunFiles, request: Logs, *, over: bool = False) -> LogsReply:
        if run.identity.namespace == "greedy":
            gate.wait(30)
        return read_logs(run, request, over=over)

    monkeypatch.setattr(log_reader, "read_logs", slow)
    reader = LogReader(lambda namespace, _: [runs[namespace]])
    asked = msgspec.json.encode(Logs(name="train"))
    greedy = [asyncio.create_task(reader.handle(asked, "admit.api.logs.greedy")) for _ in range(20)]
    async with asyncio.timeout(20):
        assert not (await reader.handle(asked, "admit.api.logs.quiet")).error
        # Other work of the runner has threads of its own.
        await asyncio.to_thread(lambda: None)
        gate.set()
        assert len(await asyncio.gather(*greedy)) == 20
    reader.close()


def test_a_journal_longer_than_one_read_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_folder, "JOURNAL_BYTES", 100)
    run = a_run(tmp_path)
    lines = [f'{{"e":"end","p":"main-{index}","code":0}}\n' for index in range(20)]
    (tmp_path / "journal").write_text("".join(lines) + '{"e":"outcome"')
    assert run.read_journal()
    assert len(run.journal.ended) == 20
    assert not run.read_journal()


def test_the_oldest_output_of_a_namespace_with_too_much_is_removed(tmp_path: Path) -> None:
    closed: dict[str, RunFiles] = {}
    for age, name in enumerate(("new", "old", "oldest", "empty", "other")):
        run = a_run(tmp_path / name, "other" if name == "other" else "team")
        if name != "empty":
            write_part(run, "main-0", 0, b"x" * 9_000)
        (run.path / "said").touch()
        os.utime(run.path / "said", (1_000 - age, 1_000 - age))
        closed[name] = run
    working = a_run(tmp_path / "working")
    for start in (0, 9_000, 18_000):
        write_part(working, "main-0", start, b"x" * 9_000)
    assert NamespaceOutput(100_000).excess({"working": working}, closed) == []
    output = NamespaceOutput(62_000)
    assert output.excess({"working": working}, closed) == ["oldest"]
    del closed["oldest"]
    assert output.excess({"working": working}, closed) == []
    # The length of a file says nothing about the disk.
    os.truncate(working.path / "out" / "main-0.log.18000", 4 << 40)
    assert NamespaceOutput(62_000).excess({"working": working}, closed) == []
    # The open run alone has too much: it keeps its newest output, and the part that is written.
    assert NamespaceOutput(20_000).excess({"working": working}, closed) == ["old", "new"]
    parts = pods_with_output(str(working.path / "out"))["main-0"]
    assert [start for start, _ in parts] == [18_000]
    assert NamespaceOutput(0).excess({"working": working}, closed) == []
