"""The names that other people's programs use.

A name that changes here breaks programs, permissions, dashboards or stored data outside of this
repository. Add names freely; remove or change one only with a decision in docs/decisions/.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tools.asyncapi import channels

import admittance.checks
import admittance.client
import admittance.providers
from admittance.api.kinds import KINDS
from admittance.cli.table import MODULES as MODULES_OF_COMMANDS
from admittance.events import subjects
from admittance.events.provisioning import ProvisioningRequested
from admittance.runtime.process.variables import DEPLOYMENT, RENAMED, TESTS
from admittance.services import SERVICES

ROOT = Path(__file__).resolve().parents[2]

CHECKS = """
    Admission AdmissionCheckController BadParameters Later Pending PodSetAssignment PodSetUpdate
    Ready Reference Rejected Request Retry Verdict Withdrawal Workload
"""

PROVIDERS = """
    Accepted BookingExpired Cancellation CapacityRevoked Failed PodSet PodSetUpdate Provider
    Provisioned Request Status
"""

CLIENT = """
    AdmittanceExecutor BadInput BucketObject CallLost Change Client ClientError Closed
    ConnectionOptions FetchedFile
    Held Job JobFailed NoResponder NotAllowed NotFound Refused RequestFailed Result SyncClient
    SyncJob TimedOut Unavailable WrongUse
"""

MEMBERS = {
    admittance.client.Client: (
        "connect close namespace submit job explain wait logs fetch events newest_events stop "
        "activate hold release set_priority finish approve deny get list watch apply delete "
        "simulate pending queues"
    ),
    admittance.client.Job: (
        "namespace name created warnings get phase wait result logs fetch events cancel explain"
    ),
    admittance.client.BucketObject: "key data revision name namespace plain workload created",
    admittance.client.Change: "object revision deleted",
    admittance.client.Result: "name namespace succeeded exit_code reason message check",
    admittance.checks.AdmissionCheckController: (
        "check withdrawn active inactive report report_from_thread serve run"
    ),
    admittance.checks.Request(): (
        "namespace name uid check cycle retry_count parameters admission workload reference "
        "superseded report report_from_thread reported"
    ),
    admittance.checks.Reference: "namespace name uid check cycle",
    admittance.checks.Withdrawal: "namespace name uid check cycle reason",
    admittance.checks.Workload: "queue spec",
    admittance.checks.Ready: "message updates",
    admittance.checks.Retry: "message after",
    admittance.providers.Provider: (
        "requested cancelled ready obtain active inactive report report_from_thread serve run"
    ),
    admittance.providers.Request(
        ProvisioningRequested(namespace="n", name="w", id="i", check="c", cycle=1, attempt=1)
    ): (
        "id namespace name uid check cycle attempt deadline provisioning_class pod_sets "
        "parameters total pods say say_from_thread said"
    ),
    admittance.providers.Cancellation: "id namespace name uid reason",
    admittance.providers.PodSet: "requests node_selector template manifest",
    admittance.providers.Failed: "message retryable retry_after details",
    admittance.providers.Provisioned: "message updates details",
}
"""Documented members of the public classes: docs/checks.md, docs/providers.md, docs/python.md."""

MODULES = """
    array_controller budget_controller placement_service
    provider_aws provider_docker provider_kubernetes provider_pool provisioning_check retry_timer
    runner scheduler telemetry variant_controller workload_controller
"""
"""``python -m admittance.<module>``."""

SERVICE_NAMES = """
    array-controller budget-controller placement
    provider-aws provider-docker provider-kubernetes provider-pool provisioning-check retry-timer
    runner scheduler telemetry variant-controller workload-controller
"""
"""``admit serve <service>``; also in subjects, durables, metrics and permissions."""

COMMANDS = """
    activate apply approve auth backup bench cancel check-test completion context delete deny
    cordon describe doctor drain events explain fetch finish get hold logs priority provider-test
    history release replay uncordon undrain
    restore serve simulate stop submit token trace up usage wait
