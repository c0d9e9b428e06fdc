"""The provisioning check under random orders: events arrive late, steps fail before and after they
took effect, providers answer in any order and repeatedly, the configuration changes, records are
edited by users, and the check restarts between any two steps.

When no event is left, each reservation that needs capacity has one booking, and no other booking
exists; the published verdicts are those of docs/spec/lifecycle.md#5.2.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from admittance.api.checks import (
    AdmissionCheck,
    AdmissionCheckSpec,
    ParametersReference,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
    ProvisioningRetryStrategy,
)
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import CheckState
from admittance.events import provisioning as facts
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.new_request import DeletedRequestRecovery
from admittance.provisioning.observed_state import CONTROLLER
from admittance.provisioning.records import Record
from admittance.provisioning.steps import NOT_ACTIVE, RequestSlot, Step, VerdictReport
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON
from support.examples import examples

CHECKS = ("a", "b")
NAMES = ("w", "w-a")
"""With the checks' names they make the same name of a request now and then."""
LIMIT = 1
STATUSES = (
    facts.Accepted,
    facts.Provisioned,
    facts.ProvisioningFailed,
    facts.BookingExpired,
    facts.CapacityRevoked,
)
SPEC = msgspec.Raw(
    msgspec.json.encode(
        {
            "podSets": [
                {
                    "count": 1,
                    "template": {
                        "spec": {
                            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
                        }
                    },
                }
            ]
        }
    )
)


class Booth:
    """A provider that books once for each requested id, and frees the capacity of a cancelled
    request."""

    def __init__(self) -> None:
        self.booked: set[str] = set()
        self.freed: set[str] = set()
        self.asked: dict[str, facts.ProvisioningRequested] = {}

    def receive(self, fact: facts.ProvisioningFact) -> None:
        if isinstance(fact, facts.ProvisioningRequested):
            self.asked[fact.id] = fact
            if fact.id not in self.freed:
                self.booked.add(fact.id)
        else:
            self.freed.add(fact.id)
            self.booked.discard(fact.id)


