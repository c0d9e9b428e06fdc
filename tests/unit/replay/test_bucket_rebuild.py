"""The bucket is rebuilt exactly, from the first fact or from a checkpoint, up to any revision."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from admittance.api.reading.manifest import decode_object, encode
from admittance.control.batch import fold
from admittance.control.checkpoint import Snapshot, rows, snapshot
from admittance.control.commit import LogMessage, Put
from admittance.control.controller import Controller
from admittance.control.workloads import with_own_revision
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.names import token
from admittance.events.reader import BucketEntry
from admittance.events.stored.checkpoints import Adopted, CheckpointRow, Commits, Committed, runs_of
from admittance.events.subjects import EPOCH, subject_of
from admittance.events.system import ObjectApplied
from admittance.replay.bucket_rebuild import BucketRebuild, CannotRebuild, RebuildStart, manifest_of
from admittance.replay.log_messages import log_message
from admittance.runtime.bus.bus import EXPECTED, FENCE
from admittance.workload import stored
from admittance.workload.conditions import Type, is_true
from admittance.workload.limits import Limits, PodsReadyLimits, changed_limits, limits_from
from support.builders import a_manifest, an_admission
from support.examples import examples

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
API = "kueue.x-k8s.io/v1beta2"
DOMAIN = "queue-cq"
PREFIX = len("workload.")


class House:
    """A running workload-controller: it folds facts in batches, writes commits and records them.

    ``history``: every write of a key, by revision. ``lost``: the leader ended before it recorded
    these commits, so the next leader finds them.
    """

    def __init__(self, seed: int, limits: Limits | None = None) -> None:
        self.chance = Random(seed)
        self.core = Controller(b"", limits)
        self.now = NOON
        self.revision = 0
        self.log: list[LogMessage] = []
        self.unread: list[LogMessage] = []
        self.words: list[Commits] = []
        self.history: list[BucketEntry] = []
        self.checkpoints: list[Snapshot] = []
        self.lost: dict[str, Adopted] = {}
        self.through = 0
        queue = {
            "apiVersion": API,
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {"namespaceSelector": {}},
        }
        local = {
            "apiVersion": API,
            "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": "ns"},
            "spec": {"clusterQueue": "cq"},
        }
        for manifest in (queue, local):
            self.write_object(manifest)

    # What is said. --------------------------------------------------------------------------

    def _add(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.now += timedelta(milliseconds=self.chance.randint(1, 900))
        logged = log_message(len(self.log) + 1, subject, data, headers or {}, self.now)
        self.log.append(logged)
        self.unread.append(logged)

    def say(self, fact: Fact) -> None:
        headers = {}
        if isinstance(fact, facts.Decision):
            headers = {EXPECTED: "1", FENCE: f"{EPOCH}{token(DOMAIN)}"}
        self._add(subject_of(fact), msgspec.json.encode(fact), headers)

    def write_object(self, value: dict[str, Any]) -> None:
        """Writes a manifest and publishes the message about it, which may be read much later."""
        manifest = decode_object(value).manifest
        self.revision += 1
        kind, meta = value["kind"], value["metadata"]
        namespace = meta.get("namespace", "")
        key = ".".join(filter(None, (kind.lower(), namespace, meta["name"])))
        data = encode(manifest)
        self.core.keep_object(key, manifest, data, self.revision)
        self.history.append(BucketEntry(key, data, self.revision))
        said = ObjectApplied(
            kind=kind,
            namespace=namespace,
            name=meta["name"],
            revision=self.revision,
            object=msgspec.Raw(data),
        )
        subject = f"admit.object.applied.{kind.lower()}.{namespace or '_'}.{meta['name']}"
        self._add(subject, msgspec.json.encode(said))

    def something(self) -> None:
        """One of the things that happen to workloads."""
        name = f"w{self.chance.randint(0, 7)}"
        known = self.core.workloads.get(f"workload.ns.{name}")
        common: dict[str, Any] = {"namespace": "ns", "name": name}
        match self.chance.randint(0, 9):
            case 0 | 1 | 2:
                manifest = a_manifest(name, priority=self.chance.randint(0, 1))
                raw = msgspec.Raw(json.dumps(manifest).encode())
                self.say(facts.Submitted(**common, workload=raw))
            case 3 | 4 | 5:
                self.say(
                    facts.Assigned(
                        **common,
                        revision=known.revision,
                        seen=self.revision,
                        domain=DOMAIN,
                        admission=an_admission(),
                    )
                )
            case 6 if known.workload is not None:
                revision = known.workload.status.admitted_revision
                self.say(facts.Finished(**common, revision=revision))
            case 7:
                self.say(
                    facts.Preempted(
                        **common,
                        revision=known.revision,
                        seen=self.revision,
                        domain=DOMAIN,
                        reason="InClusterQueue",
                    )
                )
            case 8 if known.workload is not None:
                self.say(facts.Stopped(**common, revision=known.workload.status.evicted_revision))
            case 9:
                self.say(self.chance.choice((facts.Deleted, facts.Held, facts.Released))(**common))

    # What is done. --------------------------------------------------------------------------

    def commit(self, *, fails: bool = False, falls: bool = False) -> None:
        """Everything unread. ``fails``: of the puts some are refused, found as they were, and
        decided again; ``falls``: no message reports it."""
        rest = self.unread[: self.chance.randint(1, 6)]
        while rest:
            self.now += timedelta(milliseconds=3)
            for key in self.core.missing(rest):
                entry = self.at(self.revision)[key]
                self.core.load(key, entry.value, entry.revision, {})
            made = fold(self.core, rest, self.now)
            written: list[tuple[str, int]] = []
            refused = self.refused(made.puts) if fails else set()
            unsure = bool(refused)
            for put in made.puts:
                if put.key in refused:
                    continue
                self.revision += 1
                self.core.committed(put, self.revision, self.now)
                self.core.outbox_published(put.key)
                self.wrote(put)
                written.append((put.key, self.revision))
                self.history.append(BucketEntry(put.key, put.value, self.revision))
                if falls:
                    self.lost[put.key] = Adopted(
                        key=put.key[PREFIX:], revision=self.revision, fact=put.fact
                    )
            fails = False
            if not falls:
                self._tell(made.through, written, unsure=unsure)
            if unsure:
                continue
            self.through = made.through
            rest = made.rest
        self.unread = [message for message in self.unread if message.sequence > self.through]
        if self.chance.random() < 0.1:
            self.checkpoints.append(snapshot(self.core, self.through, self.revision))

    def refused(self, puts: Sequence[Put]) -> set[str]:
        """Some of the puts; of each group all or none."""
        lots: dict[int, bool] = {}
        return {
            put.key
            for put in puts
            if lots.setdefault(put.group or -len(lots) - 1, self.chance.random() < 0.5)
        }

    def wrote(self, put: Put) -> None:
        """Records a put that was stored."""

    def _tell(self, through: int, written: Sequence[tuple[str, int]], *, unsure: bool) -> None:
        adopted, self.lost = tuple(self.lost.values()), {}
        if adopted:
            # By an heir, before anything else.
            self._word(Committed(through=through, now=self.now, adopted=adopted, unsure=True))
        keys = tuple(key[PREFIX:] for key, _ in written)
        runs = runs_of([revision for _, revision in written])
        self._word(Committed(through=through, now=self.now, keys=keys, runs=runs, unsure=unsure))

    def _word(self, commit: Committed) -> None:
        self.words.append(Commits(epoch=1, newest=self.revision, commits=(commit,)))

    def at(self, seen: int) -> dict[str, BucketEntry]:
        """The objects at that revision, without ended workloads."""
        return {entry.key: entry for entry in self.history if entry.revision <= seen}


def rebuilt(
    house: House, seen: int, taken: Snapshot | None = None, limits: Limits | None = None
) -> BucketRebuild:
    """The bucket of the house rebuilt from its first fact, or from a checkpoint."""
    through = taken.through if taken is not None else 0
    start = RebuildStart(taken.revision, taken.floor) if taken is not None else RebuildStart()
    kept: list[CheckpointRow] = list(rows(taken)) if taken is not None else []
    behind = [message for message in house.log if message.sequence > through]
    objects = [message for message in behind if message.subject.startswith("admit.object.")]
    past = BucketRebuild(start, kept, objects, seen=seen)
    past.add_facts(behind)
    for word in house.words:
        if not all(past.perform(commit, word.floor, limits) for commit in word.commits):
            break
    return past


def ended(entry: BucketEntry) -> bool:
    if entry.value is None or not entry.key.startswith("workload."):
        return entry.value is None
    return is_true(stored.decode(entry.value), Type.FINISHED)


def living(entries: Sequence[BucketEntry]) -> dict[str, BucketEntry]:
    return {entry.key: entry for entry in entries if not ended(entry)}


def known(entries: Sequence[BucketEntry]) -> dict[str, Any]:
    """The contents for their holder: a checkpoint has the numbers of revisions filled in."""
    values: dict[str, Any] = {}
    for entry in living(entries).values():
        value: Any = entry.value
        if entry.key.startswith("workload."):
            value = with_own_revision(stored.decode(entry.value or b""), entry.revision)
        values[entry.key] = (entry.revision, value)
    return values


def commit_the_rest(house: House) -> None:
    """Commits all facts, then one about a workload that does not exist."""
    house.say(facts.Held(namespace="ns", name="absent"))
    while house.unread:
        house.commit()


def assert_rebuilt_at_revisions(house: House, step: int) -> None:
    """From the first fact, the bucket is rebuilt as it was at every ``step``-th revision."""
    for seen in range(2, house.revision + 1, step):
        past = rebuilt(house, seen)
        assert living(past.entries()) == living(list(house.at(seen).values()))
        assert not past.unknown


def assert_rebuilt_from_checkpoints(house: House, step: int) -> None:
    """From each checkpoint, the bucket is rebuilt as it was at every ``step``-th later revision."""
    assert house.checkpoints
    for taken in house.checkpoints:
        for seen in range(taken.revision, house.revision + 1, step):
            past = rebuilt(house, seen, taken)
            assert known(past.entries()) == known(list(house.at(seen).values()))


def without_times(entries: Sequence[BucketEntry]) -> dict[str, tuple[int, Any]]:
    """The revision and content of each entry; the content of a workload is reduced to values
    without times."""
    values = {}
    for entry in living(entries).values():
        value = json.loads(entry.value or b"null")
        if entry.key.startswith("workload."):
            status = value["status"]
            kinds = {(c["type"], c["status"]) for c in status.get("conditions", ())}
            rest = [status.get(key) for key in ("admission", "admittedVariant", "stoppedBy")]
            value = (kinds, rest, status["log"]["fact"])
        values[entry.key] = (entry.revision, value)
    return values


def assert_rebuilt_without_times(house: House) -> None:
    """The bucket is rebuilt except for times: the time of a commit without a message is unknown,
    and so is at most one workload.
    """
    past = rebuilt(house, house.revision)
    want = without_times(list(house.at(house.revision).values()))
    got = without_times(past.entries())
    assert {k: v for k, v in got.items() if k not in past.unknown} == {
        k: v for k, v in want.items() if k not in past.unknown
    }
    assert len(past.unknown) <= 1


def a_life(seed: int, *, falls: float = 0.0) -> House:
    house = House(seed)
    for _ in range(150):
        house.something()
        if house.chance.random() < 0.05:
            queue = decode_object(house.history[0].value or b"").manifest
            spec = msgspec.structs.replace(
                queue.spec, stop_policy=house.chance.choice(("None", "Hold"))
            )
            house.write_object(msgspec.to_builtins(msgspec.structs.replace(queue, spec=spec)))
        if house.chance.random() < 0.5:
            house.commit(fails=house.chance.random() < 0.2, falls=house.chance.random() < falls)
    commit_the_rest(house)
    return house


@pytest.mark.parametrize("seed", range(examples(9)))
def test_the_bucket_is_rebuilt_at_any_revision(seed: int) -> None:
    assert_rebuilt_at_revisions(a_life(seed), step=23)


@pytest.mark.parametrize("seed", range(examples(9)))
def test_the_bucket_is_rebuilt_from_any_checkpoint(seed: int) -> None:
    assert_rebuilt_from_checkpoints(a_life(seed), step=37)


@pytest.mark.parametrize("seed", range(examples(9)))
def test_commits_that_a_leader_did_not_record_are_rebuilt(seed: int) -> None:
    assert_rebuilt_without_times(a_life(seed, falls=0.2))


def test_time_settings_of_the_leader_are_used_in_a_rebuild() -> None:
    limits = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=5)))
    house = House(0, limits)
    me: dict[str, Any] = {"namespace": "ns", "name": "w"}

    def happens(fact: Fact) -> None:
        house.say(fact)
        while house.unread:
            house.commit()

    happens(facts.Submitted(**me, workload=msgspec.Raw(json.dumps(a_manifest("w")).encode())))
    decided: dict[str, Any] = {"revision": house.revision, "seen": house.revision, "domain": DOMAIN}
    happens(facts.Assigned(**me, **decided, admission=an_admission()))
    house.now += timedelta(seconds=6)
    happens(facts.TimerDue(**me, kind="pods-ready"))

    limits_read = limits_from(msgspec.json.decode(msgspec.json.encode(changed_limits(limits))))
    past = rebuilt(house, house.revision, limits=limits_read)
    assert not past.unknown
    assert living(past.entries()) == living(list(house.at(house.revision).values()))
    assert rebuilt(house, house.revision).unknown == {"workload.ns.w"}


def test_the_error_names_a_message_without_a_readable_object() -> None:
    logged = log_message(7, "admit.object.applied.x._.y", b"{", {}, NOON)
    with pytest.raises(CannotRebuild, match="message 7"):
        manifest_of(logged)
