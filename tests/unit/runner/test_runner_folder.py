"""The data folder keeps runs, journals and output for their time."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from admittance.api.meta import Condition, ObjectMeta
from admittance.events.requests.history import Logs, LogsReply
from admittance.runner.decide import Ended
from admittance.runner.disk.trash import TrashRemover, trash_of
from admittance.runner.host.data_folder import DataFolder, RunFolder, find_run
from admittance.runner.host.records import RunIdentity, Spec, StopNote, run_key
from admittance.runner.host.run_journal import RunJournal
from admittance.runner.jobs.journal import JournalWriter, read_lease
from admittance.runner.logs.log_reader import LogReader, read_logs
from admittance.runner.runs.admissions import AdmissionState, AdmissionView, view, view_of
from admittance.runner.runs.closed_runs import ClosedRuns
from admittance.runner.upkeep import expired
from admittance.runtime.errors import SetupError
from admittance.runtime.telemetry.object_faults import faults
from admittance.workload.stored import StoredWorkload, WorkloadStatus


def a_run(folder: DataFolder, name: str = "train", revision: int = 7) -> RunFolder:
    identity = RunIdentity(
        key=run_key("team", name, revision),
        namespace="team",
        name=name,
        uid="u",
        revision=revision,
        mark="m",
    )
    run = folder.folder_of(identity)
    run.write(
        Spec(
            key=identity.key,
            mark="m",
            namespace="team",
            name=name,
            uid="u",
            revision=revision,
            sets=(),
            notify="",
            lease="",
            lease_stop=1.0,
            lease_kill=2.0,
        )
    )
    return run


def test_the_runner_is_the_same_one_after_a_restart(tmp_path: Path) -> None:
    first = DataFolder.open(tmp_path)
    first.close()
    second = DataFolder.open(tmp_path)
    assert second.runner == first.runner
    second.close()


def test_a_folder_has_one_runner_at_a_time(tmp_path: Path) -> None:
    first = DataFolder.open(tmp_path)
    with pytest.raises(SetupError, match="another runner"):
        DataFolder.open(tmp_path)
    first.close()


def test_a_folder_that_cannot_be_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="--data-dir"):
        DataFolder.open(tmp_path / "file")


def test_a_folder_that_becomes_usable_is_opened_at_the_next_try(tmp_path: Path) -> None:
    (tmp_path / "runner" / "id").mkdir(parents=True)
    with pytest.raises(SetupError, match=r"runner cannot be used \(Is a directory\)"):
        DataFolder.open(tmp_path)
    (tmp_path / "runner" / "id").rmdir()
    DataFolder.open(tmp_path).close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device of Linux")
def test_a_full_disk_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.open

    def on_a_full_disk(path: Path, flags: int, mode: int = 0o777) -> int:
        file = make(path, flags, mode)
        if Path(path).name.startswith("id."):
            os.dup2(make("/dev/full", os.O_WRONLY), file)
        return file

    monkeypatch.setattr("admittance.runner.host.data_folder.os.open", on_a_full_disk)
    with pytest.raises(SetupError, match=r"runner cannot be used \(No space left on device\)"):
        DataFolder.open(tmp_path)
    assert sorted(path.name for path in (tmp_path / "runner").iterdir()) == ["lock", "runs"]


def test_a_full_disk_keeps_lines_of_the_journal_for_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, [5, 0]

    def on_a_full_disk(file: int, data: bytes) -> int:
        if not (left := room.pop(0) if room else len(data)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:left])

    monkeypatch.setattr("admittance.runner.jobs.journal.os.write", on_a_full_disk)
    journal = JournalWriter(str(tmp_path))
    journal.write({"e": "up"}, durable=True)
    assert not journal.flush("/nowhere", "k")
    journal.write({"e": "ready"}, durable=False)
    assert journal.flush("/nowhere", "k")
    assert (tmp_path / "journal").read_text() == '{"e": "up"}\n{"e": "ready"}\n'


def test_lines_are_durable_only_after_a_sync_that_the_disk_had_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = []

    def has_no_room_at_first(file: int) -> None:
        syncs.append(file)
        if len(syncs) == 1:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr("admittance.runner.jobs.journal.os.fsync", has_no_room_at_first)
    journal = JournalWriter(str(tmp_path))
    journal.write({"e": "up"}, durable=True)
    assert not journal.flush("/nowhere", "k")
    assert journal.flush("/nowhere", "k")
    assert journal.flush("/nowhere", "k")
    assert len(syncs) == 2
    assert (tmp_path / "journal").read_text() == '{"e": "up"}\n'


def test_what_a_job_puts_in_place_of_the_lease_does_not_end_the_runner(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    folder.lease.write_text("7.5 and much more than a number has")
    folder.touch_lease(8.5)
    assert read_lease(str(folder.lease)) == 8.5
    folder.lease.unlink()
    os.mkfifo(folder.lease)
    folder.touch_lease(9.5)  # neither waits for a reader nor raises
    folder.lease.unlink()
    folder.touch_lease(10.5)
    assert read_lease(str(folder.lease)) == 10.5
    folder.close()


def test_a_run_that_cannot_be_read_keeps_no_other_from_the_start(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    broken, whole = a_run(folder, "broken"), a_run(folder, "whole")
    (broken.path / "spec.json").unlink()
    (broken.path / "spec.json").symlink_to("spec.json")
    assert [run.identity.name for run in folder.runs()] == [whole.identity.name]
    folder.close()


def test_a_lease_is_renewed_in_its_place_and_a_shim_reads_it(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    folder.touch_lease(123456.789012345)
    inode = folder.lease.stat().st_ino
    folder.touch_lease(7.5)
    assert folder.lease.stat().st_ino == inode
    assert read_lease(str(folder.lease)) == 7.5
    folder.close()


def test_runs_are_found_again_and_other_folders_are_removed(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    run.note_stop(StopNote(evicted=9))
    long = a_run(folder, "x" * 250)
    (folder.root / "runs/half").mkdir()
    by_key = {each.identity.key: each for each in folder.runs()}
    assert set(by_key) == {run.identity.key, long.identity.key}
    assert by_key[run.identity.key].identity == run.identity
    assert by_key[run.identity.key].stop_note() == StopNote(evicted=9)
    assert not (folder.root / "runs/half").exists()
    folder.close()


def test_what_is_given_back_keeps_its_output_and_nothing_else(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    write_output(run, "main-0", b"before")
    run.note_stop(StopNote(leaving=True))
    (run.path / "journal").write_text('{"e":"outcome","kind":"stopped"}\n')
    run.give_back()
    assert list(folder.runs()) == []
    (returned,) = folder.given_back()
    assert returned.identity == run.identity
    (pod,) = read_logs(returned, Logs(name="train"), over=True).pods
    assert (pod.text, pod.running) == ("before", False)
    again = a_run(folder)
    assert (again.read_journal(), again.stop_note()) == (False, None)
    assert (again.path / "out/main-0.log").read_text() == "before"
    assert list(folder.given_back()) == []
    folder.close()


def test_a_run_given_back_halfway_restarts_cleanly(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    (run.path / "journal").write_text('{"e":"outcome","kind":"stopped"}\n')
    (run.path / "spec.json").rename(run.path / "earlier.json")
    again = a_run(folder)
    assert not again.read_journal(), "the journal of the earlier run is gone"
    folder.close()


def test_closed_runs_are_found_by_their_workload(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    closed = ClosedRuns()
    for run in (a_run(folder), a_run(folder, revision=9), a_run(folder, "other")):
        closed[run.identity.key] = run
    assert {run.identity.revision for run in closed.of("team", "train")} == {7, 9}
    assert closed.drop(run_key("team", "train", 7)) is not None
    assert closed.drop(run_key("team", "train", 7)) is None
    assert [run.identity.revision for run in closed.of("team", "train")] == [9]
    folder.close()


@pytest.mark.parametrize(
    ("name", "is_found"), [("id of the runner", True), ("id of another one", False)]
)
def test_a_folder_is_read_only_where_it_is_the_runners_own(
    tmp_path: Path, name: str, is_found: bool
) -> None:
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    runner = folder.runner if is_found else "another"
    other = find_run({runner: str(folder.root)}, run.identity.key)
    assert (other is not None) is is_found
    if other is not None:
        assert (other.folder.identity, other.secret) == (run.identity, folder.secret)
    assert find_run({runner: "relative"}, run.identity.key) is None
    assert find_run({folder.runner: str(folder.root)}, "team.nothing.1") is None
    folder.close()


@pytest.mark.parametrize("name", ["journal", "stop", "shim", "alive", "spec.json", "id"])
def test_a_pipe_in_place_of_a_file_keeps_no_runner_waiting(tmp_path: Path, name: str) -> None:
    """A job with the runner's Unix user can put it there, and so can another runner in the folder
    that it announces."""
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    path = (folder.root if name == "id" else run.path) / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert not run.read_journal()
    assert run.stop_note() is None
    assert (run.shim_pid(), run.fork_server().pid) == (0, 0)
    assert not run.shim_lives()
    lost = name in ("spec.json", "id")
    assert (find_run({folder.runner: str(folder.root)}, run.identity.key) is None) is lost
    assert len(list(folder.runs())) == (name != "spec.json")
    assert [fault.about for fault in faults.take()] == ["run team.train.7"] * (name == "journal")
    folder.close()


def test_half_a_line_of_a_journal_waits_for_its_other_half() -> None:
    journal = RunJournal()
    assert journal.feed(b'{"e":"up"}\n{"e":"outc')
    assert (journal.up, journal.outcome) == (True, None)
    assert not journal.feed(b'{"e":"outc')
    assert journal.offset == 11
    assert journal.feed(b'{"e":"outcome","kind":"failed","message":"why"}\n')
    assert journal.outcome == Ended("failed", "why")


def test_garbage_in_a_journal_is_passed_over() -> None:
    journal = RunJournal()
    assert journal.feed(b'\0\0\0\n{"e":"ready"}\n')
    assert journal.ready


def write_output(run: RunFolder, pod: str, data: bytes) -> None:
    (run.path / "out" / f"{pod}.log").write_bytes(data)


def test_pods_are_shown_in_the_order_of_their_indexes(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    for index in (10, 2, 0):
        write_output(run, f"main-{index}", b"x")
    reply = read_logs(run, Logs(name="train"))
    assert [pod.pod for pod in reply.pods] == ["main-0", "main-2", "main-10"]
    assert [pod.pod for pod in read_logs(run, Logs(name="train", pod=0)).pods] == ["main-0"]
    folder.close()


@pytest.mark.parametrize(
    ("printed", "lines", "shown"),
    [
        pytest.param(b"a\nb\nc\n", 2, "b\nc\n", id="the last ones"),
        pytest.param(b"a\nb\nc", 2, "b\nc", id="the last one has no end"),
        pytest.param(b"a\nb\n", 5, "a\nb\n", id="fewer than asked"),
        pytest.param(b"a\n\n\n", 2, "\n\n", id="empty ones"),
        pytest.param(b"a\nb\n", 0, "", id="none"),
        pytest.param(b"", 3, "", id="nothing printed"),
        pytest.param(
            b"x" * 70_000 + b"\n" + b"y" * 70_000 + b"\n", 1, "y" * 70_000 + "\n", id="long"
        ),
    ],
)
def test_the_tail_of_the_output_is_so_many_lines(
    tmp_path: Path, printed: bytes, lines: int, shown: str
) -> None:
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    write_output(run, "main-0", printed)
    (pod,) = read_logs(run, Logs(name="train", tail=lines)).pods
    assert (pod.text, pod.offset) == (shown, len(printed))
    whole = read_logs(run, Logs(name="train", tail=lines, offsets={"main-0": 0})).pods[0]
    assert whole.text == printed.decode()
    folder.close()


def test_half_a_character_of_a_running_pod_waits(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    whole = "grüße €".encode()
    for end in range(len(whole) + 1):
        write_output(run, "main-0", whole[:end])
        (pod,) = read_logs(run, Logs(name="train")).pods
        assert "\N{REPLACEMENT CHARACTER}" not in pod.text
        write_output(run, "main-0", whole)
        (rest,) = read_logs(run, Logs(name="train", offsets={"main-0": pod.offset})).pods
        assert pod.text + rest.text == "grüße €"
    folder.close()


def test_more_output_than_one_answer_takes_comes_in_parts(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    write_output(run, "main-0", b"a" * 700_000)
    write_output(run, "main-1", b"b" * 10)
    offsets: dict[str, int] = {}
    got = {"main-0": "", "main-1": ""}
    for _ in range(5):
        reply = read_logs(run, Logs(name="train", offsets=offsets))
        for pod in reply.pods:
            got[pod.pod] += pod.text
            offsets[pod.pod] = pod.offset
        if reply.complete:
            break
    assert {pod: len(text) for pod, text in got.items()} == {"main-0": 700_000, "main-1": 10}
    folder.close()


def test_old_output_goes_and_the_oldest_of_too_many(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    runs = {}
    for age in (500, 30, 20, 10):
        run = a_run(folder, f"w{age}")
        run.close()
        os.utime(run.path / "said", (1000 - age, 1000 - age))
        runs[f"w{age}"] = run
    assert expired(runs, now=1000, seconds=100, runs_max=10) == ["w500"]
    assert expired(runs, now=1000, seconds=100, runs_max=2) == ["w500", "w30"]
    folder.close()


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


VIEW_CASES: dict[str, tuple[tuple[str, ...], int, int, AdmissionView]] = {
    "never admitted": ((), 0, 0, AdmissionView(0, AdmissionState.OVER, 0, "u")),
    "admitted by this write": (
        ("Admitted",),
        0,
        0,
        AdmissionView(20, AdmissionState.CURRENT, 0, "u"),
    ),
    "admitted earlier": (("Admitted",), 12, 0, AdmissionView(12, AdmissionState.CURRENT, 0, "u")),
    "evicted by this write": (
        ("Admitted", "Evicted"),
        12,
        0,
        AdmissionView(12, AdmissionState.EVICTED, 20, "u"),
    ),
    "evicted by an earlier one": (
        ("Admitted", "Evicted"),
        12,
        15,
        AdmissionView(12, AdmissionState.EVICTED, 15, "u"),
    ),
    "finished": (("Admitted", "Finished"), 12, 0, AdmissionView(12, AdmissionState.OVER, 0, "u")),
}


@pytest.mark.parametrize("case", VIEW_CASES)
def test_view(case: str) -> None:
    true, admitted, evicted, want = VIEW_CASES[case]
    workload = StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(name="train", namespace="team", uid="u"),
        status=WorkloadStatus(
            conditions=tuple(
                Condition(type=each, status="True", last_transition_time=NOON) for each in true
            ),
            admitted_revision=admitted,
            evicted_revision=evicted,
        ),
    )
    assert view(workload, 20) == want


def test_an_admission_that_is_not_the_newest_is_over() -> None:
    assert view_of(AdmissionView(12, AdmissionState.CURRENT), 11).state is AdmissionState.OVER
    assert view_of(AdmissionView(12, AdmissionState.CURRENT), 12).state is AdmissionState.CURRENT
    assert view_of(None, 12).state is AdmissionState.OVER


def test_the_secret_of_a_folder_is_its_own_and_stays(tmp_path: Path) -> None:
    first = DataFolder.open(tmp_path / "a")
    other = DataFolder.open(tmp_path / "b")
    secret = first.secret
    first.close()
    again = DataFolder.open(tmp_path / "a")
    assert again.secret == secret != other.secret
    again.close()
    other.close()


async def test_the_output_of_an_earlier_run_is_found_by_its_revision(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    runs = [a_run(folder, revision=revision) for revision in (3, 7, 9)]
    for run in runs:
        write_output(run, "main-0", str(run.identity.revision).encode())
    reader = LogReader(lambda _, __: runs)

    async def answer(before: int) -> LogsReply:
        data = msgspec.json.encode(Logs(name="train", before=before))
        return await reader.handle(data, "admit.api.logs.team")

    newest = await answer(0)
    assert (newest.pods[0].text, newest.revision) == ("9", 9)
    assert [(await answer(before)).pods[0].text for before in (9, 7)] == ["7", "3"]
    assert "earlier run of workload team/train" in (await answer(3)).error
    folder.close()


async def test_folders_that_a_job_nested_a_thousand_deep_are_removed(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path / "data")
    run = a_run(folder)
    kept = tmp_path / "kept"
    kept.mkdir()
    scratch = run.path / "scratch" / "main-0"
    scratch.mkdir(parents=True)
    (scratch / "link").symlink_to(kept)
    at = os.open(scratch, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    run.close()
    assert not (run.path / "scratch").exists()
    await TrashRemover(folder.root).empty()
    assert list(trash_of(folder.root).iterdir()) == []
    assert kept.exists()


@pytest.mark.parametrize(
    ("has_files", "has_trash", "is_done"),
    [(False, True, True), (False, False, True), (True, True, True), (True, False, False)],
)
def test_closing_a_run_says_whether_files_of_the_job_are_left(
    has_files: bool, has_trash: bool, is_done: bool, tmp_path: Path
) -> None:
    folder = DataFolder.open(tmp_path)
    run = a_run(folder)
    (run.path / "scratch/main-0").mkdir(parents=True)
    if has_files:
        (run.path / "scratch/main-0/file").touch()
    if not has_trash:
        trash_of(folder.root).touch()  # no folder can be made there
    assert run.close() == is_done
    assert run.is_closed()
    assert (run.path / "scratch").exists() == (not is_done)
    run.free()
    assert not (run.path / "scratch").exists()
    assert (run.path / "out").exists()
    folder.close()
