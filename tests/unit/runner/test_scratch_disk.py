"""Files that a job writes outside of its output are measured within a budget, and removed in the
background."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from admittance.runner.disk.scratch import REST_FACTOR, REST_SECONDS, ScratchDisk, size_text
from admittance.runner.disk.trash import TrashRemover, throw_away, trash_of
from admittance.runner.disk.walk import BLOCK_BYTES, DEPTH_MAX, DiskWalk

MIB = 1 << 20
CACHE = {"name": "cache", "limit": MIB, "limit_text": "1Mi"}


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def used(root: Path, **limits: int) -> DiskWalk:
    walk = DiskWalk(str(root), {"main-0.volumes": limits})
    while not walk.step(7):
        pass
    return walk


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def look_until_sure(disk: ScratchDisk, clock: Clock) -> list[tuple[str, str]]:
    volumes: dict[str, list[dict[str, Any]]] = {"main-0": [CACHE]}
    for _ in range(100):
        clock.now = max(clock.now, disk.due)
        usage = disk.look(volumes)
        if usage or disk.too_much:
            return usage
    return []


def test_a_walk_counts_what_the_disk_holds_and_no_other_place(tmp_path: Path) -> None:
    root, outside = tmp_path / "scratch", tmp_path / "outside"
    write(outside / "big", 3 * MIB)
    write(root / "main-0" / "file", MIB)
    os.link(root / "main-0" / "file", root / "main-0" / "same")
    (root / "main-0" / "link").symlink_to(outside)
    with (root / "main-0" / "sparse").open("wb") as file:
        file.truncate(4 << 40)
    folders = 2
    assert MIB <= used(root).used <= MIB + (folders + 4) * 2 * BLOCK_BYTES


def test_a_volume_over_its_limit_is_found_and_its_neighbours_are_not(tmp_path: Path) -> None:
    for volume, size in (("cache", 2 * MIB), ("data", MIB // 2), ("free", 3 * MIB)):
        write(tmp_path / "main-0.volumes" / volume / "a" / "b" / "file", size)
    write(tmp_path / "main-1.volumes" / "cache" / "file", 2 * MIB)
    assert used(tmp_path, cache=MIB, data=MIB).over == {("main-0.volumes", "cache")}


def test_a_walk_ends_at_folders_that_lie_too_deep(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(DEPTH_MAX + 5):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    clock = Clock()
    disk = ScratchDisk(str(tmp_path), 50 << 30, clock)
    look_until_sure(disk, clock)
    assert "the runner cannot measure its files" in disk.too_much


def test_a_step_is_bounded_and_followed_by_a_rest(tmp_path: Path) -> None:
    """A job chooses the number of its files; the shim also has to serve its pods."""
    folder = tmp_path / "main-0"
    folder.mkdir()
    for number in range(600):
        os.mknod(folder / str(number))
    clock = Clock()
    disk = ScratchDisk(str(tmp_path), 50 << 30, clock)
    clock.now = disk.due
    began, steps = clock.now, 0
    while clock.now - began < 5.0 and not (steps and disk.due - clock.now > 1.0):
        clock.now = disk.due
        at = clock.now
        disk.look({})
        steps += 1
        took = clock.now - at
        assert took < 0.05
        assert disk.due - clock.now >= max(REST_SECONDS, REST_FACTOR * took - 0.1)
    assert steps > 2


def test_only_the_second_walk_that_finds_too_much_is_believed(tmp_path: Path) -> None:
    write(tmp_path / "main-0.volumes" / "cache" / "file", 2 * MIB)
    clock = Clock()
    disk = ScratchDisk(str(tmp_path), 0, clock)
    clock.now = disk.due
    assert disk.look({"main-0": [CACHE]}) == []
    assert look_until_sure(disk, clock) == [
        ("main-0", 'usage of EmptyDir volume "cache" exceeds the limit "1Mi"')
    ]
    whole = ScratchDisk(str(tmp_path), MIB, clock)
    look_until_sure(whole, clock)
    assert whole.too_much.startswith("its scratch folders and emptyDir volumes have more than 1Mi")


def test_many_empty_files_count_as_files(tmp_path: Path) -> None:
    folder = tmp_path / "main-0"
    folder.mkdir()
    for number in range(64):
        os.mknod(folder / str(number))
    assert used(tmp_path).used >= 64 * BLOCK_BYTES


def test_folders_of_ended_pods_do_not_count_while_they_are_removed(tmp_path: Path) -> None:
    write(tmp_path / "main-0" / "file", 2 * MIB)
    clock = Clock()
    disk = ScratchDisk(str(tmp_path), MIB, clock)
    disk.discard("main-0")
    look_until_sure(disk, clock)
    assert not disk.too_much


def test_sizes_read_as_quantities() -> None:
    assert [size_text(size) for size in (50 << 30, MIB, 1_000, 3 << 10, 0)] == [
        *("50Gi", "1Mi", "1000", "3Ki", "0")
    ]


async def test_thrown_folders_leave_their_place_at_once_and_are_removed(tmp_path: Path) -> None:
    scratch = tmp_path / "runs" / "ns.w.7" / "scratch"
    write(scratch / "main-0" / "closed" / "file", 1)
    (scratch / "main-0" / "closed").chmod(0)
    throw_away(scratch, trash_of(tmp_path))
    throw_away(scratch, trash_of(tmp_path))
    assert not scratch.exists()
    assert len(list(trash_of(tmp_path).iterdir())) == 1
    async with asyncio.timeout(20):
        await TrashRemover(tmp_path).empty()
    assert list(trash_of(tmp_path).iterdir()) == []


def test_folders_without_files_are_removed_at_once_and_links_stay(tmp_path: Path) -> None:
    trash = trash_of(tmp_path)
    for number in range(3):
        (tmp_path / "empty" / f"main-{number}").mkdir(parents=True)
    throw_away(tmp_path / "empty", trash)
    assert [path.name for path in tmp_path.iterdir()] == []
    write(tmp_path / "kept" / "file", 1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept" / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    throw_away(tmp_path / "full", trash)
    throw_away(tmp_path / "link", trash)
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept" / "empty").is_dir()
    assert not (tmp_path / "full").exists()
    assert (tmp_path / "kept" / "file").exists()
    assert len(list(trash.iterdir())) == 2
