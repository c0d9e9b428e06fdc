"""The order in which a client tries servers after a loss."""

from __future__ import annotations

from admittance.runtime.nats.server_turns import ServerTurns


def tried(turns: ServerTurns, servers: list[str], times: list[float]) -> list[tuple[str, float]]:
    return [turns.next(servers, now) for now in times]


def test_servers_take_turns_and_the_lost_one_is_last() -> None:
    turns = ServerTurns(0.2)
    turns.lost("lost")
    servers = ["one", "lost", "two"]
    assert tried(turns, servers, [0.0, 3.0, 6.0, 9.0, 12.0]) == [
        *(("one", 0.0), ("two", 0.0), ("lost", 0.0)),
        *(("one", 0.0), ("two", 0.0)),
    ]


def test_a_server_that_has_just_failed_is_tried_after_a_pause() -> None:
    turns = ServerTurns(0.2)
    turns.lost("only")
    # An attempt may last long: the pause begins when it has failed.
    assert tried(turns, ["only"], [0.0, 2.0, 2.3, 5.0]) == [
        ("only", 0.0),
        *[("only", 0.2)] * 3,
    ]


def test_a_server_that_accepts_and_closes_at_once_is_not_tried_without_pause() -> None:
    turns = ServerTurns(0.2)
    turns.lost("only")
    assert turns.next(["only"], 0.0) == ("only", 0.0)
    turns.lost("only")
    assert turns.next(["only"], 0.1) == ("only", 0.2)
    turns.lost("only")
    assert turns.next(["only"], 9.0) == ("only", 0.0)


def test_a_server_that_the_cluster_announces_meanwhile_is_tried_first() -> None:
    turns = ServerTurns(0.2)
    turns.lost("one")
    assert turns.next(["one", "two"], 0.0) == ("two", 0.0)
    assert turns.next(["one", "two", "new"], 1.0) == ("new", 0.0)
