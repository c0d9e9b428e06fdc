"""The JetStream API of the server: ``$JS.API.…``."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

import msgspec

from simulation.nats.consumer import Consumer
from simulation.nats.core import Server
from simulation.nats.messages import Message
from simulation.nats.stream import Answer, Refusal, Stream
from simulation.nats.subjects import header_block, is_literal, matching
from simulation.virtual_time.loop import START

PAGE: Final = 256
"""Consumers in one answer."""

_read = msgspec.json.Decoder().decode


class Api:
    """Answers the requests of a server's clients."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._named = 0
        server.api = self.request

    def request(self, what: str, reply: str, data: bytes) -> None:
        """Carries out ``$JS.API.<what>``."""
        parts = what.split(".")
        asked = _read(data) if data else {}
        if parts[:3] == ["CONSUMER", "MSG", "NEXT"]:
            stream = self._server.streams.get(parts[3])
            consumer = stream.consumers.get(parts[4]) if stream is not None else None
            if consumer is None:
                self._server.status(reply, "503")
            else:
                consumer.ask(reply, asked)
        elif parts[:2] == ["DIRECT", "GET"]:
            if len(parts) > 3:
                asked = {"last_by_subj": ".".join(parts[3:])}
            self._get_directly(parts[2], reply, asked)
        elif reply:
            self._server.answer(reply, self._answer(parts, asked))

    def _answer(self, parts: list[str], asked: dict[str, Any]) -> Answer:
        try:
            return Answer(**self._carry_out(parts, asked))
        except Refusal as refusal:
            return Answer(error=refusal.error)

    def _carry_out(self, parts: list[str], asked: dict[str, Any]) -> dict[str, Any]:
        match parts:
            case ["INFO"]:
                return {"streams": len(self._server.streams)}
            case ["STREAM", "CREATE", name]:
                return self.create_stream(name, asked).info()
            case ["STREAM", "NAMES"]:
                return _page(list(self._server.streams), "streams", asked)
            case ["STREAM", "LIST"]:
                return _page([s.info() for s in self._server.streams.values()], "streams", asked)
            case ["STREAM", what, name]:
                return self._on_stream(what, self._stream(name), asked)
            case ["STREAM", "MSG", "GET", name]:
                return {"message": _stored(_found(self._stream(name), asked))}
            case ["CONSUMER", "CREATE", name, *rest]:
                return self._create_consumer(self._stream(name), rest, asked["config"])
            case ["CONSUMER", "NAMES", name]:
                return _page(sorted(self._stream(name).consumers), "consumers", asked)
            case ["CONSUMER", "LIST", name]:
                consumers = sorted(self._stream(name).consumers.items())
                return _page([consumer.info() for _, consumer in consumers], "consumers", asked)
            case ["CONSUMER", "INFO", name, consumer]:
                return _consumer(self._stream(name), consumer).info()
            case ["CONSUMER", "DELETE", name, consumer]:
                stream = self._stream(name)
                stream.drop(_consumer(stream, consumer))
                return {"success": True}
        raise ValueError(f"the simulated server has no $JS.API.{'.'.join(parts)}")

    def _on_stream(self, what: str, stream: Stream, asked: dict[str, Any]) -> dict[str, Any]:
        match what:
            case "INFO":
                return stream.info(asked.get("subjects_filter", ""))
            case "UPDATE":
                stream.configure(asked)
                return stream.info()
            case "DELETE":
                self._server.remove_stream(stream.name)
                return {"success": True}
            case "PURGE":
                gone = stream.purge(
                    subject=asked.get("filter", ""),
                    below=asked.get("seq", 0),
                    keep=asked.get("keep", 0),
                )
                return {"success": True, "purged": gone}
        raise ValueError(f"the simulated server has no $JS.API.STREAM.{what}")

    def _stream(self, name: str) -> Stream:
        stream = self._server.streams.get(name)
        if stream is None:
            raise Refusal(404, 10059, "stream not found")
        return stream

    def create_stream(self, name: str, config: dict[str, Any]) -> Stream:
        """Makes a stream, or finds the same one. Raises Refusal."""
        stream = self._server.streams.get(name)
        if stream is not None:
            if all(stream.config.get(key) == value for key, value in config.items()):
                return stream
            raise Refusal(400, 10058, "stream name already in use with a different configuration")
        made = Stream(self._server.loop, self._server.rng.random, config)
        for source in config.get("sources", ()):
            matches = matching([source.get("filter_subject") or ">"])
            self._stream(source["name"]).copies.append((matches, made))
        self._server.add_stream(made)
        return made

    def _create_consumer(
        self, stream: Stream, named: list[str], config: dict[str, Any]
    ) -> dict[str, Any]:
        name = named[0] if named else config.get("name", "")
        consumer = stream.consumers.get(name)
        if consumer is not None:
            kept = ("ack_policy", "deliver_policy", "opt_start_seq")
            if any(
                consumer.config.get(key) != config.get(key, consumer.config.get(key))
                for key in kept
            ):
                raise Refusal(400, 10012, "consumer settings can not be updated")
            consumer.configure({**consumer.config, **config})
            return consumer.info()
        if not name:
            self._named += 1
            name = f"ephemeral{self._named}"
        if config.get("ack_policy") == "all" and stream.config["retention"] == "workqueue":
            raise Refusal(400, 10012, "workqueue stream requires explicit ack")
        if config.get("deliver_policy") == "last_per_subject" and not (
            config.get("filter_subject") or config.get("filter_subjects")
        ):
            raise Refusal(400, 10094, "last per subject needs a filter subject")
        made = Consumer(self._server, stream, name, config)
        stream.add(made)
        return made.info()

    def _get_directly(self, name: str, reply: str, asked: dict[str, Any]) -> None:
        """A batch of messages, each with its place in headers, and a status behind them."""
        server, stream = self._server, self._server.streams.get(name)
        if stream is None or not stream.config["allow_direct"]:
            server.status(reply, "503")
            return
        if last := asked.get("last_by_subj", ""):
            newest = stream.last.get(last)
            if newest is None:
                server.status(reply, "404 Message Not Found")
            else:
                server.deliver(reply, reply, "", newest.data, header_block(_placed(name, newest)))
            return
        if names := asked.get("multi_last"):
            lasts = [message for name in names if (message := stream.last.get(name)) is not None]
            room = asked.get("max_bytes", 64 << 20)
            for message in sorted(lasts, key=lambda last_message: last_message.sequence):
                if room <= 0:
                    break
                placed = header_block(_placed(stream.name, message))
                room -= len(placed) + len(message.data)
                server.deliver(reply, reply, "", message.data, placed)
            server.status(reply, "204 EOB" if lasts else "404 Message Not Found")
            return
        since = asked.get("start_time")
        after = _virtual(since) if since else 0.0
        left, sent = asked.get("batch", 1), 0
        pattern = asked.get("next_by_subj") or ">"
        for message in islice(stream.under(pattern, asked.get("seq", 1), time=after), left):
            sent += 1
            headers = header_block(_placed(name, message))
            server.deliver(reply, reply, "", message.data, headers)
        server.status(reply, "204 EOB" if sent else "404 Message Not Found")


