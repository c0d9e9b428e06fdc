"""A stream finds the messages under a pattern without a look at all of them."""

from __future__ import annotations

from random import Random

import pytest

from simulation.nats.stream import Stream
from simulation.nats.subjects import matching
from simulation.virtual_time.loop import VirtualLoop

SUBJECTS = ("a.b.x", "a.b.y", "a.c.x", "d.b.x", "a.b.x.z", "a.x")
PATTERNS = ("a.*.x", "a.b.>", "*.b.>", ">", "a.b.x", "a.*", "a.>", "q.*.x")


@pytest.mark.parametrize("only_last", [False, True])
def test_messages_under_a_pattern_are_those_that_match_it(only_last: bool) -> None:
    loop, rng = VirtualLoop(), Random(5)  # type: ignore[abstract]
    config = {"name": "s", "subjects": [">"], "max_msgs_per_subject": 1 if only_last else -1}
    stream = Stream(loop, rng.random, config)
    for number in range(60):
        loop.now = float(number // 10)
        stream.store(rng.choice(SUBJECTS), b"", b"", {})
    for sequence in (7, 20, 33):
        message = stream.at(sequence)
        if message is not None:
            stream.remove(message)
    for _ in range(2):
        for pattern in PATTERNS:
            for sequence, time in ((1, 0.0), (15, 0.0), (30, 4.0), (99, 0.0)):
                matches = matching([pattern])
                wanted = [m for m in stream.since(sequence, time=time) if matches(m.subject)]
                assert list(stream.under(pattern, sequence, time=time)) == wanted, pattern
        stream.lose(3.5)
        stream.store("a.b.x", b"", b"", {})
    loop.close()
