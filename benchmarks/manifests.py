"""Generated manifests through `apply` on the real thing: each is refused, warned about, or stored.

    python -m benchmarks.manifests [--count 100000] [--seed 1] [--minutes 60]

starts `admit up` without a runner and sends it manifests of all kinds, in requests of fifty. For
each, what the endpoint answers must be what the table of effects says (`generated_manifests`): a
refusal that names a field, a warning for each field without effect, and otherwise the manifest in
the bucket as it was written. Workloads and Jobs are submitted. Objects are deleted after each
request, so that the deployment stays small.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from admittance.api.reading.manifest import Document
from admittance.api.reading.objects import decode_object
from admittance.api.workload import Job, Workload
from admittance.backoff import Backoff
from admittance.bench.connection import connected
from admittance.client.errors import TimedOut, Unavailable
from admittance.client.requests.link import Link
from admittance.client.requests.submissions.submitting import submitted, workload_of_manifest
from admittance.control.manifests.objects import key_of
from admittance.events import facts
from admittance.events.requests.manifests import Apply, ApplyReply, Delete, DeleteReply
from admittance.runtime import clock
from admittance.runtime.tasks import until_returned
from benchmarks.generated_manifests import expected, random_manifest, read_one
from benchmarks.harness.load import own_system
from benchmarks.harness.program import Option, run_program

T = TypeVar("T")

AT_ONCE: Final = 50
WORKERS: Final = 4
ANSWER_SECONDS: Final = 20.0
PAUSE_SECONDS_MAX: Final = 10.0
_OBJECT: Final = re.compile(r"object (\d+)")


class Trial:
    """Sends manifests to a deployment and counts what became of them. ``wrong``: answers that the
    table does not explain."""

    def __init__(self, link: Link, seed: int) -> None:
        self._link = link
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

    def _add_wrong(self, answer: str) -> None:
        """Records an answer that the table does not explain, and prints it at once: a run that is
        stopped early must not lose it."""
        self.wrong.append(answer)
        sys.stderr.write(f"not explained: {answer}\n")

    async def _batch(self, manifests: list[dict[str, Any]]) -> None:
        objects: list[Document] = []
        runs: list[Document] = []
        bad: list[dict[str, Any]] = []
        for manifest in manifests:
            want, (document, problems) = expected(manifest), read_one(manifest)
            if document is None:
                if not all(problem.message for problem in problems):
                    self._add_wrong(f"refused without a reason: {manifest}")
                bad.append(manifest)
                continue
            if want.refused:
                self._add_wrong(f"accepted with {want.refused}: {manifest}")
            told = " ".join(document.warnings)
            for path in want.warned:
                if _plain(path) not in _plain(told):
                    self._add_wrong(f"no warning about {path}: {manifest}")
            self.counts["warned" if want.warned else "without a warning"] += 1
            run = isinstance(document.manifest, Workload | Job)
            (runs if run else objects).append(document)
        await asyncio.gather(self._refused(bad), self._applied(objects), self._submitted(runs))

    async def _refused(self, bad: list[dict[str, Any]]) -> None:
        """The endpoint refuses what reading refuses, each manifest with its number."""
        self.counts["refused"] += len(bad)
        # A Job or Workload is submitted, and never reaches the endpoint.
        bad = [manifest for manifest in bad if manifest["kind"] not in ("Job", "Workload")]
        if not bad:
            return
        reply = await self._apply([msgspec.json.encode(manifest) for manifest in bad])
        named = {int(match[1]) for line in reply.problems if (match := _OBJECT.search(line))}
        for number, manifest in enumerate(bad, 1):
            if number not in named:
                self._add_wrong(f"not refused by the endpoint: {manifest}")

    async def _applied(self, documents: list[Document]) -> None:
        if not documents:
            return
        reply = await self._apply([document.raw for document in documents])
        if reply.error and len(documents) > 1:
            # One manifest is refused because of others, such as a second global default.
            for document in documents:
                await self._applied([document])
            return
        if reply.error:
            self.counts["refused because of other objects"] += 1
            if ":" not in reply.error:
                self._add_wrong(f"refused without a field: {reply.error}")
            return
        for document, result in zip(documents, reply.results, strict=True):
            missing = set(document.warnings) - set(result.warnings)
            if missing:
                self._add_wrong(f"the answer lacks {missing}: {document.raw!r}")
            self.counts["with more warnings"] += len(result.warnings) > len(document.warnings)
        await asyncio.gather(*map(self._is_stored, documents))
        await asyncio.gather(*map(self._delete, documents))

    async def _is_stored(self, document: Document) -> None:
        key = key_of(document.manifest)
        entry = await self._link.get(key)
        if entry is None or entry.value is None:
            self._add_wrong(f"not stored: {document.raw!r}")
            return
        stored: Any = decode_object(entry.value).manifest
        written: Any = document.manifest
        for field in ("spec", "value", "global_default", "description"):
            if getattr(stored, field, None) != getattr(written, field, None):
                self._add_wrong(f"stored with another {field}: {document.raw!r}")
        if stored.metadata.labels != written.metadata.labels:
            self._add_wrong(f"stored with other labels: {document.raw!r}")
        self.counts["stored as written"] += 1

    async def _delete(self, document: Document) -> None:
        meta = document.manifest.metadata
        request = Delete(kind=document.manifest.kind, namespace=meta.namespace, name=meta.name)
        again = self.counts["asked again"]
        reply = await self._answer(
            lambda: self._link.ask("delete", request, DeleteReply, timeout=ANSWER_SECONDS)
        )
        # A first request with a lost answer may have deleted the object.
        lost = ("absent",) if self.counts["asked again"] > again else ()
        if reply.outcome not in ("deleted", "deferred", *lost):
            self._add_wrong(f"not deleted: {reply.outcome} {reply.error}: {document.raw!r}")

    async def _submitted(self, documents: list[Document]) -> None:
        await asyncio.gather(*map(self._submit, documents))

    async def _submit(self, document: Document) -> None:
        manifest: Any = document.manifest
        workload = workload_of_manifest(manifest)
        meta = workload.metadata
        sequence = await self._link.publish(submitted(workload))
        reply = await self._answer(lambda: self._link.settle(sequence, meta.namespace))
        if reply.outcome == "applied":
            self.counts["submitted"] += 1
            deleted = facts.Deleted(namespace=meta.namespace, name=meta.name, time=clock.now())
            await self._link.publish(deleted)
        elif reply.message:
            self.counts["refused at the submission"] += 1
        else:
            self._add_wrong(f"{reply.outcome} {reply.error}: {document.raw!r}")

    async def _apply(self, raws: list[bytes]) -> ApplyReply:
        request = Apply(objects=tuple(map(msgspec.Raw, raws)))
        return await self._answer(
            lambda: self._link.ask("apply", request, ApplyReply, timeout=ANSWER_SECONDS)
        )

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer to a request, which is sent again if none comes."""

        def failed(error: Unavailable | TimedOut, pause: float) -> None:
            self.counts["asked again"] += 1
            if pause >= PAUSE_SECONDS_MAX:
                raise error

        backoff = Backoff(0.2, PAUSE_SECONDS_MAX)
        return await until_returned(ask, backoff, failed, on=(Unavailable, TimedOut))


def _plain(text: str) -> str:
    """The text without indexes: a warning names the first place of a field."""
    return re.sub(r"\[\d+\]", "", text)


async def measured(*, count: int, seed: int, minutes: float) -> list[str]:
    """Runs the trial; returns the lines to print."""
    async with own_system() as system:
        async with connected(await system.start()) as link:
            trial = Trial(link, seed)
            started = clock.monotonic()
            await trial.run(count, minutes)
            took = clock.monotonic() - started
        status = await system.stop()
        failures = [
            line for line in system.log_lines if '"level":"error"' in line or "Traceback" in line
        ]
    counts = ", ".join(f"{number} {what}" for what, number in trial.counts.most_common())
    return [
        f"{trial.done} manifests, seed {seed}, in {took:.0f} s: {counts}",
        f"{len(trial.wrong)} answers that the table does not explain",
        *trial.wrong[:20],
        f"{len(failures)} errors in the log; the deployment ended with {status}",
        *failures[:5],
    ]


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--count", 100_000, least=1),
        Option("--seed", 1, "which manifests"),
        Option("--minutes", 60.0, above=0),
    )