"""

ENVIRONMENT = """
    ADMIT_ADMIN ADMIT_AUTH_DIR
    ADMIT_AWS_CLASS ADMIT_AWS_POLL_SECONDS ADMIT_AWS_SWEEP_SECONDS ADMIT_AWS_UNSEEN_SECONDS
    ADMIT_BEAT_SECONDS ADMIT_CHECKPOINT_SECONDS ADMIT_CHECK_DELAY_SECONDS ADMIT_CLAIM_SECONDS
    ADMIT_COMPARE_SECONDS ADMIT_CONFIG ADMIT_DATA_DIR ADMIT_DEBUG ADMIT_DETACH_JOBS
    ADMIT_DOCKER_CLASSES ADMIT_DOCKER_COMMAND ADMIT_DOCKER_GROUP ADMIT_DOCKER_IMAGE
    ADMIT_DOCKER_NETWORK ADMIT_DOCKER_SETTLE_SECONDS ADMIT_DOCKER_SWEEP_SECONDS
    ADMIT_DOCKER_WORKERS_MAX ADMIT_DRAIN_SECONDS ADMIT_EXECUTOR ADMIT_FILES_BYTES
    ADMIT_FILE_LIMIT ADMIT_FINISHED_SECONDS ADMIT_HISTORY_DAYS
    ADMIT_INSTANCE ADMIT_KUBE_AWAY_SECONDS ADMIT_KUBE_CLASSES ADMIT_KUBE_CONFIG
    ADMIT_KUBE_CONTEXT ADMIT_KUBE_INSTALLATION ADMIT_KUBE_NAMESPACES ADMIT_KUBE_SWEEP_SECONDS
    ADMIT_KUBE_USER
    ADMIT_LEASE_SECONDS ADMIT_LOG ADMIT_LOG_BYTES ADMIT_LOG_DAYS
    ADMIT_LOG_LEVEL ADMIT_METRICS_PREFIX
    ADMIT_NATS_CREDS
    ADMIT_NATS_PASSWORD ADMIT_NATS_PASSWORD_FILE ADMIT_NATS_TLS_CA ADMIT_NATS_TLS_CERT
    ADMIT_NATS_TLS_FIRST ADMIT_NATS_TLS_KEY ADMIT_NATS_TOKEN ADMIT_NATS_TOKEN_FILE ADMIT_NATS_URL
    ADMIT_NATS_USER
    ADMIT_PROVISIONING_SECONDS ADMIT_REPLICAS ADMIT_RUNNER ADMIT_RUN_AS
    ADMIT_RUN_AS_FILE ADMIT_USER
    ADMIT_ALLOW_HOST_PATHS ADMIT_ENV_FILES ADMIT_JOB_FOLDERS ADMIT_JOB_IMAGES ADMIT_JOB_NAMESPACES
    ADMIT_ALLOW_PRIVILEGE_ESCALATION ADMIT_CGROUP ADMIT_FREE_SPACE ADMIT_NAMESPACE_OUTPUT_LIMIT
    ADMIT_CAPACITY ADMIT_DEVICES ADMIT_LABELS ADMIT_TAINTS
    ADMIT_OUTPUT_LIMIT ADMIT_POD_LIMIT ADMIT_PROCESSES ADMIT_PROCESS_LIMIT ADMIT_SCRATCH_LIMIT
    ADMIT_CHECKPOINT_FOLDER ADMIT_SHARED_FOLDERS
    ADMIT_EPILOG ADMIT_PROLOG ADMIT_PROLOG_TIMEOUT
    ADMIT_NO_WEB ADMIT_WEB ADMIT_WEB_URL
"""

HEADERS = """
    Admit-Claim Admit-End Admit-Fact Admit-Rights Admit-Runner Admit-Schema Admit-Taken-Back
    Admit-Uid
"""

STREAMS_AND_BUCKETS = """
    ADMITTANCE ADMITTANCE_CHECKPOINTS ADMITTANCE_HISTORY ADMITTANCE_TIMERS ADMITTANCE_USAGE
    admittance admittance_claims admittance_providers
"""

DURABLES = "check-example_com=2Fbudget provider-check-capacity_autoscaling_x-k8s_io"

KEY_PREFIXES = """
    admissioncheck budget clusterqueue cohort flavor job localqueue namespace
    provisioningrequestconfig priorityclass_scheduling_k8s_io runner topology
    workload workloadpriorityclass
    provisioningrequest _usage
    _admittance.manifests _admittance.secret _alive _pool _pool_led _runner barrier
    _runner_alive _runner_inventory _runner_refused _runner_runs
