"""Deliveries that nothing has become of yet, under the id of the request that they are about."""

from __future__ import annotations

from admittance.peers.hearing import Hearing


class Deliveries:
    """Those of requests, or those of cancellations. One and the same may have come several times;
    the empty reply is nobody's."""

    def __init__(self, hearing: Hearing) -> None:
        self._hearing = hearing
        self._replies: dict[str, list[str]] = {}

    def take(self, request_id: str, reply: str) -> bool:
        """It came. True: it is the first one about that request."""
        replies = self._replies.setdefault(request_id, [])
        replies.append(reply)
        return len(replies) == 1

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._replies

    def ids(self) -> list[str]:
        """What they are about."""
        return list(self._replies)

    def done(self, request_id: str) -> None:
        """It is dealt with: they are acknowledged."""
        for reply in self._replies.pop(request_id, ()):
            self._hearing.done(reply)

    def again(self, request_id: str, delay_seconds: float = 0.0) -> None:
        """Somebody is to deal with it later."""
        for reply in self._replies.pop(request_id, ()):
            self._hearing.again(reply, delay_seconds)

    def let_wait(self, request_id: str) -> None:
        """It rests for a while, so others may come beside it."""
        for reply in self._replies.get(request_id, ()):
            self._hearing.let_wait(reply)

    def hand_back(self) -> None:
        """Another replica is to have all of them."""
        for replies in self._replies.values():
            for reply in replies:
                self._hearing.again(reply)
