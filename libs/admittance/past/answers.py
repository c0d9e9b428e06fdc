"""Answers questions about the past from the index and the history."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from admittance.events.names import plain, token
from admittance.events.reader import BROKEN, BucketEntry
from admittance.events.requests.explanation import Explain, ExplainReply
from admittance.events.requests.past import THEN, Moment, Then, ThenReply
from admittance.events.requests.queues import PendingQuery, Queues
from admittance.events.requests.reading import ObjectEntry, Objects, ObjectsReply
from admittance.events.subjects import ALL_NAMESPACES, namespace_of_request
from admittance.past.from_log import messages_of, state_from_log
from admittance.past.moments import NoMoment, moment_of
from admittance.past.picture import Picture
from admittance.past.revisions import NoHistory, PastState, Revisions
from admittance.past.rows import Row
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.scheduling.explain.pending import fitting
from admittance.scheduling.state.config import Config
from admittance.whatif.bucket_copy import BucketCopy

PICTURES: Final = 4
"""How many pictures are kept: the slider of a page goes back and forth."""
ANSWER_MAX: Final = 800_000
"""The most bytes of the objects of one reply."""
_encode = msgspec.json.Encoder().encode


class PastAnswers:
    """Answers questions, one at a time."""

    def __init__(self, bus: Bus, folder: Path, config: Config) -> None:
        self._bus = bus
        self._config = config
        self._revisions = Revisions(bus, folder, config)
        self._pictures: OrderedDict[tuple[int, int], tuple[PastState, Picture]] = OrderedDict()

    async def answer(self, subject: str, then: Then, *, from_log: bool = False) -> ThenReply:
        """The reply to a question on ``admit.api.then_<what>[.<ns>]``. ``from_log``: a state before
        the history is made from the log; else the reply has only the moment."""
        what = subject.split(".")[2].removeprefix(THEN)
        namespace = namespace_of_request(subject)
        try:
            if what == "moment":
                return ThenReply(moment=await self._moment(then.at))
            moment = await self._located(then.at)
            if moment.facts and not from_log:
                return ThenReply(moment=moment)
            moment, state, picture = await self._picture(moment)
            match what:
                case "pending":
                    query = msgspec.json.decode(then.query, type=PendingQuery)
                    pending = picture.pending(query, namespace)
                    rows = tuple(fitting(list(pending.rows)))
                    reply: msgspec.Struct = msgspec.structs.replace(pending, rows=rows)
                case "queues":
                    asked = msgspec.json.decode(then.query, type=Queues)
                    reply = picture.queues(asked, namespace)
                case "objects":
                    wanted = msgspec.json.decode(then.query, type=Objects)
                    reply = await self._objects(state, wanted, subject, then.name)
                case "explain":
                    name = msgspec.json.decode(then.query, type=Explain).name
                    if then.whole:
                        reply = await self._explained(moment, state, namespace, name)
                    else:
                        reply = picture.explain(namespace, name)
                case _:
                    return ThenReply(error=f"nothing of the past is called {what}")
        except (NoMoment, NoHistory) as error:
            return ThenReply(error=str(error))
        except (BusRefused, BusUnavailable) as error:
            return ThenReply(error=f"cannot read the history: {error}")
        except BROKEN as error:
            return ThenReply(error=f"the question cannot be read: {error}")
        return ThenReply(moment=moment, reply=msgspec.Raw(_encode(reply)))

    async def _moment(self, at: int | datetime) -> Moment:
        """The moment, with what the history lacks before it, as far as it has the moment."""
        moment = await self._located(at)
        return moment if moment.facts else (await self._picture(moment))[0]

    async def _located(self, at: int | datetime) -> Moment:
        """The moment with its revision, and with ``facts`` if the history begins later. Raises
        NoMoment and NoHistory."""
        moment = await moment_of(self._bus, at)
        try:
            newest = await self._revisions.newest()
        except NoHistory:
            if moment.revision is None:
                raise
            return msgspec.structs.replace(moment, facts=await messages_of(self._bus, moment))
        revision = newest if moment.revision is None else moment.revision
        if revision > newest:
            raise NoHistory("the history of the bucket is behind: ask again soon")
        moment = msgspec.structs.replace(moment, revision=revision)
        if self._revisions.has(revision):
            return moment
        return msgspec.structs.replace(moment, facts=await messages_of(self._bus, moment))

    async def _picture(self, moment: Moment) -> tuple[Moment, PastState, Picture]:
        """The picture of a moment of `_located`."""
        revision = moment.revision
        assert revision is not None
        # Before the history, manifests up to the fact count, too.
        wanted = revision, moment.sequence if moment.facts else 0
        kept = self._pictures.get(wanted)
        if kept is None:
            if moment.facts:
                state = await state_from_log(self._bus, self._config, moment)
            else:
                state = await self._revisions.at(revision)
            kept = state, Picture(state.rows.values(), self._config, moment.time)
            self._pictures[wanted] = kept
            if len(self._pictures) > PICTURES:
                self._pictures.popitem(last=False)
        self._pictures.move_to_end(wanted)
        return msgspec.structs.replace(moment, lacks=kept[0].lacks), *kept

    async def _objects(
        self, state: PastState, wanted: Objects, subject: str, name: str
    ) -> ObjectsReply:
        kind = token(plain(wanted.kind))
        if kind.startswith("_"):
            raise NoMoment(f"{wanted.kind} is not a kind of object")
        _, _, _, *within = subject.split(".")
        finished = [key for key in state.finished if name and _is_of(key, kind, within, name)]
        if finished:
            raise NoMoment(
                f"{wanted.kind} {name} had finished, and the history of the bucket begins later"
            )
        rows = [
            row
            for row in state.rows.values()
            if row.revision > wanted.after and _is_of(row.key, kind, within, name)
        ]
        rows.sort(key=lambda row: row.revision)
        page = rows[: max(1, min(wanted.limit, 500))]
        values = await self._revisions.values(state, page)
        entries: list[ObjectEntry] = []
        size = 0
        last = 0
        for row in page:
            value = values.get(row.key)
            size += len(value or b"") + len(row.key) + 100
            if size > ANSWER_MAX and entries:
                break
            last = row.revision
            raw = msgspec.Raw(value) if value is not None else msgspec.UNSET
            entries.append(ObjectEntry(key=row.key, revision=row.revision, value=raw))
        return ObjectsReply(objects=tuple(entries), last=last if len(entries) < len(rows) else 0)

    async def _explained(
        self, moment: Moment, state: PastState, namespace: str, name: str
    ) -> ExplainReply:
        """What the scheduler's code says of the workload on a copy of the bucket as it was."""
        looked: list[Row] = [
            row for row in state.rows.values() if row.facts is not None or row.value is not None
        ]
        values = await self._revisions.values(state, looked)
        entries = [
            BucketEntry(row.key, values[row.key], row.revision)
            for row in sorted(looked, key=lambda row: row.revision)
            if row.key in values
        ]
        copy = BucketCopy(entries, self._config, moment.time)
        return copy.scheduler.explain(namespace, name, now=moment.time)


def _is_of(key: str, kind: str, spaces: list[str], name: str) -> bool:
    parts = key.split(".")
    if parts[0] != kind or len(parts) != 2 + len(spaces):
        return False
    if spaces and spaces[0] not in (ALL_NAMESPACES, parts[1]):
        return False
    return not name or parts[-1] == token(name)
