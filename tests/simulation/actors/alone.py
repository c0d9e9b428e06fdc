"""Services of which one instance works while the others stand by: one life of one instance."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from simulation.actors.leading import BEAT, Leading
from simulation.actors.service import Service
from simulation.kernel import Killed
from simulation.link import Unavailable


class Superseded(Exception):
    """A newer epoch works in our place."""


class Work(Protocol):
    """What the one does, or who believes so."""

    def run(self) -> Any:
        """Works until another one leads, or until it hears so: raises Superseded."""

    def close(self) -> None:
        """Hears no more."""


W = TypeVar("W", bound=Work)


class Alone(Service, Generic[W]):
    """Stands by, leads ``domain``, falls. ``work``: what it does while it leads."""

    domain = ""
    work: W | None = None

    def begin(self, epoch: int, /) -> W:
        """The work of that epoch."""
        raise NotImplementedError

    def start(self) -> None:
        self.leading = Leading(self)
        self.process.start(self.leading.run())
        self.process.start(self._take_turns())

    def _take_turns(self) -> Any:
        leading = self.leading
        yield leading.watching
        while True:
            try:
                yield from leading.take([self.domain], barrier=False)
            except Unavailable:
                raise Killed("cannot take the lease") from None
            epoch = leading.lease.fence(self.domain)
            if epoch is None:
                leading.changed.clear()
                # A heartbeat that is heard is such a change; here only where it makes a difference.
                vacant = leading.failed or leading.lease.owner(self.domain) == self.instance
                yield leading.changed, (BEAT if vacant else None)
                continue
            work = self.work = self.begin(epoch)
            try:
                yield from work.run()
            except Superseded:
                self.tell(f"is superseded (epoch {epoch})")
                leading.lease.lost(self.domain)
            except Unavailable:
                raise Killed("no answer from the bus") from None
            finally:
                work.close()
                self.work = None
