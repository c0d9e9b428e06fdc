"""Users and admins, which speak to the system from outside."""

from __future__ import annotations

from typing import Any

from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from simulation.nats.observed import DONE, MESSAGE_ID, Outgoing, Server
from simulation.transcript import Transcript
from simulation.virtual_time.kernel import Kernel


class Publisher:
    """Says facts until they are acknowledged, under one message id each: some are lost on the way
    and some acknowledgements are, so some arrive twice, and none in any order."""

    def __init__(self, kernel: Kernel, server: Server, transcript: Transcript) -> None:
        self._kernel = kernel
        self._server = server
        self._transcript = transcript
        self._number = 0
        self.losses = 0.1
        self.acknowledged: list[Fact] = []

    def say(self, fact: Fact, at: float) -> None:
        """Publishes the fact at that time or somewhat later."""
        self._number += 1
        identity = f"user/{self._number}"
        message = Outgoing(subject_of(fact), encode(fact), {MESSAGE_ID: identity})
        rng, kernel = self._kernel.rng, self._kernel

        def attempt() -> None:
            if rng.random() >= self.losses:
                self._server.publish(message)
                if rng.random() >= self.losses:
                    self.acknowledged.append(fact)
                    return
            kernel.after(0.2 + rng.random() * 2.0, attempt)

        kernel.at(at + rng.random() * 0.05, attempt)


class Admin:
    """Applies manifests, one request after the other, each until it is done."""

    def __init__(self, kernel: Kernel, server: Server, transcript: Transcript) -> None:
        self._kernel = kernel
        self._server = server
        self._transcript = transcript
        self._waiting: list[list[dict[str, Any]]] = []
        self._busy = False
        self.applied = 0

    def apply(self, manifests: list[dict[str, Any]], at: float) -> None:
        """Applies them at that time, or when what came before is done."""

        def begin() -> None:
            self._waiting.append(manifests)
            self._next()

        self._kernel.at(at, begin)

    def _next(self) -> None:
        if not self._busy and self._waiting:
            self._busy = True
            self._attempt(self._waiting[0])

    def _attempt(self, manifests: list[dict[str, Any]]) -> None:
        kernel = self._kernel
        over = False

        def again() -> None:
            nonlocal over
            if not over:
                over = True
                self._attempt(manifests)

        def answered(outcome: str) -> None:
            nonlocal over
            if over:
                return
            over = True
            self._transcript.tell("admin", f"gets {outcome!r}")
            if outcome in ("applied", "unchanged", *DONE):
                self.applied += 1
                self._waiting.pop(0)
                self._busy = False
                self._next()
            else:
                kernel.after(0.5, lambda: self._attempt(manifests))

        if self._transcript.keep:
            self._transcript.tell("admin", f"asks for {', '.join(map(_name, manifests))}")
        self._server.request(manifests, answered)
        kernel.after(15.0, again)


def _name(manifest: dict[str, Any]) -> str:
    if "beat" in manifest:
        return f"a note: {manifest['beat']}"
    if "machine" in manifest:
        return f"a change of a machine: {manifest['machine']}"
    if "metadata" not in manifest:
        return f"an end of {manifest['delete']}"
    return f"{manifest['kind']} {manifest['metadata']['name']} {manifest['spec']}"