"""
"""First tokens of keys in the buckets, or whole keys."""

SUBJECTS = """
    admit.owner.{user}.submitted.{namespace}.{name}
    admit.owner.{user}.activated.{namespace}.{name}
    admit.owner.{user}.deactivated.{namespace}.{name}
    admit.owner.{user}.held.{namespace}.{name}
    admit.owner.{user}.released.{namespace}.{name}
    admit.owner.{user}.reprioritized.{namespace}.{name}
    admit.owner.{user}.renewed.{namespace}.{name}
    admit.owner.{user}.deleted.{namespace}.{name}
    admit.user.{user}.submitted.{namespace}.{name}
    admit.user.{user}.activated.{namespace}.{name}
    admit.user.{user}.deactivated.{namespace}.{name}
    admit.user.{user}.held.{namespace}.{name}
    admit.user.{user}.released.{namespace}.{name}
    admit.user.{user}.reprioritized.{namespace}.{name}
    admit.user.{user}.renewed.{namespace}.{name}
    admit.user.{user}.deleted.{namespace}.{name}
    admit.user.{user}.approved.{namespace}.{name}
    admit.user.{user}.denied.{namespace}.{name}
    admit.user.{user}.finished.{namespace}.{name}
    admit.user.{user}.apply
    admit.user.{user}.delete
    admit.workload.submitted.{namespace}.{name}
    admit.workload.activated.{namespace}.{name}
    admit.workload.deactivated.{namespace}.{name}
    admit.workload.held.{namespace}.{name}
    admit.workload.released.{namespace}.{name}
    admit.workload.reprioritized.{namespace}.{name}
    admit.workload.renewed.{namespace}.{name}
    admit.workload.deleted.{namespace}.{name}
    admit.workload.ungated.{namespace}.{name}
    admit.workload.aggregated.{namespace}.{name}
    admit.workload.started.{namespace}.{name}
    admit.workload.pods_ready.{namespace}.{name}
    admit.workload.pods_not_ready.{namespace}.{name}
    admit.workload.pods_failed.{namespace}.{name}
    admit.workload.finished.{namespace}.{name}
    admit.workload.stopped.{namespace}.{name}
    admit.workload.assigned.{namespace}.{name}
    admit.workload.refused.{namespace}.{name}
    admit.workload.planned.{namespace}.{name}
    admit.workload.confirmed.{namespace}.{name}
    admit.workload.revoked.{namespace}.{name}
    admit.workload.preempted.{namespace}.{name}
    admit.workload.quota_reserved.{namespace}.{name}
    admit.workload.admitted.{namespace}.{name}
    admit.workload.dependencies_judged.{namespace}.{name}
    admit.workload.elements_counted.{namespace}.{name}
    admit.workload.evicted.{namespace}.{name}
    admit.workload.quota_released.{namespace}.{name}
    admit.workload.requeued.{namespace}.{name}
    admit.workload.rejected.{namespace}.{name}
    admit.workload.pending.{namespace}.{name}
    admit.workload.noted.{namespace}.{name}
    admit.check.requested.{controller}.{namespace}.{name}
    admit.check.withdrawn.{controller}.{namespace}.{name}
    admit.check.reported.{controller}.{namespace}.{name}
    admit.provisioning.requested.{class}.{namespace}.{name}
    admit.provisioning.cancelled.{class}.{namespace}.{name}
    admit.provisioning.accepted.{class}.{namespace}.{name}
    admit.provisioning.provisioned.{class}.{namespace}.{name}
    admit.provisioning.failed.{class}.{namespace}.{name}
    admit.provisioning.booking_expired.{class}.{namespace}.{name}
    admit.provisioning.capacity_revoked.{class}.{namespace}.{name}
    admit.user.{user}.submitted.{namespace}.{name}
    admit.user.{user}.activated.{namespace}.{name}
    admit.user.{user}.deactivated.{namespace}.{name}
    admit.user.{user}.held.{namespace}.{name}
    admit.user.{user}.released.{namespace}.{name}
    admit.user.{user}.reprioritized.{namespace}.{name}
    admit.user.{user}.renewed.{namespace}.{name}
    admit.user.{user}.deleted.{namespace}.{name}
    admit.user.{user}.finished.{namespace}.{name}
    admit.user.{user}.approved.{namespace}.{name}
    admit.user.{user}.denied.{namespace}.{name}
    admit.user.{user}.apply
    admit.user.{user}.delete
    admit.timer.due.{kind}.{namespace}.{name}
    admit.object.applied.{kind}.{namespace}.{name}
    admit.object.deleted.{kind}.{namespace}.{name}
    admit.alive.check.{controller}
    admit.alive.provisioning.{class}
    admit.alive.instance.{service}.{instance}
    admit.changed.{domain}
    admit.lease.epoch.{domain}
    admit.lease.barrier.{domain}
    admit.checkpoint.commits
    admit.checkpoint.made.{id}
    admit.deadletter.{service}
    admit.api.provider.{class}
    admit.api.apply admit.api.apply.{namespace}
    admit.api.delete admit.api.delete.{namespace}
    admit.api.settled admit.api.settled.{namespace}
    admit.api.objects admit.api.objects.{namespace}
    admit.api.events admit.api.events.{namespace}
    admit.api.usage admit.api.usage.{namespace}
    admit.api.runners.{namespace}
    admit.api.files.{namespace}
    admit.api.explain.{namespace}
    admit.api.fit.{namespace}
    admit.api.pending admit.api.pending.{namespace}
    admit.api.queues admit.api.queues.{namespace}
    admit.api.simulate admit.api.simulate.{namespace}
    admit.api.logs.{namespace}
    admit.api.timers
    admit.api.arrays
    admit.api.budgets admit.api.budgets.{namespace}
    admit.api.families
    admit.api.machines
    admit.api.providers
    admit.api.health
