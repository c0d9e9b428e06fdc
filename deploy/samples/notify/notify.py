"""Sends mail or chat when a workload finishes or waits for a person: ``python notify.py URL...``

A URL is one of apprise, such as ``mailto://…`` or ``slack://…``.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from admittance.client import Client

APPROVAL = "admittance.dev/approval"


def text_of(subject: str, fact: dict[str, Any]) -> str:
    """The message about a fact of the log; "": none is sent."""
    *words, _, _ = subject.split(".")  # The last two are namespace and name.
    which = f"workload {fact.get('namespace')}/{fact.get('name')}"
    if "finished" in words:
        how = "has succeeded" if fact.get("succeeded", True) else "has failed"
        return ": ".join(filter(None, (f"{which} {how}", fact.get("message"))))
    if "reported" in words and (fact.get("controller"), fact.get("state")) == (APPROVAL, "Pending"):
        return f"{which} {fact.get('message') or 'waits for approval'}"
    return ""


async def main(urls: list[str]) -> None:
    import apprise

    chat = apprise.Apprise()
    if not urls or not chat.add(urls):
        sys.exit("usage: notify.py URL...; a URL is one of apprise, such as mailto://…")
    async with await Client.connect() as client:
        start = datetime.now(UTC)  # noqa: TID251 - a program of its own
        async for entry in client.events(follow=True, since=start):
            text = "" if entry.outcome else text_of(entry.subject, msgspec.json.decode(entry.data))
            if text and not await chat.async_notify(body=text, title="Admittance"):
                sys.stderr.write(f"not sent: {text}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