def _consumer(stream: Stream, name: str) -> Consumer:
    consumer = stream.consumers.get(name)
    if consumer is None:
        raise Refusal(404, 10014, "consumer not found")
    return consumer


def _found(stream: Stream, asked: Mapping[str, Any]) -> Message:
    """The message that STREAM.MSG.GET asks for."""
    last, following = asked.get("last_by_subj", ""), asked.get("next_by_subj", "")
    message: Message | None
    if last and is_literal(last):
        message = stream.last.get(last)
    elif last:
        matches = matching([last])
        ends = (m for subject, m in stream.last.items() if matches(subject))
        message = max(ends, key=lambda m: m.sequence, default=None)
    elif following:
        matches = matching([following])
        message = next((m for m in stream.since(asked.get("seq", 1)) if matches(m.subject)), None)
    elif "seq" in asked:
        message = stream.at(asked["seq"])
    else:
        raise Refusal(400, 10003, "bad request")
    if message is None:
        raise Refusal(404, 10037, "no message found")
    return message


def _stored(message: Message) -> dict[str, Any]:
    made = {"subject": message.subject, "seq": message.sequence, "time": message.stamp}
    if message.data:
        made["data"] = base64.b64encode(message.data).decode()
    if message.raw:
        made["hdrs"] = base64.b64encode(message.raw).decode()
    return made


def _placed(stream: str, message: Message) -> dict[str, str]:
    return {
        **message.headers,
        "Nats-Stream": stream,
        "Nats-Subject": message.subject,
        "Nats-Sequence": str(message.sequence),
        "Nats-Time-Stamp": message.stamp,
    }


def _page(items: list[Any], name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    offset = asked.get("offset", 0)
    part = items[offset : offset + PAGE]
    return {"total": len(items), "offset": offset, "limit": PAGE, name: part}


def _virtual(stamp: str) -> float:
    return (datetime.fromisoformat(stamp.replace("Z", "+00:00")) - START).total_seconds()
