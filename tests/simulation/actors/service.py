"""A service as something that lives and dies: what every actor that is a process has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.kernel import Kernel, Process
from simulation.link import Link
from simulation.mechanisms import Mechanisms
from simulation.server import Server

if TYPE_CHECKING:
    from simulation.story import Story


class Service:
    """One life of one instance. The next life is a new object, made by whoever supervises.

    ``closing``: what to do when it dies, so that nobody speaks to the dead.
    """

    kind = ""

    def __init__(
        self,
        kernel: Kernel,
        server: Server,
        instance: str,
        mechanisms: Mechanisms,
        story: Story,
        *,
        skew: float = 0.0,
    ) -> None:
        self.kernel = kernel
        self.server = server
        self.instance = instance
        self.mechanisms = mechanisms
        self.story = story
        self.process = Process(kernel, instance, skew=skew)
        self.link = Link(kernel, self.process)
        self.closing: list[Callable[[], None]] = []
        self.process.on_end = self._ended

    def start(self) -> None:
        """Begins to live."""
        raise NotImplementedError

    def tell(self, what: str) -> None:
        """A line of the story."""
        self.story.tell(self.instance, what)

    def ended(self) -> None:
        """Called once, after its death."""

    def _ended(self, _: str) -> None:
        self.link.died()
        for close in self.closing:
            close()
        self.closing.clear()
        self.ended()
