"""The check controllers' part, mimicked: whoever is asked says Ready at once."""

from __future__ import annotations

import msgspec

from admittance.cli.bench.speaker import Speaker


class _Asked(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    name: str
    check: str
    cycle: int


_asked = msgspec.json.Decoder(_Asked)


class Answers:
    """Hears `check.requested`, says `check.reported`. A request heard twice is answered twice,
    as controllers may."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker

    def hear(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        """A message on ``admit.check.requested.<controller>.<ns>.<name>``."""
        asked = _asked.decode(data)
        whose = subject.decode().split(".", 3)[3]
        # Names of a plan need no escape in JSON.
        verdict = (
            f'{{"namespace":"{asked.namespace}","name":"{asked.name}","check":"{asked.check}",'
            f'"cycle":{asked.cycle},"state":"Ready","message":"as always"}}'
        )
        self._speaker.say(f"admit.check.reported.{whose}", verdict.encode())
