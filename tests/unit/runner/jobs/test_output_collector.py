"""The shim's collector of output: pipes, parts, and the limit of what is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from admittance.runner.logs.pod_output import PodOutput
from admittance.runner.output.collector import OutputCollector
from admittance.runner.output.parts import pods_with_output

MIB = 1 << 20


def kept(folder: Path, pod: str = "main-0") -> tuple[int, bytes]:
    """The position of the first byte of the pod's output, and the output."""
    with PodOutput(pods_with_output(str(folder)).get(pod, ())) as output:
        return output.start, output.read(0, 1 << 30)[0]


def used(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def test_the_newest_output_is_kept_and_positions_stay(tmp_path: Path) -> None:
    made = OutputCollector(str(tmp_path), MIB, 1)
    lines = [b"%07d\n" % number for number in range(250_000)]
    for at in range(0, len(lines), 1_000):
        made.write("main-0", b"".join(lines[at : at + 1_000]))
        assert used(tmp_path) <= MIB + 8_192
    made.close()
    start, text = kept(tmp_path)
    assert text == b"".join(lines)[start:]
    assert len(text) > MIB * 3 // 4
    assert len(list(tmp_path.iterdir())) < 100


def test_one_pod_of_many_may_use_the_whole_limit_in_few_files(tmp_path: Path) -> None:
    made = OutputCollector(str(tmp_path), 8 * MIB, 500)
    made.write("main-1", b"quiet\n")
    for _ in range(300):
        made.write("main-0", b"x" * 65_536)
    made.close()
    assert len(kept(tmp_path)[1]) > 6 * MIB
    assert kept(tmp_path, "main-1") == (0, b"quiet\n")
    assert len(list(tmp_path.iterdir())) < 100


def test_output_of_many_pods_is_cut_where_there_is_most(tmp_path: Path) -> None:
    made = OutputCollector(str(tmp_path), MIB, 10)
    for number in range(600):
        made.write(f"main-{number}", b"x" * (50 if number % 2 else 5_000))
    made.close()
    assert used(tmp_path) <= MIB


def test_a_later_shim_appends_to_the_output(tmp_path: Path) -> None:
    first = OutputCollector(str(tmp_path), 128 << 10, 1)
    first.write("main-0", b"a" * 300_000)
    first.close()
    (tmp_path / "main-1.log").write_bytes(b"of an earlier version\n")
    again = OutputCollector(str(tmp_path), 128 << 10, 1)
    again.write("main-1", b"more\n")
    for _ in range(40):
        again.write("main-0", b"b" * 5_000)
    again.close()
    start, text = kept(tmp_path)
    assert start + len(text) == 500_000
    assert set(text) == set(b"b")
    assert kept(tmp_path, "main-1")[1] == b"of an earlier version\nmore\n"
    assert used(tmp_path) <= 136 << 10


def test_a_note_is_a_separate_line(tmp_path: Path) -> None:
    made = OutputCollector(str(tmp_path), MIB, 1)
    made.note("main-0", "first")
    end = made.pipe("main-0")
    os.write(end, b"half a line")
    made.note("main-0", "second")
    made.close()
    os.close(end)
    assert kept(tmp_path)[1] == b"first\nhalf a line\nsecond\n"


def test_without_a_limit_all_output_is_in_one_file(tmp_path: Path) -> None:
    made = OutputCollector(str(tmp_path), 0, 1)
    made.write("main-0", b"x" * 200_000)
    made.close()
    assert (tmp_path / "main-0.log").stat().st_size == 200_000


def test_output_without_space_on_the_disk_is_dropped_and_leaves_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = OutputCollector(str(tmp_path), MIB, 1)
    made.write("main-0", b"before")

    def full(_: int, __: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        made.write("main-0", b"lost!")
    made.write("main-0", b"after")
    made.close()
    assert (tmp_path / "main-0.log").read_bytes() == b"before"
    assert (tmp_path / "main-0.log.11").read_bytes() == b"after"


def test_the_end_of_a_pod_has_all_its_output_and_the_signal_is_seen(tmp_path: Path) -> None:
    made = OutputCollector(str(tmp_path), MIB, 1)
    wake, poke = os.pipe()
    ends = [made.pipe("main-0"), made.pipe("main-0"), made.pipe("main-1")]
    for number, end in enumerate(ends):
        os.write(end, b"%d" % number * 3)
    made.close_pod("main-0")
    assert kept(tmp_path) == (0, b"000111")
    assert kept(tmp_path, "main-1") == (0, b"")
    os.close(ends[0])
    os.write(poke, b"!")
    made.wait(wake, 60.0)
    assert kept(tmp_path, "main-1") == (0, b"222")
    assert os.read(wake, 9) == b"!"
    made.wait(wake, 0.0)
    # A process that outlives its pod gets no output into the files of the run.
    made.close()
    with pytest.raises(BrokenPipeError):
        os.write(ends[1], b"late")
    for descriptor in (wake, poke, *ends[1:]):
        os.close(descriptor)
