"""The environment variables ``ADMIT_…`` of all processes, and a check for misspelled ones.

A variable that no process reads has no effect, and its default counts without a word. So a process
with an unknown variable does not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "ADMIT_"

_SETTINGS: Final = """
    ADMIT_ADMIN ADMIT_ALLOW_HOST_PATHS ADMIT_ALLOW_PRIVILEGE_ESCALATION ADMIT_AUTH_DIR
    ADMIT_BEAT_SECONDS ADMIT_CAPACITY ADMIT_CGROUP
    ADMIT_CHECKPOINT_SECONDS ADMIT_CHECK_DELAY_SECONDS ADMIT_CLAIM_SECONDS ADMIT_COMPARE_SECONDS
    ADMIT_CONFIG ADMIT_DATA_DIR ADMIT_DEBUG ADMIT_DETACH_JOBS ADMIT_DEVICES ADMIT_DRAIN_SECONDS
    ADMIT_EPILOG
    ADMIT_ENV_FILES ADMIT_EXECUTOR ADMIT_FILES_BYTES ADMIT_FILE_LIMIT
    ADMIT_FINISHED_SECONDS ADMIT_FREE_SPACE ADMIT_HISTORY_DAYS ADMIT_INSTANCE ADMIT_JOB_FOLDERS
    ADMIT_JOB_IMAGES
    ADMIT_JOB_NAMESPACES ADMIT_LABELS ADMIT_LEASE_SECONDS ADMIT_LOG ADMIT_LOG_BYTES ADMIT_LOG_DAYS
    ADMIT_LOG_LEVEL
    ADMIT_METRICS_PREFIX
    ADMIT_NAMESPACE_OUTPUT_LIMIT ADMIT_NATS_CREDS ADMIT_NATS_PASSWORD ADMIT_NATS_PASSWORD_FILE
    ADMIT_NATS_TLS_CA ADMIT_NATS_TLS_CERT ADMIT_NATS_TLS_FIRST ADMIT_NATS_TLS_KEY
    ADMIT_NATS_TOKEN ADMIT_NATS_TOKEN_FILE ADMIT_NATS_URL ADMIT_NATS_USER ADMIT_NO_WEB
    ADMIT_OUTPUT_LIMIT
    ADMIT_POD_LIMIT ADMIT_PROCESSES ADMIT_PROCESS_LIMIT ADMIT_PROLOG ADMIT_PROLOG_TIMEOUT
    ADMIT_PROVISIONING_SECONDS ADMIT_REPLICAS ADMIT_RUNNER
    ADMIT_RUN_AS ADMIT_RUN_AS_FILE ADMIT_SCRATCH_LIMIT ADMIT_CHECKPOINT_FOLDER
    ADMIT_SHARED_FOLDERS ADMIT_TAINTS ADMIT_USER ADMIT_WEB ADMIT_WEB_URL
"""
SETTINGS: Final = frozenset(_SETTINGS.split())
"""Variables of services and commands."""

_PROVIDERS: Final = """
    ADMIT_AWS_CLASS ADMIT_AWS_POLL_SECONDS ADMIT_AWS_SWEEP_SECONDS ADMIT_AWS_UNSEEN_SECONDS
    ADMIT_DOCKER_CLASSES ADMIT_DOCKER_COMMAND ADMIT_DOCKER_IMAGE ADMIT_DOCKER_NETWORK
    ADMIT_DOCKER_SETTLE_SECONDS ADMIT_DOCKER_SWEEP_SECONDS ADMIT_DOCKER_WORKERS_MAX
    ADMIT_KUBE_AWAY_SECONDS ADMIT_KUBE_CLASSES ADMIT_KUBE_CONFIG ADMIT_KUBE_CONTEXT
    ADMIT_KUBE_INSTALLATION ADMIT_KUBE_NAMESPACES ADMIT_KUBE_SWEEP_SECONDS
"""
PROVIDERS: Final = frozenset(_PROVIDERS.split())
"""Variables of the providers of capacity."""

_DEPLOYMENT: Final = """
    ADMIT_AUTH_FOLDER ADMIT_BASE_IMAGE ADMIT_COLLECTOR_IMAGE ADMIT_DOCKER_GROUP
    ADMIT_DOCKER_SOCKET ADMIT_GRAFANA_IMAGE ADMIT_GRAFANA_PASSWORD ADMIT_GRAFANA_PORT
    ADMIT_KUBE_USER ADMIT_LOG_FILES ADMIT_LOG_SIZE ADMIT_MEMORY ADMIT_METRICS_KEPT
    ADMIT_METRICS_PORT ADMIT_NATS_BASE_IMAGE ADMIT_NATS_MEMORY ADMIT_OTLP_PORT ADMIT_PORT
    ADMIT_PORT_2 ADMIT_PORT_3 ADMIT_PROMETHEUS_IMAGE ADMIT_PROMETHEUS_PORT ADMIT_RUNNER_MEMORY
    ADMIT_SPENDING_PORT ADMIT_WEB_PORT
"""
DEPLOYMENT: Final = frozenset(_DEPLOYMENT.split())
"""Variables of the files for compose, which a shell beside them may have."""

TESTS: Final = frozenset({"ADMIT_SCHEMA_MANIFESTS", "ADMIT_SEEDS", "ADMIT_THOROUGH"})
"""Variables of the tests, which start processes of Admittance."""

KNOWN: Final = SETTINGS | PROVIDERS | DEPLOYMENT | TESTS
RENAMED: Final = {"ADMIT_METRICS": "ADMIT_ADMIN"}
"""Variables of earlier versions, and those that replace them."""

_SIMILAR: Final = 0.75
_MISSPELLED: Final = 0.88
"""How similar a misspelled name is to the right one, from 0 to 1: for a program that may have
variables of its own, it must be more similar."""


def unknown_variable(env: Mapping[str, str], *, own: bool = False) -> str:
    """A sentence about a variable ``ADMIT_…`` that no process of Admittance reads; "": there is
    none. ``own``: the program may have variables of its own, so only those that look misspelled are
    wrong."""
    for name in sorted(env):
        if not name.startswith(PREFIX) or name in KNOWN:
            continue
        near = _near(name, _MISSPELLED if own else _SIMILAR)
        if near:
            return f"{name} is not known; did you mean {near}?"
        if not own:
            return f"{name} is not known: unset it; docs/settings.md lists the variables"
    return ""


def _near(name: str, least: float) -> str:
    if name in RENAMED:
        return RENAMED[name]
    import difflib

    return next(iter(difflib.get_close_matches(name, KNOWN, n=1, cutoff=least)), "")
