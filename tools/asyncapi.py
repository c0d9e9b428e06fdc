"""The AsyncAPI 3 document of every subject and payload, made from the Structs.

``python -m tools.asyncapi [FILE]`` writes it to ``docs/schema/asyncapi.json``. It is
written from the point of view of Admittance as a whole: it *receives* messages from users, runners
and check controllers, and *sends* messages that they may read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from tools.documents import text_of, write

from admittance.access.outside_roles import USER_VERBS
from admittance.events import facts, system
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE, SCHEMA_VERSION
from admittance.events.requests import (
    budgets,
    explanation,
    history,
    machines,
    manifests,
    queues,
    reading,
    services,
    whatif,
)
from admittance.events.stored import checkpoints
from admittance.events.subjects import (
    ALIVE_CHECK,
    ALIVE_INSTANCE,
    ALIVE_PROVISIONING,
    ASKED,
    BARRIER,
    CHANGED,
    CHECK_FACTS,
    CHECKPOINT_MADE,
    COMMITS,
    DEADLETTER,
    EPOCH,
    FENCED,
    OUTPUTS,
    OWNER_FACTS,
    PERSON_FACTS,
    PROVISIONING_FACTS,
    TIMER_DUE,
    USER_FACTS,
    WORKLOAD_FACTS,
)

FILE: Final = Path("docs/schema/asyncapi.json")
_REF: Final = "#/components/schemas/{name}"

PARAMETERS: Final = {
    "namespace": "Namespace of the workload, escaped into one token.",
    "name": "Name of the object, escaped into one token.",
    "controller": "Name of the check controller, escaped into one token.",
    "class": "Name of the provisioning class, escaped into one token.",
    "domain": "A cohort tree or a ClusterQueue without cohort, escaped into one token.",
    "kind": "Kind of the object or of the timer, escaped into one token.",
    "user": "Name of the user, as in the credentials file, escaped into one token.",
    "id": "Name of the checkpoint.",
    "service": "Name of the service.",
    "instance": "Name of an instance of the service, escaped into one token.",
}


class Channel(NamedTuple):
    """A subject and what travels on it. ``reply`` is the answer to a request."""

    key: str
    address: str
    payload: type[msgspec.Struct]
    action: str
    reply: type[msgspec.Struct] | None = None


_API: Final[tuple[tuple[str, type[msgspec.Struct], type[msgspec.Struct], str], ...]] = (
    ("apply", manifests.Apply, manifests.ApplyReply, "both"),
    ("delete", manifests.Delete, manifests.DeleteReply, "both"),
    ("settled", history.Settled, history.SettledReply, "both"),
    ("objects", reading.Objects, reading.ObjectsReply, "both"),
    ("events", history.Events, history.EventsReply, "both"),
    ("usage", reading.Usage, reading.UsageReply, "both"),
    ("files", reading.Files, reading.FilesReply, "namespace"),
    ("runners", reading.Runners, reading.RunnersReply, "namespace"),
    ("explain", explanation.Explain, explanation.ExplainReply, "namespace"),
    ("fit", whatif.Fit, whatif.FitReply, "namespace"),
    ("pending", queues.PendingQuery, queues.PendingReply, "both"),
    ("queues", queues.Queues, queues.QueuesReply, "both"),
    ("simulate", whatif.Simulate, whatif.SimulateReply, "both"),
    ("logs", history.Logs, history.LogsReply, "namespace"),
    ("timers", services.Timers, services.TimersReply, "all"),
    ("machines", machines.Machines, machines.MachinesReply, "all"),
    ("budgets", budgets.Budgets, budgets.BudgetsReply, "both"),
    ("families", services.Families, services.FamiliesReply, "all"),
    ("arrays", services.Arrays, services.ArraysReply, "all"),
    ("providers", services.Providers, services.ProvidersReply, "all"),
    ("health", services.Health, services.HealthReply, "all"),
)
"""``admit.api.<what>``: over all namespaces, within one (``admit.api.<what>.<ns>``), or both."""


def channels() -> list[Channel]:
    """Every subject, in the order of the document."""
    tail = "{namespace}.{name}"
    sent = {*OUTPUTS, *FENCED, *ASKED, *(key for key in CHECK_FACTS if key != "reported")}
    described = [
        Channel(
            f"{family}.{key}",
            f"admit.{family}.{key}.{owner}{tail}",
            struct,
            "send" if key in sent else "receive",
        )
        for family, owner, structs in (
            ("workload", "", WORKLOAD_FACTS),
            ("check", "{controller}.", CHECK_FACTS),
            ("provisioning", "{class}.", PROVISIONING_FACTS),
        )
        for key, struct in structs.items()
    ]
    described += [
        Channel(f"user.{verb}", f"{USER_FACTS}{{user}}.{verb}.{tail}", struct, "receive")
        for verb, struct in PERSON_FACTS.items()
    ]
    described += [
        Channel(
            f"owner.{verb}", f"{OWNER_FACTS}{{user}}.{verb}.{tail}", PERSON_FACTS[verb], "receive"
        )
        for verb in USER_VERBS
    ]
    described += [
        Channel(f"user.{what}", f"{USER_FACTS}{{user}}.{what}", request, "receive", reply)
        for what, request, reply in (
            ("apply", manifests.Apply, manifests.ApplyReply),
            ("delete", manifests.Delete, manifests.DeleteReply),
        )
    ]
    described += [
        Channel("timer.due", f"{TIMER_DUE}{{kind}}.{tail}", facts.TimerDue, "send"),
        Channel("alive.check", f"{ALIVE_CHECK}{{controller}}", system.CheckAlive, "receive"),
        Channel(
            "alive.provisioning",
            f"{ALIVE_PROVISIONING}{{class}}",
            system.ProviderAlive,
            "receive",
        ),
        Channel(
            "alive.instance",
            f"{ALIVE_INSTANCE}{{service}}.{{instance}}",
            system.Alive,
            "send",
            system.Alive,
        ),
        Channel(
            "api.provider",
            "admit.api.provider.{class}",
            services.ProviderQuery,
            "send",
            services.ProviderReply,
        ),
        Channel("changed", f"{CHANGED}{{domain}}", system.Changed, "send"),
        Channel("lease.epoch", f"{EPOCH}{{domain}}", system.Epoch, "send"),
        Channel("lease.barrier", f"{BARRIER}{{domain}}", system.Barrier, "send"),
        Channel("checkpoint.commits", COMMITS, checkpoints.Commits, "send"),
        Channel("checkpoint.made", f"{CHECKPOINT_MADE}{{id}}", checkpoints.CheckpointMade, "send"),
        Channel("deadletter", f"{DEADLETTER}{{service}}", system.DeadLetter, "send"),
    ]
    described += [
        Channel(
            f"object.{what}", f"admit.object.{what}.{{kind}}.{tail}", system.ObjectApplied, "send"
        )
        for what in ("applied", "deleted")
    ]
    for what, request, reply, scope in _API:
        if scope != "namespace":
            described.append(Channel(f"api.{what}", f"admit.api.{what}", request, "receive", reply))
        if scope != "all":
            address = f"admit.api.{what}.{{namespace}}"
            described.append(Channel(f"api.{what}.namespace", address, request, "receive", reply))
    return described


def _message(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        "name": struct.__name__,
        "contentType": "application/json",
        "summary": (struct.__doc__ or "").strip().partition("\n")[0],
        "headers": {"$ref": _REF.format(name="Headers")},
        "payload": {
            "schemaFormat": "application/schema+json;version=draft-2020-12",
            "schema": {"$ref": _REF.format(name=struct.__name__)},
        },
    }


def _channel(channel: Channel) -> dict[str, Any]:
    structs = [channel.payload] if channel.reply is None else [channel.payload, channel.reply]
    entry: dict[str, Any] = {
        "address": channel.address,
        "messages": {
            struct.__name__: {"$ref": f"#/components/messages/{struct.__name__}"}
            for struct in structs
        },
    }
    names = re.findall(r"{(\w+)}", channel.address)
    if names:
        entry["parameters"] = {name: {"description": PARAMETERS[name]} for name in names}
    return entry


def _operation(channel: Channel) -> dict[str, Any]:
    here = f"#/channels/{channel.key}"
    entry: dict[str, Any] = {
        "action": channel.action,
        "channel": {"$ref": here},
        "messages": [{"$ref": f"{here}/messages/{channel.payload.__name__}"}],
    }
    if channel.reply is not None:
        entry["reply"] = {
            "channel": {"$ref": here},
            "messages": [{"$ref": f"{here}/messages/{channel.reply.__name__}"}],
        }
    return entry


def document() -> dict[str, Any]:
    """The whole document, as plain values."""
    every = channels()
    structs = {channel.payload.__name__: channel.payload for channel in every}
    structs |= {
        channel.reply.__name__: channel.reply for channel in every if channel.reply is not None
    }
    _, schemas = msgspec.json.schema_components(list(structs.values()), ref_template=_REF)
    headers = {
        "type": "object",
        "properties": {
            HEADER_MSG_ID: {"type": "string", "description": "Makes a publish idempotent."},
            HEADER_TRACE: {"type": "string", "description": "W3C trace context."},
            HEADER_SCHEMA: {"type": "string", "description": "Version of the payload's schema."},
        },
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Admittance",
            "version": SCHEMA_VERSION,
            "description": "Facts on the log and requests, over NATS. Fields may be added.",
        },
        "defaultContentType": "application/json",
        "channels": {channel.key: _channel(channel) for channel in every},
        "operations": {channel.key: _operation(channel) for channel in every},
        "components": {
            "messages": {name: _message(struct) for name, struct in sorted(structs.items())},
            "schemas": {"Headers": headers, **dict(sorted(schemas.items()))},
        },
    }


def text() -> str:
    """The document as its file has it."""
    return text_of(document())


if __name__ == "__main__":
    write(text(), FILE)
