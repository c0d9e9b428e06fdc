"""Mechanisms of the services that ship, taken out one by one to see that they are missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from admittance.control import controller
from admittance.control.controller import Controller
from admittance.control.workloads import NOTHING, VersionedWorkload, Workloads
from admittance.runner.claims import Claim, Claims, ClaimState
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import Refused
from admittance.runtime.leader.leader_elector import LeaderElector
from simulation.mechanisms import Mechanisms


@contextmanager
def mutated(mechanisms: Mechanisms) -> Iterator[None]:
    """The services lack what ``mechanisms`` says. The fence is the server's to leave out."""
    with ExitStack() as stack:
        for in_place, where, name, mutant in (
            (mechanisms.barrier, LeaderElector, "take", _take_without_barrier),
            (mechanisms.skip_applied, controller, "Workloads", _Forgetful),
            (mechanisms.say_again, Controller, "settle_load", _settle_load_in_silence),
            (mechanisms.seen, Controller, "__init__", _make_without_seen),
            (mechanisms.joint, Bus, "atomic", _torn),
            (mechanisms.claims, Claims, "take", _take_all),
        ):
            if not in_place:
                stack.enter_context(patch.object(where, name, mutant))
        yield


_take: Final = LeaderElector.take
_settle_load: Final = Controller.settle_load
_make: Final = Controller.__init__
_atomic: Final = Bus.atomic


async def _take_without_barrier(self: LeaderElector, domains: Any, *, barrier: bool) -> list[str]:
    return await _take(self, domains, barrier=False)


class _Forgetful(Workloads):
    """Workloads that do not know which facts they hold."""

    def get(self, key: str) -> VersionedWorkload:
        known = super().get(key)
        return known if known is NOTHING else known._replace(fact=0)


def _settle_load_in_silence(self: Controller, *args: Any, **named: Any) -> list[str]:
    for key in _settle_load(self, *args, **named):
        self.outbox_published(key)
    return []


def _make_without_seen(self: Controller, *args: Any, **named: Any) -> None:
    _make(self, *args, **named)
    self.catalog.newest = lambda domain: 0  # type: ignore[method-assign]  # noqa: ARG005


async def _take_all(self: Claims, keys: Sequence[str], *, again: bool = False) -> list[Claim]:
    return [Claim(ClaimState.HELD, self._runner, 0) for _ in keys]


async def _torn(self: Bus, messages: Sequence[Outgoing], *, timeout: float = 10.0) -> int:
    """Each put of a batch for itself, the one that gets before those that give."""
    if not messages[0].subject.startswith("$KV."):
        return await _atomic(self, messages, timeout=timeout)
    outcomes = await self.publish_all(messages[::-1], timeout=timeout)
    for outcome in outcomes:
        if isinstance(outcome, Refused):
            raise outcome
    return max(outcome for outcome in outcomes if isinstance(outcome, int))
