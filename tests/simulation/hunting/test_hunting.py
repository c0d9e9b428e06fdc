"""A hunt ends at the first broken seed, and a broken story is made shorter."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from simulation.__main__ import main
from simulation.hunting import hunt as hunting
from simulation.hunting.figures import Figures, Tally, begun, figures_of
from simulation.hunting.hunt import Found, hunt, kind_of, parts_of, shortened
from simulation.plots.catalog import PLOTS
from simulation.plots.scenario import Scenario
from simulation.run import Result, run
from simulation.world import World


class Lossy(World):
    """A world that breaks a promise when two workloads were submitted."""

    def begin(self) -> None:
        super().begin()
        said = {getattr(published.fact, "name", "") for published in self.plan.user_facts}
        if {"w1", "w3"} <= said:
            raise ValueError("w1 and w3")


def test_a_story_is_shortened_to_what_breaks_it() -> None:
    plot = PLOTS["contested"]
    scenario, result = shortened(0, plot, Lossy)
    assert result.broken == "ValueError: w1 and w3"
    names = [getattr(published.fact, "name", "") for published in scenario.user_facts]
    assert sorted(names) == ["w1", "w3"]
    assert scenario.admin_changes == scenario.faults == []


def test_a_scenario_is_drawn_again_as_it_was() -> None:
    drawn: list[Scenario] = []

    def plot(rng: Random) -> Scenario:
        drawn.append(PLOTS["contested"](rng))
        return drawn[-1]

    run(3, plot=plot)
    assert PLOTS["contested"](Random(3)) == drawn[0]


def test_a_hunt_ends_at_the_first_broken_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []

    def play(seed: int, **_: object) -> Result:
        played.append(seed)
        return Result(seed, "broken" if seed == 31 else "", [], 0, 0, 0)

    monkeypatch.setattr(hunting, "run", play)
    said, tally = io.StringIO(), Tally()
    result = hunt(range(1000), ["checked", "scenario"], 1, tally, said)
    assert isinstance(result, Found)
    assert (result.plot, result.result.seed) == ("scenario", 31)
    assert len(played) == tally.figures.seeds < 4 * hunting.PART
    assert "10 of 1000 seeds" in said.getvalue()
    assert hunt(range(20), ["scenario"], 1, Tally(), said) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "many"], "'many' is neither a number nor two, as in 500..999"),
        (["--seeds", "5..x"], "'5..x' is neither a number nor two"),
        (["--seeds", "0"], "'0' has no seeds"),
        (["--seeds", "9..1"], "'9..1' has no seeds"),
        (["-j", "0"], "'0' is no number of processes"),
        (["--plot", "none"], "invalid choice: 'none'"),
        (["--figures", "nowhere/at/all.json"], "nowhere/at/all.json cannot be written"),
        (["--figures", "README.md"], "README.md has no figures of a hunt"),
        (["--sum", "nowhere.json"], "nowhere.json has no figures of a hunt"),
    ],
)
def test_a_wrong_option_of_a_hunt_gets_one_error(
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "README.md").write_text("about")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["simulation", *options])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert message in capsys.readouterr().err


def test_a_hunt_plays_each_seed_once() -> None:
    parts = list(parts_of(range(7, 107), ["a", "b", "c"]))
    assert sorted(seed for part in parts for seed in part.seeds) == list(range(7, 107))
    assert all(part.plot == "abc"[seed % 3] for part in parts for seed in part.seeds)
    assert [part.before for part in parts if part.before] == [37, 67, 97, 107]


def test_an_interrupted_hunt_continues_and_adds_its_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, plots, seeds = tmp_path / "figures.json", ["checked", "scenario"], range(100)
    played: list[int] = []

    def play(seed: int, **_: object) -> Result:
        if len(played) == 50:
            raise KeyboardInterrupt
        played.append(seed)
        return Result(seed, "", [], 10, 0, 1, Counter(kill=2), frozenset({("", "pending")}))

    monkeypatch.setattr(hunting, "run", play)
    with pytest.raises(KeyboardInterrupt):
        hunt(seeds, plots, 1, Tally(begun(seeds, "", file), file), io.StringIO())
    assert figures_of(file).seeds == figures_of(file).next == 40
    played.clear()
    monkeypatch.setattr(hunting, "run", lambda seed, **_: _noted(played, seed))
    hunt(seeds, plots, 1, Tally(begun(seeds, "", file), file), io.StringIO())
    assert sorted(played) == list(range(40, 100))
    figures = figures_of(file)
    assert (figures.seeds, figures.steps, figures.faults) == (100, 40 * 10 + 60, {"kill": 80})
    assert begun(seeds, "", file).seeds == 0
    assert begun(range(200), "", file).next == 100
    assert begun(range(200), "checked", file).seeds == 0
    total = Figures()
    total.add(figures)
    total.add(figures)
    assert "200 seeds" in next(total.lines())


def _noted(played: list[int], seed: int) -> Result:
    played.append(seed)
    return Result(seed, "", [], 1, 0, 0)


def test_a_shortened_story_breaks_the_same_promise() -> None:
    assert kind_of("ns.w1 waits since 3 s") == kind_of("ns.w7 waits since 40 s")
    assert kind_of("ns.w1 waits since 3 s") != kind_of("ns.w1 is lost since 3 s")


class Stuck(World):
    """A world in which a callback of a service never returns."""

    def begin(self) -> None:
        super().begin()

        def turn() -> None:
            while True:
                pass

        self.loop.at(1.0, self.loop.post, self.services["s-a"].process, turn)


def test_a_callback_that_does_not_end_is_a_failure_with_its_story() -> None:
    result = run(0, keep=True, world_of=Stuck, cpu_seconds=0.5)
    assert result.broken == "NoEnd: 0.5 s of CPU time, and no end"
    assert len(result.story) > 20
    assert "in turn" in "\n".join(result.story[-6:])


def test_a_seed_that_does_not_end_is_a_failure_with_its_story() -> None:
    result = run(0, keep=True, steps=2000)
    assert result.broken == "NoRest: 2000 callbacks, and no end"
    assert result.steps == 2001
    assert len(result.story) > 20
    assert "NoRest" in result.story[-1]


def test_a_hunt_with_a_killed_process_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hunting, "run", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setattr(sys, "argv", ["simulation", "--seeds", "30", "-j", "2"])
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        assert main() == 1
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    first = min(PLOTS)
    assert capsys.readouterr().out.endswith(f"\nthe process of {first}-0 was killed: -9\n")
