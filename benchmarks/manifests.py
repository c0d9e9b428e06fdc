"""Generated manifests through `apply` on the real thing: each is refused, warned about, or stored.

    python -m benchmarks.manifests [--count 100000] [--seed 1] [--minutes 60]

starts `admit up` without a runner and sends it manifests of all kinds, in requests of fifty. For
each, what the endpoint answers must be what the table of effects says (`generated_manifests`): a
refusal that names a field, a warning for each field without effect, and otherwise the manifest in
the bucket as it was written. Workloads and Jobs are submitted. Objects are deleted after each
request, so that the deployment stays small.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from admittance.api.reading.from_job import workload_of
from admittance.api.reading.manifest import Document, encode
from admittance.api.reading.objects import decode_object
from admittance.api.workload import Job, Workload
from admittance.bench import system
from admittance.control.objects import key_of
from admittance.events import facts
from admittance.events.codec import encode as encode_fact
from admittance.events.requests import (
    Apply,
    ApplyReply,
    Delete,
    DeleteReply,
    Settled,
    SettledReply,
)
from admittance.events.subjects import subject_of
from admittance.runtime import clock
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import SetupError, Unavailable
from benchmarks.generated_manifests import expected, random_manifest, read_one

AT_ONCE: Final = 50
WORKERS: Final = 4
_OBJECT: Final = re.compile(r"object (\d+)")


class Trial:
    """Sends manifests to a deployment and counts what became of them. ``wrong``: answers that the
    table does not explain."""

    def __init__(self, bus: Bus, seed: int) -> None:
        self._bus = bus
        self._seed = seed
        self.done = 0
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def run(self, count: int, minutes: float) -> None:
        """Tries ``count`` manifests, or as many as the time allows."""
        end = clock.monotonic() + 60 * minutes
        numbers = iter(range(0, count, AT_ONCE))

        async def worker() -> None:
            for first in numbers:
                if clock.monotonic() > end:
                    return
                rng = random.Random(f"{self._seed}/{first}")
                names = [f"g-{number}" for number in range(first, min(first + AT_ONCE, count))]
                await self._batch([random_manifest(rng, name) for name in names])
                self.done += len(names)
                if first % 5000 == 0:
                    sys.stderr.write(f"{first} {dict(self.counts)} wrong: {len(self.wrong)}\n")

        await asyncio.gather(*(worker() for _ in range(WORKERS)))

    def _found_wrong(self, answer: str) -> None:
        """Records an answer that the table does not explain, and prints it at once: a run that is
        stopped early must not lose it."""
        self.wrong.append(answer)
        sys.stderr.write(f"not explained: {answer}\n")

    async def _batch(self, manifests: list[dict[str, Any]]) -> None:
        objects: list[Document] = []
        runs: list[Document] = []
        bad: list[dict[str, Any]] = []
        for one in manifests:
            want, (document, problems) = expected(one), read_one(one)
            if document is None:
                if not all(problem.message for problem in problems):
                    self._found_wrong(f"refused without a reason: {one}")
                bad.append(one)
                continue
            if want.refused:
                self._found_wrong(f"accepted with {want.refused}: {one}")
            told = " ".join(document.warnings)
            for path in want.warned:
                if _plain(path) not in _plain(told):
                    self._found_wrong(f"no warning about {path}: {one}")
            self.counts["warned" if want.warned else "without a warning"] += 1
            run = isinstance(document.manifest, Workload | Job)
            (runs if run else objects).append(document)
        await asyncio.gather(self._refused(bad), self._applied(objects), self._submitted(runs))

    async def _refused(self, bad: list[dict[str, Any]]) -> None:
        """The endpoint refuses what reading refuses, each manifest with its number."""
        self.counts["refused"] += len(bad)
        # A Job or Workload is submitted, and never reaches the endpoint.
        bad = [one for one in bad if one["kind"] not in ("Job", "Workload")]
        if not bad:
            return
        reply = await self._apply([msgspec.json.encode(one) for one in bad])
        named = {int(found.group(1)) for line in reply.problems if (found := _OBJECT.search(line))}
        for number, one in enumerate(bad, 1):
            if number not in named:
                self._found_wrong(f"not refused by the endpoint: {one}")

    async def _applied(self, documents: list[Document]) -> None:
        if not documents:
            return
        reply = await self._apply([one.raw for one in documents])
        if reply.error and len(documents) > 1:
            # One manifest is refused because of others, such as a second global default.
            for one in documents:
                await self._applied([one])
            return
        if reply.error:
            self.counts["refused because of other objects"] += 1
            if ":" not in reply.error:
                self._found_wrong(f"refused without a field: {reply.error}")
            return
        for one, result in zip(documents, reply.results, strict=True):
            missing = set(one.warnings) - set(result.warnings)
            if missing:
                self._found_wrong(f"the answer lacks {missing}: {one.raw!r}")
            self.counts["with more warnings"] += len(result.warnings) > len(one.warnings)
        await asyncio.gather(*map(self._is_stored, documents))
        await asyncio.gather(*map(self._delete, documents))

    async def _is_stored(self, one: Document) -> None:
        key = key_of(one.manifest)
        entry = await get(self._bus, key)
        if entry is None or entry.value is None:
            self._found_wrong(f"not stored: {one.raw!r}")
            return
        stored: Any = decode_object(entry.value).manifest
        written: Any = one.manifest
        for field in ("spec", "value", "global_default", "description"):
            if getattr(stored, field, None) != getattr(written, field, None):
                self._found_wrong(f"stored with another {field}: {one.raw!r}")
        if stored.metadata.labels != written.metadata.labels:
            self._found_wrong(f"stored with other labels: {one.raw!r}")
        self.counts["stored as written"] += 1

    async def _delete(self, one: Document) -> None:
        meta = one.manifest.metadata
        request = Delete(kind=one.manifest.kind, namespace=meta.namespace, name=meta.name)
        data = msgspec.json.encode(request)
        answer, again = await self._ask("admit.api.delete", data)
        reply = msgspec.json.decode(answer, type=DeleteReply)
        # A first request whose answer was lost may have deleted the object.
        explained = ("deleted", "deferred", "absent") if again else ("deleted", "deferred")
        if reply.outcome not in explained:
            self._found_wrong(f"not deleted: {reply.outcome} {reply.error}: {one.raw!r}")

    async def _submitted(self, documents: list[Document]) -> None:
        await asyncio.gather(*map(self._submit, documents))

    async def _submit(self, one: Document) -> None:
        manifest: Any = one.manifest
        workload = workload_of(manifest) if isinstance(manifest, Job) else manifest
        meta = workload.metadata
        raw = msgspec.Raw(encode(workload))
        fact = facts.Submitted(
            namespace=meta.namespace, name=meta.name, time=clock.now(), workload=raw
        )
        sequence = await self._bus.publish(Outgoing(subject_of(fact), encode_fact(fact)))
        data = msgspec.json.encode(Settled(sequence=sequence))
        answer, _ = await self._ask("admit.api.settled", data)
        reply = msgspec.json.decode(answer, type=SettledReply)
        if reply.outcome == "applied":
            self.counts["submitted"] += 1
            deleted = facts.Deleted(namespace=meta.namespace, name=meta.name, time=clock.now())
            await self._bus.publish(Outgoing(subject_of(deleted), encode_fact(deleted)))
        elif reply.message:
            self.counts["refused at the submission"] += 1
        else:
            self._found_wrong(f"{reply.outcome} {reply.error}: {one.raw!r}")

    async def _apply(self, raws: list[bytes]) -> ApplyReply:
        data = msgspec.json.encode(Apply(objects=tuple(map(msgspec.Raw, raws))))
        answer, _ = await self._ask("admit.api.apply", data)
        return msgspec.json.decode(answer, type=ApplyReply)

    async def _ask(self, subject: str, data: bytes) -> tuple[bytes, bool]:
        """The answer, and whether the request was sent again because no answer came."""
        for attempt in range(50):
            try:
                return await self._bus.request(subject, data, 20), attempt > 0
            except Unavailable:
                self.counts["asked again"] += 1
                await asyncio.sleep(0.2)
        raise SetupError(f"no answer to {subject}")


def _plain(text: str) -> str:
    """The text without indexes: a warning names the first place of a field."""
    return re.sub(r"\[\d+\]", "", text)


async def tried(count: int, seed: int, minutes: float) -> list[str]:
    """Runs the trial; returns the lines to print."""
    with tempfile.TemporaryDirectory(prefix="admit-manifests-") as name:
        folder = Path(name)
        words = ["up", "--no-runner", "--insecure", "--port", "0", "--data-dir", str(folder / "d")]
        child = await system.start(words, folder / "log")
        try:
            bus = await Bus.connect(await child.ready(), name="manifests")
            trial = Trial(bus, seed)
            started = clock.monotonic()
            await trial.run(count, minutes)
            took = clock.monotonic() - started
            await bus.close()
        finally:
            status = await child.stop()
        failures = _failures(child.log)
    counts = ", ".join(f"{number} {what}" for what, number in trial.counts.most_common())
    return [
        f"{trial.done} manifests, seed {seed}, in {took:.0f} s: {counts}",
        f"{len(trial.wrong)} answers that the table does not explain",
        *trial.wrong[:20],
        f"{len(failures)} errors in the log; the deployment ended with {status}",
        *failures[:5],
    ]


def _failures(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    return [one for one in lines if '"level":"error"' in one or "Traceback" in one]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    found = parser.parse_args()
    print("\n".join(asyncio.run(tried(found.count, found.seed, found.minutes))))  # noqa: T201


if __name__ == "__main__":
    main()
