"""All cores together, in many random lives: nothing that was promised is ever broken."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from simulation.run import run

SEEDS = int(os.environ.get("ADMIT_SEEDS", "2000"))
PART = 20
"""Of many small parts the runner of tests begins with, beside whatever else costs it a core."""


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_whatever_fails_every_promise_is_kept(first: int) -> None:
    broken = [seed for seed in range(first, min(first + PART, SEEDS)) if run(seed).broken]
    if broken:
        story = run(broken[0], keep=True)
        told = "\n".join(story.story[-40:])
        raise AssertionError(
            f"{len(broken)} of these {PART} seeds broke a promise: {broken}\n"
            f"seed {broken[0]}: {story.broken}\n{told}\n"
            f"play it again: python -m simulation --seed {broken[0]} -v"
        )


def test_a_seed_is_always_the_same_story() -> None:
    assert run(7, keep=True) == run(7, keep=True)


def test_a_seed_is_the_same_story_in_every_process() -> None:
    told = {_stories(hashes) for hashes in ("1", "2")}
    assert len(told) == 1


def _stories(hashes: str) -> str:
    command = [sys.executable, "-m", "simulation", "-v"]
    told = ""
    for plot, seed in (("checked", 0), ("checked", 18), ("families", 7), ("exclusive", 29)):
        done = subprocess.run(
            [*command, "--plot", plot, "--seed", str(seed)],
            env=os.environ | {"PYTHONHASHSEED": hashes},
            check=False,
            capture_output=True,
            text=True,
        )
        told += done.stdout
    return told


def test_most_runs_do_real_work() -> None:
    results = [run(seed) for seed in range(30)]
    assert sum(result.finished for result in results) > 60
    assert sum(result.reservations for result in results) > 90
