"""The durables through which check controllers hear what they are asked: ``check-<controller>``.

They belong to the system, not to the controllers: made when the first AdmissionCheck names a
controller, so that nothing it is asked is missed however late it starts, and deleted when none does
any more.
"""

from __future__ import annotations

from typing import Any, Final

from admittance.events.names import BadToken, plain
from admittance.events.subjects import CHECK_DURABLE, STREAM, check_durable, check_filters
from admittance.runtime.bus import Bus
from admittance.runtime.errors import Refused

ACK_WAIT_SECONDS: Final = 30
"""Until a request that nobody acknowledged comes again, perhaps to another replica."""
MAX_ACK_PENDING: Final = 5000
"""Requests that the replicas of one controller hold unacknowledged. Of one that never acknowledges
this many come again every `ACK_WAIT_SECONDS`, and no more."""
NO_CONSUMER: Final = 10014


def settings(controller: str) -> dict[str, Any]:
    """How the durable of that controller is set up."""
    name = check_durable(controller)
    return {
        "durable_name": name,
        "name": name,
        "filter_subjects": check_filters(controller),
        "deliver_policy": "new",
        "ack_policy": "explicit",
        "ack_wait": ACK_WAIT_SECONDS * 1_000_000_000,
        "max_ack_pending": MAX_ACK_PENDING,
        "max_deliver": -1,
        "max_waiting": 512,
    }


async def make(bus: Bus, controller: str) -> None:
    """Makes the durable of that controller; one that is there keeps its place in the log, and gets
    our settings. Raises Refused or Unavailable."""
    wanted = settings(controller)
    name = wanted["name"]
    try:
        found = (await bus.api(f"CONSUMER.INFO.{STREAM}.{name}"))["config"]
    except Refused as error:
        if error.code != NO_CONSUMER:
            raise
    else:
        if all(found.get(key) == value for key, value in wanted.items()):
            return
        # Where it began cannot be changed, and need not be.
        begun = ("deliver_policy", "opt_start_seq", "opt_start_time")
        wanted = {
            **{key: value for key, value in wanted.items() if key not in begun},
            **{key: found[key] for key in begun if key in found},
        }
    await bus.api(f"CONSUMER.CREATE.{STREAM}.{name}", {"stream_name": STREAM, "config": wanted})


async def remove(bus: Bus, controller: str) -> None:
    """Deletes the durable of that controller; harmless where there is none."""
    try:
        await bus.api(f"CONSUMER.DELETE.{STREAM}.{check_durable(controller)}")
    except Refused as error:
        if error.code != NO_CONSUMER:
            raise


async def there(bus: Bus) -> dict[str, dict[str, Any]]:
    """Every such durable by its controller, as the server tells of it (``num_pending``,
    ``num_ack_pending``, …). A consumer of such a name that reads something else is none."""
    found: dict[str, dict[str, Any]] = {}
    offset = 0
    while True:
        page = await bus.api(f"CONSUMER.LIST.{STREAM}", {"offset": offset})
        consumers = page.get("consumers") or []
        for info in consumers:
            controller = _controller(info)
            if controller is not None:
                found[controller] = info
        offset += len(consumers)
        if not consumers or offset >= page["total"]:
            return found


def _controller(info: dict[str, Any]) -> str | None:
    name = str(info["name"])
    if not name.startswith(CHECK_DURABLE):
        return None
    try:
        controller = plain(name.removeprefix(CHECK_DURABLE))
    except BadToken:
        return None
    read = info["config"].get("filter_subjects") or []
    return controller if sorted(read) == sorted(check_filters(controller)) else None
