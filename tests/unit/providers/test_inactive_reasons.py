"""Classes are inactive while there is a reason, for instance a missing right."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from admittance.providers import Provider
from admittance.providers.health import InactiveReasons, MissingRights
from support.servers import within


def test_classes_are_inactive_as_long_as_anything_does_not_work() -> None:
    provider, other = Provider("one"), Provider("other")
    reasons = InactiveReasons((provider, other))

    reasons.begin("look", "no network")
    reasons.begin("make", "no rights")
    assert (provider.active, provider.message) == (False, "no network; no rights")
    assert other.message == provider.message

    reasons.end("look")
    assert (provider.active, provider.message) == (False, "no rights")
    assert reasons
    assert "make" in reasons

    reasons.end("make")
    assert (provider.active, provider.message) == (True, "")
    assert not reasons


def test_a_reason_is_reported_when_it_changes_and_once() -> None:
    provider = Provider("one")
    reasons = InactiveReasons((provider,))
    messages: list[str] = []
    provider.inactive = messages.append  # type: ignore[assignment,method-assign]

    for reason in ("a", "a", "b"):
        reasons.begin("look", reason)
    reasons.end("other")

    assert messages == ["a", "b"]


class SomeRights(MissingRights):
    """A missing right to create objects does not block while ``may_create_elsewhere`` is set."""

    may_create_elsewhere = False

    def blocks(self, right: Hashable) -> bool:
        return right != "create" or not self.may_create_elsewhere


def test_a_missing_right_that_does_not_block_leaves_the_classes_active() -> None:
    provider = Provider("one")
    rights = SomeRights(InactiveReasons((provider,)))

    rights.lacks("create", "it may not create")
    assert (provider.active, provider.message) == (False, "it may not create")
    rights.may_create_elsewhere = True
    rights.update()
    assert provider.active

    rights.lacks("delete", "it may not delete")
    assert provider.message == "it may not delete"
    rights.has("delete")
    assert provider.active


async def test_a_right_is_probed_until_it_is_back() -> None:
    provider = Provider("one")
    rights = MissingRights(InactiveReasons((provider,)))
    answers = [True, False, False]
    probed = asyncio.Event()

    async def probe() -> bool:
        if len(answers) == 1:
            probed.set()
        return answers.pop()

    rights.lacks("create", "it may not create", probe)
    running = asyncio.create_task(rights.run(0.0))
    await within(probed.wait())
    await rights.look()
    running.cancel()

    assert provider.active
    assert not answers
