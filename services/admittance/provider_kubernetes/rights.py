"""Missing rights in the cluster. If the cluster refuses the credentials or a right is missing,
requests are not at fault: they wait, and the classes are inactive meanwhile.

A missing right to create in one namespace is different: while objects can be made in another
namespace, the classes stay active and only requests of that namespace wait. A missing right to
delete makes the classes inactive everywhere: a provider that cannot free capacity must not obtain
more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import structlog

from admittance.provider_kubernetes.cluster import (
    Away,
    Cluster,
    Denied,
    Forbidden,
    Right,
    Unauthorized,
)
from admittance.providers.health import InactiveReasons
from admittance.sdk.threads import run_to_completion

PAUSE_MIN: Final = 0.2
PAUSE_MAX: Final = 10.0
RIGHTS: Final = "rights"
LOGIN: Final = "login"

T = TypeVar("T")
Told = Callable[[str], Awaitable[object]]
log = structlog.get_logger()


class Rights:
    """Keeps the classes inactive while rights are missing. ``look_seconds``: how often missing
    rights are checked."""

    def __init__(self, cluster: Cluster, troubles: InactiveReasons, *, look_seconds: float) -> None:
        self._cluster = cluster
        self._troubles = troubles
        self._look_seconds = look_seconds
        self._lacking: dict[Right, str] = {}
        self._waiting: Counter[Right] = Counter()
        self._served: set[str] = set()
        """Namespaces where an object was made, and creation was not forbidden since."""
        self._wrong = asyncio.Event()

    async def run(self) -> None:
        """Checks missing rights periodically, until cancelled; possibly no request waits for them
        any more."""
        while True:
            await self._wrong.wait()
            await asyncio.sleep(self._look_seconds)
            try:
                await self._look()
            except Away as error:
                log.warning("rights_unknown", reason=str(error))

    async def patiently(
        self, call: Callable[..., Awaitable[T]], *arguments: Any, told: Told | None = None
    ) -> T:
        """Repeats the call until the cluster answers, also while a right is missing. ``told``:
        called with the reason of the delay. Raises Denied."""
        pause = PAUSE_MIN
        refused: dict[Right, None] = {}
        try:
            while True:
                try:
                    answer = await run_to_completion(call(*arguments))
                except Away as error:
                    wait = error.after if error.after is not None else pause
                    reason = str(error)
                    if isinstance(error, Unauthorized):
                        self._refused_login(reason)
                except Forbidden as error:
                    wait, reason = pause, str(error)
                    if error.right not in refused:
                        refused[error.right] = None
                        self._waiting[error.right] += 1
                    self._lacks(error.right, reason)
                else:
                    for right in refused:
                        self._has(right)
                    return answer
                log.warning("asked_again", reason=reason, seconds=wait)
                if refused and told is not None:
                    await told(reason)
                    told = None
                await asyncio.sleep(wait)
                pause = min(2 * pause, PAUSE_MAX)
        finally:
            self._waiting -= Counter(list(refused))

    def serves(self, namespace: str) -> None:
        """An object was made in that namespace."""
        self._served.add(namespace)
        if self._lacking:
            self._tell()

    def _refused_login(self, reason: str) -> None:
        self._troubles.begin(LOGIN, f"{self._cluster.server}: {reason}")
        self._wrong.set()

    def _lacks(self, right: Right, reason: str) -> None:
        self._lacking[right] = reason
        if right.verb == "create":
            self._served.discard(right.namespace)
        self._wrong.set()
        self._tell()

    def _has(self, right: Right) -> None:
        self._lacking.pop(right, None)
        self._tell()

    def _tell(self) -> None:
        for right, reason in self._lacking.items():
            if right.verb != "create" or not self._served:
                self._troubles.begin(RIGHTS, f"{self._cluster.server}: {reason}")
                return
        self._troubles.end(RIGHTS)

    async def _look(self) -> None:
        for right in list(self._lacking):
            try:
                has = await self._cluster.has(right)
            except Denied:
                # The server refuses to say. A waiting request finds out; without one, assume that
                # the right is back.
                has = not self._waiting[right]
            if has:
                self._has(right)
        if LOGIN in self._troubles:
            try:
                await self._cluster.has(Right("get", "provisioningrequests", ""))
            except Unauthorized:
                return
            except Denied:
                pass
            self._troubles.end(LOGIN)
        if not self._lacking:
            self._wrong.clear()