"""


def sources() -> list[str]:
    paths = [path for base in ("libs", "services") for path in (ROOT / base).rglob("*.py")]
    return [path.read_text() for path in paths]


def in_sources(pattern: str) -> set[str]:
    return {name for text in sources() for name in re.findall(pattern, text)}


def constants() -> set[str]:
    """All texts in the code, and the first parts of those with values in them."""
    nodes = (node for text in sources() for node in ast.walk(ast.parse(text)))
    return {
        node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is str
    }


def test_the_public_packages_export_these_names() -> None:
    assert sorted(admittance.checks.__all__) == CHECKS.split()
    assert sorted(admittance.providers.__all__) == PROVIDERS.split()
    assert sorted(admittance.client.__all__) == CLIENT.split()


def test_the_options_of_a_connection_have_their_documented_address() -> None:
    module = import_module("admittance.runtime.connection_options")
    assert module.ConnectionOptions is admittance.client.ConnectionOptions
    assert f"`{module.__name__}.ConnectionOptions`" in (ROOT / "docs/settings.md").read_text()


@pytest.mark.parametrize(
    ("of", "names"),
    MEMBERS.items(),
    ids=[getattr(of, "__name__", type(of).__name__) for of in MEMBERS],
)
def test_a_public_class_has_these_members(of: Any, names: str) -> None:
    fields = getattr(of, "__annotations__", {})
    assert not [name for name in names.split() if not hasattr(of, name) and name not in fields]


def test_these_modules_run_as_processes() -> None:
    packages = {path.parent.name for path in (ROOT / "services/admittance").glob("*/__main__.py")}
    assert packages >= set(MODULES.split())
    assert all(find_spec(f"admittance.{name}.service") for name in packages)


def test_services_and_commands_have_these_names() -> None:
    assert set(SERVICES) >= set(SERVICE_NAMES.split())
    assert set(COMMANDS.split()) <= set(MODULES_OF_COMMANDS)


def test_these_environment_variables_and_headers_are_read() -> None:
    names = in_sources(r"\bADMIT_[A-Z]+(?:_[A-Z]+)*(?![A-Z_{])")
    assert names - DEPLOYMENT - TESTS - RENAMED.keys() == set(ENVIRONMENT.split()) - DEPLOYMENT
    assert in_sources(r'"(Admit-[A-Za-z-]+)"') == set(HEADERS.split())


def test_streams_buckets_and_durables_have_these_names() -> None:
    streams = {subjects.STREAM, subjects.CHECKPOINTS, subjects.HISTORY, subjects.TIMERS}
    streams.add(subjects.SUMMARIES)
    buckets = {subjects.BUCKET, subjects.CLAIMS, subjects.PROVIDERS}
    assert streams | buckets == set(STREAMS_AND_BUCKETS.split())
    check = subjects.check_durable("example.com/budget")
    provider = subjects.provider_durable("check-capacity.autoscaling.x-k8s.io")
    assert [check, provider] == DURABLES.split()


def test_keys_of_the_buckets_have_these_prefixes() -> None:
    wanted = set(KEY_PREFIXES.split())
    assert {kind.prefix for kind in KINDS.values()} <= wanted
    written = {text.removesuffix(".") for text in constants()}
    assert not wanted - written


def test_messages_travel_on_these_subjects() -> None:
    assert {channel.address for channel in channels()} == set(SUBJECTS.split())
