"""Counts the bytecodes of Python that a workload takes, from its submission until it has finished.

    .venv/bin/python -m benchmarks.bytecodes [--write]

The facts of 100 workloads of the large-scale generator file, with specs that differ, go through the
cores of the services that have a part in each workload, through what encodes and decodes messages,
and through what reads the bucket back: one process, without a bus, at one time. So the count is the
same on every machine; it depends on the version of Python. ``--write`` records it for the running
version in `FIGURES`, with which a test compares it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from admittance.api.kinds import OBJECT_KINDS
from admittance.api.reading.manifest import decode_object
from admittance.arrays.controller_core import ArrayControllerCore
from admittance.bench.generator import BenchPlan, bench_plan, manifests_of, read
from admittance.bench.load import submission
from admittance.control.batch import fold
from admittance.control.commit import LogMessage, Put
from admittance.control.controller import Controller
from admittance.control.manifests.objects import key_of
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE, SCHEMA_VERSION
from admittance.events.codec import encode
from admittance.events.facts import Decision
from admittance.events.subjects import subject_of
from admittance.replay.log_messages import log_message
from admittance.runtime.bus.bucket import Entry, put_message
from admittance.runtime.bus.bus import Outgoing
from admittance.runtime.leader.lease_store import fence
from admittance.runtime.nats.protocol import Headers, frame
from admittance.runtime.telemetry.tracing import extract, follow
from admittance.scheduling.scheduler import Scheduler
from admittance.timers.core import Schedules
from admittance.variants.core import FamilyActs
from admittance.workload import bucket_reader
from admittance.workload.limits import Limits
from admittance.workload_controller.commit_writer import outgoing_of

FIGURES: Final = Path(__file__).with_suffix(".json")
"""The recorded counts of one workload, in all and in each part, by version of Python."""
GENERATOR: Final = Path(__file__).with_name("large-scale.yaml")
NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
QUEUES: Final = 30
WARM: Final = 50
"""Workloads that pass before the count, so that caches have what is alike."""
COUNTED: Final = 100
BATCH: Final = 25
INBOX: Final = "_INBOX.0123456789abcdef.1"


class BytecodeCounter:
    """Counts the bytecodes that run in `part`, by the part, except those of this module."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._part = ""

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Counts what runs in this block for the part."""
        self._part = name
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(None)

    def _on_call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._on_event

    def _on_event(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "opcode":
            self.counts[self._part] += 1
        return self._on_event


class Pipe:
    """The cores of one deployment, with the log and the bucket in between. Each batch of workloads
    has room, and has finished before the next one is submitted."""

    def __init__(self, plan: BenchPlan, counter: BytecodeCounter) -> None:
        self._plan = plan
        self._counter = counter
        self._sequence = 0
        self._revision = 0
        limits = Limits()
        self._controller = Controller(b"secret", limits)
        self._scheduler = Scheduler()
        self._timers = Schedules(limits)
        self._families = FamilyActs()
        self._arrays = ArrayControllerCore()
        for manifest in manifests_of(plan):
            self._apply(manifest)
        for domain in self._scheduler.domains():
            self._scheduler.own(domain)

    def _apply(self, written: Mapping[str, Any]) -> None:
        manifest = decode_object(written).manifest
        key = key_of(manifest)
        self._revision += 1
        self._controller.keep_object(key, manifest, msgspec.json.encode(written), self._revision)
        names = bucket_reader.names_of(key)
        kind = OBJECT_KINDS[key.partition(".")[0]]
        self._scheduler.apply_object(kind, *names, manifest, self._revision)

    def run(self, first: int, count: int) -> None:
        """Lets so many workloads of the plan pass, in batches, from the ``first`` on."""
        for start in range(first, first + count, BATCH):
            submitted = []
            for workload in self._plan.workloads[start : start + BATCH]:
                queue = self._plan.queues[workload.queue]
                data = submission(workload, queue.namespace, queue.name, distinct=True)
                subject = f"admit.workload.submitted.{queue.namespace}.{workload.name}"
                submitted.append(Outgoing(subject, data, {HEADER_MSG_ID: workload.name}))
            self._settle(submitted)
            admitted = []
            while decisions := self._decide():
                admitted += self._settle(decisions)
            assert len(admitted) == len(submitted), "a batch has room"
            self._settle([_finished(fact) for fact in admitted])

    def _settle(self, facts: list[Outgoing]) -> list[Outgoing]:
        """Applies facts; returns the published facts `Admitted`."""
        with self._counter.part("read the log"):
            rest = [self._logged(fact) for fact in facts]
        admitted: list[Outgoing] = []
        while rest:
            with self._counter.part("fold"):
                commit = fold(self._controller, rest, NOW)
            assert not commit.dead, commit.dead
            with self._counter.part("write the bucket"):
                entries = [self._stored(put) for put in commit.puts]
            with self._counter.part("publish"):
                for put, entry in zip(commit.puts, entries, strict=True):
                    for message in self._controller.committed(put, entry.revision, NOW):
                        outgoing = outgoing_of(message)
                        _frame(outgoing)
                        if message.subject.startswith("admit.workload.admitted."):
                            admitted.append(outgoing)
                    self._controller.outbox_published(put.key)
            with self._counter.part("read the bucket: scheduler"):
                for entry in entries:
                    self._scheduler_reads(entry)
            with self._counter.part("read the bucket: other services"):
                for entry in entries:
                    self._others_read(entry)
            rest = commit.rest
        return admitted

    def _logged(self, fact: Outgoing) -> LogMessage:
        self._sequence += 1
        headers = Headers(_raw(fact.headers))
        return log_message(self._sequence, fact.subject, fact.data, headers, NOW)

    def _stored(self, put: Put) -> Entry:
        assert put.value is not None
        assert put.workload is not None
        headers = {HEADER_TRACE: put.trace}
        _frame(put_message(put.key, put.value, expected=put.expected, headers=headers))
        self._revision += 1
        return Entry(put.key, put.value, self._revision, Headers(_raw(headers)))

    def _scheduler_reads(self, entry: Entry) -> None:
        assert entry.value is not None
        workload = bucket_reader.read(entry.key, entry.value)
        extract(entry.headers)
        names = bucket_reader.names_of(entry.key)
        self._scheduler.apply_workload(*names, workload, entry.revision, now=NOW)

    def _others_read(self, entry: Entry) -> None:
        assert entry.value is not None
        workload = None
        if self._timers.may_wait(entry.value):
            workload = bucket_reader.read(entry.key, entry.value)
        self._timers.apply(entry.key, workload, entry.revision, NOW)
        self._families.regular(entry.key)
        self._arrays.ordinary(entry.key)

    def _decide(self) -> list[Outgoing]:
        """Runs the cycles that can decide; returns the decisions as messages."""
        with self._counter.part("decide"):
            decisions: list[Decision] = []
            for decided in self._scheduler.by_domain(now=NOW):
                decisions += decided
            decisions += self._scheduler.refusals(now=NOW)
            messages = [_decision(decision) for decision in decisions]
            for message in messages:
                _frame(message)
        return messages


def _decision(decision: Decision) -> Outgoing:
    headers = {
        **fence(decision.domain, 1),
        HEADER_SCHEMA: SCHEMA_VERSION,
        HEADER_MSG_ID: f"{decision.name}/{decision.revision}",
        HEADER_TRACE: follow("00-0123456789abcdef0123456789abcdef-0123456789abcdef-00"),
    }
    return Outgoing(subject_of(decision), encode(decision), headers)


def _finished(admitted: Outgoing) -> Outgoing:
    about = msgspec.json.decode(admitted.data)
    fact = {name: about[name] for name in ("namespace", "name", "revision")}
    subject = admitted.subject.replace(".admitted.", ".finished.")
    return Outgoing(subject, msgspec.json.encode(fact), {})


def _frame(message: Outgoing) -> None:
    frame(message.subject, INBOX, message.data, message.headers)


def _raw(headers: Mapping[str, str] | None) -> bytes:
    """Headers as the server delivers them."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in (headers or {}).items()])
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def counted() -> dict[str, int]:
    """The bytecodes of one workload, in each part. Other processes can get other counts unless
    their ``PYTHONHASHSEED`` is the same."""
    generator = read(GENERATOR)
    cohorts = generator.cohorts[0]
    queues = replace(cohorts.queues_sets[0], count=QUEUES)
    small = replace(generator, cohorts=(replace(cohorts, count=1, queues_sets=(queues,)),))
    counter = BytecodeCounter()
    pipe = Pipe(bench_plan(small, distinct=True), counter)
    pipe.run(0, WARM)
    counter.counts.clear()
    pipe.run(WARM, COUNTED)
    return {name: count // COUNTED for name, count in sorted(counter.counts.items())}


def measured() -> dict[str, int]:
    """What `counted` returns in a new process, and the sum of all parts as ``all``."""
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "benchmarks.bytecodes", "--parts"]
    done = subprocess.run(
        command, cwd=FIGURES.parent.parent, env=environment, check=True, capture_output=True
    )
    parts: dict[str, int] = json.loads(done.stdout)
    return {"all": sum(parts.values()), **parts}


def version() -> str:
    """The version of Python that runs, such as ``3.11``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def recorded() -> dict[str, dict[str, int]]:
    """The recorded counts by version of Python."""
    counts: dict[str, dict[str, int]] = json.loads(FIGURES.read_bytes())
    return counts


def main() -> None:
    """Prints the counts beside the recorded ones, or records them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help=f"record the counts in {FIGURES.name}")
    parser.add_argument("--parts", action="store_true", help="count in this process, print JSON")
    options = parser.parse_args()
    if options.parts:
        sys.stdout.write(json.dumps(counted()))
        return
    now, before = measured(), recorded().get(version(), {})
    for name, count in now.items():
        known = before.get(name)
        beside = f"   {known:>7} recorded, {count / known - 1:+.1%}" if known else ""
        sys.stdout.write(f"{name:<34}{count:>7}{beside}\n")
    if options.write:
        counts = {**recorded(), version(): now}
        FIGURES.write_text(json.dumps(dict(sorted(counts.items())), indent=2) + "\n")


if __name__ == "__main__":
    main()