class ProvisioningModel:
    """The bucket, the log, workloads that obey verdicts, and the check beside them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = NOON
        self.revision = 0
        self.bucket: dict[str, tuple[Record | None, int]] = {}
        self.by_hand: set[str] = set()
        """The slots of requests that another client deleted."""
        self.log: list[facts.ProvisioningFact] = []
        """What the check has asked of providers."""
        self.works: dict[str, StoredWorkload] = {}
        self.config = self._config()
        self.checks = set(CHECKS)
        self.booth = Booth()
        self.tells: list[tuple[str, str, VerdictReport]] = []
        self.uids = 0
        self.begin()

    def _config(self) -> ProvisioningRequestConfig | None:
        spec = ProvisioningRequestConfigSpec(
            provisioning_class_name=self.rng.choice(("class", "other")),
            parameters=self.rng.choice(({}, {"zone": "a"})),
            retry_strategy=ProvisioningRetryStrategy(backoff_limit_count=LIMIT),
        )
        return ProvisioningRequestConfig(metadata=ObjectMeta(name="config"), spec=spec)

    def begin(self) -> None:
        """Restarts the check: it reads all stored objects, then receives later messages."""
        self.core = ProvisioningCore(timedelta(seconds=60))
        self.coming: deque[Callable[[], None]] = deque()
        self.flying: list[Step] = []
        self.said: deque[facts.ProvisioningStatus] = getattr(self, "said", deque())
        for name in CHECKS:
            self._check_read(name)
        self.core.observed.config("config", self.config)
        for key, (record, revision) in self.bucket.items():
            if record is not None:
                self.core.observed.record(("ns", key), record, revision)
        for name, work in self.works.items():
            self.core.observed.workload(("ns", name), work)
        self._recover(self.by_hand)

    def _recover(self, by_hand: Collection[str]) -> None:
        """The messages on the log about deleted objects."""
        recovering = DeletedRequestRecovery({("ns", name) for name in by_hand})
        for fact in self.log:
            recovering.read(fact, self.now)
        for record in recovering.found():
            _, revision = self.bucket[record.metadata.name]
            self.core.observed.recovered(record, revision)

    def _checks_read(self) -> None:
        for name in CHECKS:
            self._check_read(name)

    def _check_read(self, name: str) -> None:
        reference = ParametersReference(
            api_group="kueue.x-k8s.io", kind="ProvisioningRequestConfig", name="config"
        )
        spec = AdmissionCheckSpec(controller_name=CONTROLLER, parameters=reference)
        check = AdmissionCheck(metadata=ObjectMeta(name=name), spec=spec)
        self.core.observed.check(name, check if name in self.checks else None)

    # Workloads. -----------------------------------------------------------------------------

    def write(self, name: str, work: StoredWorkload | None) -> None:
        if work is None:
            self.works.pop(name, None)
        else:
            self.works[name] = work
        core = self.core
        self.coming.append(lambda: core.observed.workload(("ns", name), work))

    def reserve(self, name: str) -> None:
        """A new reservation, of a workload that is new or was released."""
        work = self.works.get(name)
        if work is not None and work.status.admission is not None:
            return
        if work is None:
            self.uids += 1
            uid, cycle, counts = f"u{self.uids}", 0, dict.fromkeys(CHECKS, 0)
        else:
            uid, cycle = work.metadata.uid, work.status.admission_cycle
            counts = {row.name: row.retry_count for row in work.status.admission_checks}
        place = PodSetAssignment(name="main", flavors={"cpu": "f"}, count=1)
        self.write(
            name,
            StoredWorkload(
                api_version="kueue.x-k8s.io/v1beta2",
                kind="Workload",
                metadata=ObjectMeta(name=name, namespace="ns", uid=uid),
                spec=SPEC,
                status=WorkloadStatus(
                    conditions=(_true("QuotaReserved"),),
                    admission=Admission(cluster_queue="cq", pod_set_assignments=(place,)),
                    admission_checks=tuple(
                        CheckState(name=check, retry_count=counts.get(check, 0)) for check in CHECKS
                    ),
                    admission_cycle=cycle,
                ),
            ),
        )

    def release(self, name: str) -> None:
        """The reservation ends; the next one is of another cycle."""
        work = self.works.get(name)
        if work is None or work.status.admission is None:
            return
        rows = tuple(
            CheckState(
                name=row.name, retry_count=row.retry_count + (1 if row.state == "Retry" else 0)
            )
            for row in work.status.admission_checks
        )
        self._status(
            name,
            conditions=(),
            admission=None,
            admission_checks=rows,
            admission_cycle=work.status.admission_cycle + 1,
        )

    def _status(self, name: str, **changes: Any) -> None:
        work = self.works[name]
        self.write(name, replace(work, status=replace(work.status, **changes)))

    def verdict(self, name: str, check: str, tell: VerdictReport) -> None:
        """Applies the verdict as the workload-controller does."""
        self.tells.append((name, check, tell))
        work = self.works.get(name)
        if work is None or work.status.admission is None:
            return
        if tell.reservation != (work.metadata.uid, work.status.admission_cycle):
            return
        conditions = {condition.type for condition in work.status.conditions}
        if "Evicted" in conditions or "Finished" in conditions:
            return
        answer = tell.verdict
        rows = tuple(
            replace(row, state=answer.state, message=answer.message) if row.name == check else row
            for row in work.status.admission_checks
        )
        more: tuple[Condition, ...] = ()
        if answer.state in ("Retry", "Rejected"):
            more = (_true("Evicted", "AdmissionCheck"),)
        elif all(row.state == "Ready" for row in rows) and "Admitted" not in conditions:
            more = (_true("Admitted"),)
        self._status(name, admission_checks=rows, conditions=(*work.status.conditions, *more))

    # Steps. ---------------------------------------------------------------------------------

    def think(self) -> None:
        self.core.mark_overdue(self.now)
        self.flying += self.core.steps(self.now)

    def perform(self, step: Step, *, fails: str = "") -> None:
        """``fails``: "before" or "after" it had its effect; then the check does not know."""
        if fails == "before":
            self.core.failed(step)
            return
        if step.write is not None:
            name = step.write.name
            record, stands = self.bucket.get(name, (None, 0))
            if stands != step.write.expected:
                if record is not None:
                    self.core.observed.record(("ns", name), record, stands)
                else:
                    self._recover(self.by_hand & {name})
                    self.core.observed.marked(step.slot, name, stands)
                self.core.failed(step)
                return
            self.put(name, step.write.record)
        if step.fact is not None:
            self.log.append(step.fact)
            self.booth.receive(step.fact)
        if step.report is not None:
            self.verdict(step.slot.workload, step.slot.check, step.report)
        if fails:
            self.core.failed(step)
        else:
            self.core.done(step, self.revision)

    def put(self, name: str, record: Record | None, *, by_hand: bool = False) -> None:
        self.revision += 1
        self.by_hand.discard(name)
        if by_hand:
            self.by_hand.add(name)
        self.bucket[name] = record, self.revision
        core, revision = self.core, self.revision
        self.coming.append(lambda: core.observed.record(("ns", name), record, revision))

    def read_answer(self) -> None:
        """The next answer of a provider; it is delivered again if the check could not store it."""
        if not self.said:
            return
        fact = self.said[0]
        step, why = self.core.apply_status(fact, self.now)
        if why == "busy":
            return
        self.said.popleft()
        if step is not None:
            before = self.bucket.get(step.write.name, (None, 0))[1] if step.write else 0
            self.perform(step)
            if step.write is not None and before != step.write.expected:
                self.said.appendleft(fact)

    def publish_status(self, kind: type[facts.ProvisioningStatus], id: str) -> None:
        asked = self.booth.asked[id]
        about: dict[str, Any] = {"namespace": "ns", "name": asked.name, "uid": asked.uid, "id": id}
        self.said.append(kind(provisioning_class=asked.provisioning_class, **about))

    # Things that happen. --------------------------------------------------------------------

    def happens(self) -> None:
        rng, name = self.rng, self.rng.choice(NAMES)
        match rng.randrange(20):
            case 0 | 1 | 2:
                self.reserve(name)
            case 3:
                self.release(name)
            case 4 if name in self.works:
                self._status(name, conditions=(*self.works[name].status.conditions, FINISHED))
            case 5 if rng.random() < 0.3:
                self.write(name, None)
            case 6 | 7 | 8 | 9 if self.booth.asked:
                self.publish_status(rng.choice(STATUSES), rng.choice(sorted(self.booth.asked)))
            case 10 | 11 if self.booth.booked:
                self.publish_status(facts.Provisioned, rng.choice(sorted(self.booth.booked)))
            case 12 if rng.random() < 0.5:
                self.config = self._config() if rng.random() < 0.7 else None
                core, config = self.core, self.config
                self.coming.append(lambda: core.observed.config("config", config))
            case 13 if rng.random() < 0.5:
                self.checks ^= {rng.choice(CHECKS)}
                core = self.core
                self.coming.append(self._checks_read)
            case 14 if rng.random() < 0.5:
                self.begin()
            case 15:
                self.now += timedelta(seconds=rng.choice((1, 30, 61)))
            case 16 if rng.random() < 0.5:
                there = [key for key, (record, _) in self.bucket.items() if record is not None]
                if there:
                    self.put(rng.choice(sorted(there)), None, by_hand=True)
            case 18 if rng.random() < 0.5:
                kept = [record for record, _ in self.bucket.values() if record is not None]
                if kept:
                    record = rng.choice(sorted(kept, key=lambda each: each.metadata.name))
                    meta = replace(record.metadata, deletion_timestamp=self.now)
                    self.put(record.metadata.name, replace(record, metadata=meta))
            case 17 if self.booth.asked:
                lost = self.booth.asked[rng.choice(sorted(self.booth.asked))]
                self.core.send_again(RequestSlot("ns", lost.name, lost.check), lost.id)

    def turn(self) -> None:
        rng = self.rng
        match rng.randrange(5):
            case 0:
                self.happens()
            case 1 if self.coming:
                self.coming.popleft()()
            case 2:
                self.think()
            case 3 if self.flying:
                step = self.flying.pop(rng.randrange(len(self.flying)))
                fails = rng.choice(("", "", "", "", "before", "after"))
                self.perform(step, fails=fails)
            case 4:
                self.read_answer()

    def settle(self) -> None:
        """Delivers all messages under way, while nothing new happens."""
        for _ in range(3000):
            if self.coming:
                self.coming.popleft()()
            elif self.flying:
                self.perform(self.flying.pop())
            elif self.said:
                self.read_answer()
                if self.core.is_busy:
                    self.think()
            else:
                self.think()
                if not self.flying and not self.coming:
                    return
        raise AssertionError(f"it does not come to rest: {self.flying}, {self.said}")

    # What must hold. ------------------------------------------------------------------------

    def check(self) -> None:
        live = {key: record for key, (record, _) in self.bucket.items() if record is not None}
        held: set[str] = set()
        for key, record in live.items():
            assert record.metadata.deletion_timestamp is None, f"{key} is to go"
            if not record.status.cancelled:
                held.add(record.spec.id)
            work = self.works.get(record.spec.workload)
            assert work is not None, f"{key} has no workload"
            assert work.metadata.uid == record.spec.uid, f"{key} is of a namesake"
        assert self.booth.booked <= held, f"orphaned bookings: {self.booth.booked - held}"
        for name, work in self.works.items():
            for row in work.status.admission_checks:
                self._check_row(name, work, row, live)

    def _check_row(
        self, name: str, work: StoredWorkload, row: CheckState, live: dict[str, Record]
    ) -> None:
        conditions = {condition.type for condition in work.status.conditions}
        mine = [
            record
            for record in live.values()
            if (record.spec.workload, record.spec.check) == (name, row.name)
            and not record.status.cancelled
        ]
        assert len(mine) <= 1, f"{name}/{row.name} has {len(mine)} requests"
        reserved = "QuotaReserved" in conditions and not conditions & {"Evicted", "Finished"}
        if not reserved or row.name not in self.checks:
            assert not mine, f"{name}/{row.name} needs no request"
            return
        if row.state == "Ready":
            return
        if self.config is None:
            assert not mine
            assert row.message == NOT_ACTIVE, row
            return
        (record,) = mine
        assert record.spec.attempt == row.retry_count + 1
        assert record.spec.id in self.booth.booked, "its request is not booked"
        assert record.spec.provisioning_class_name == self.config.spec.provisioning_class_name
        assert record.spec.parameters == self.config.spec.parameters
        assert record.status.state in ("Requested", "Accepted"), record.status.state
        assert (row.state, row.message) == ("Pending", record.status.message)


FINISHED = Condition(type="Finished", status="True", reason="Succeeded")


def _true(kind: str, reason: str = "Because") -> Condition:
    return Condition(type=kind, status="True", reason=reason)


def played(seed: int, turns: int = 250) -> ProvisioningModel:
    """A random story, looked at whenever it is at rest."""
    model = ProvisioningModel(random.Random(seed))
    for _ in range(4):
        for _ in range(turns // 4):
            model.turn()
        model.settle()
        model.check()
    return model


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
def test_each_reservation_has_one_booking_and_no_booking_is_orphaned(seed: int) -> None:
    played(seed)


def test_generated_scenarios_reach_the_main_cases() -> None:
    models = [played(seed) for seed in range(60)]
    states = {tell.verdict.state for model in models for _, _, tell in model.tells}
    assert states == {"Pending", "Ready", "Retry", "Rejected"}
    assert sum("~" in id for model in models for id in model.booth.asked) > 20
    assert sum(len(model.booth.asked) for model in models) > 200


def test_no_booking_remains_when_all_workloads_are_gone() -> None:
    for seed in range(100):
        model = played(seed)
        for name in list(model.works):
            model.write(name, None)
        model.settle()
        assert model.booth.booked == set(), seed
        assert not [record for record, _ in model.bucket.values() if record is not None]
