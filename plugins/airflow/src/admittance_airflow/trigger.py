"""What waits for a job in Airflow's triggerer, without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent

from admittance.client import Client, ClientError, NotFound, Refused, Unavailable

AGAIN_SECONDS: Final = 10.0
"""The pause before the next attempt to reach the server."""


class AdmittanceTrigger(BaseTrigger):
    """Fires once the job has ended. ``server``: a context of `admit context list`; None: the server
    is found as commands find it."""

    def __init__(self, name: str, namespace: str, server: str | None = None) -> None:
        super().__init__()
        self.name = name
        self.namespace = namespace
        self.server = server

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, for the triggerer."""
        arguments = {"name": self.name, "namespace": self.namespace, "server": self.server}
        return "admittance_airflow.trigger.AdmittanceTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yields how the job ended, as `ended` gives it."""
        while True:
            try:
                async with await Client.connect(context=self.server) as client:
                    event = await ended(client, self.name, self.namespace)
                break
            except Unavailable as error:
                self.log.warning("%s; it will be tried again", error)
                await asyncio.sleep(AGAIN_SECONDS)
        yield TriggerEvent(event)

    async def on_kill(self) -> None:
        """Stops the job of a task that a person has cleared or marked."""
        try:
            async with await Client.connect(context=self.server) as client:
                await client.stop(self.name, namespace=self.namespace)
        except ClientError as error:
            self.log.warning("the job could not be stopped: %s", error)


async def ended(client: Client, name: str, namespace: str) -> dict[str, Any]:
    """Waits for the end of a job: its ``exit_code``, and as ``failed`` why it failed; "": it
    succeeded."""
    try:
        result = await client.job(name, namespace=namespace).result()
    except (NotFound, Refused) as error:
        return {"name": name, "failed": str(error), "exit_code": None}
    why = ": ".join(filter(None, (result.reason, result.message)))
    return {
        "name": name,
        "failed": "" if result.succeeded else why,
        "exit_code": result.exit_code,
    }
