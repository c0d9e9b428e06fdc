"""Settings of a process: from arguments, else ``ADMIT_*`` variables, else defaults."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from admittance.api.configuration import Configuration
from admittance.api.fields.names import name_error
from admittance.api.fields.problems import ManifestError
from admittance.api.fields.units import BadQuantity, parse, seconds
from admittance.api.reading.configuration_file import RETENTION_MIN, read_file
from admittance.events.names import token
from admittance.runtime import chance
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.connection_options import (
    DEFAULT_URL,
    NO_OPTIONS,
    BadOptions,
    ConnectionOptions,
    connection_options,
    server_url,
)
from admittance.runtime.process.variables import unknown_variable
from admittance.runtime.telemetry.metrics import PREFIX

FILE_LIMIT: Final = 100 << 20
FILES_BYTES: Final = 10 << 30
"""The default bytes of the files of one workload, and of all workloads."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one service in one process. Durations in seconds.

    ``instance``: a token, unique among the instances of a service. A runner must keep its
    ``instance`` over restarts (ADMIT_INSTANCE) to recognise its jobs. ``replicas``: the number of
    replicas of each stream; 1 without a cluster. ``log_days``: how many days a fact stays on the
    log; 0: as the log is set, 42 for a new log. ``log_bytes``: the size of the log above which its
    oldest facts are removed; 0: none are. ``history_days``: how many days each revision of the
    bucket stays for pictures of the past; 0: none does. ``file_limit``: the most bytes of the
    inputs, and of the outputs, of one workload; 0: workloads have no files. ``files_bytes``: the
    bytes of the files of all workloads from which on no more are taken. ``finished_seconds``: how
    long a finished workload stays in the bucket; its facts stay on the log. ``checkpoint_seconds``:
    time between two checkpoints, if anything changed. ``drain_seconds``: how long an evicted job
    keeps its quota if its runner does not answer. ``check_delay_seconds``: the longest delay that a
    check's Retry can ask for. ``compare_seconds``: about how often the retry-timer compares all
    schedules on the bus with the stored workloads. ``beat_seconds``: time between two heartbeats of
    a check controller or provider. ``provisioning_seconds``: the default deadline of a request for
    capacity; 0: none. ``admin``: HOST:PORT of the admin port of this process; None: not served.
    ``metrics_prefix``: what the name of every metric begins with.
    """

    service: str
    instance: str
    url: str = DEFAULT_URL
    connection: ConnectionOptions = NO_OPTIONS
    data_dir: Path | None = None
    replicas: int = 1
    log_days: int = 0
    log_bytes: int = 0
    history_days: int = 0
    file_limit: int = FILE_LIMIT
    files_bytes: int = FILES_BYTES
    lease_seconds: float = 5.0
    claim_seconds: float = 300.0
    finished_seconds: float = 7 * 86_400.0
    checkpoint_seconds: float = 4 * 3600.0
    drain_seconds: float = 300.0
    check_delay_seconds: float = 7 * 86_400.0
    compare_seconds: float = 60.0
    beat_seconds: float = 10.0
    provisioning_seconds: float = 900.0
    admin: str | None = None
    metrics_prefix: str = PREFIX
    json_logs: bool | None = None
    log_level: str = "info"
    configuration: Configuration = Configuration()

    @classmethod
    def from_env(
        cls,
        service: str,
        *,
        env: Mapping[str, str] | None = None,
        url: str | None = None,
        connection: ConnectionOptions | None = None,
        data_dir: Path | None = None,
        instance: str | None = None,
        config: Path | None = None,
        admin: str | None = None,
        metrics_prefix: str | None = None,
        own_variables: bool = False,
    ) -> Settings:
        """The settings of ``service``. With ``connection`` None, the connection options come from
        the environment variables. ``own_variables``: the program may have variables of its own.
        Raises SetupError with the wrong or unknown variable, or the file and its wrong field.
        """
        env = os.environ if env is None else env
        if wrong := unknown_variable(env, own=own_variables):
            raise SetupError(wrong)
        configuration = _configuration(config or env.get("ADMIT_CONFIG") or None)
        folder = data_dir or (Path(env["ADMIT_DATA_DIR"]) if env.get("ADMIT_DATA_DIR") else None)
        return cls(
            service=service,
            instance=token(instance or env.get("ADMIT_INSTANCE") or new_instance()),
            url=_server(env, url),
            connection=_connection(env, url) if connection is None else connection,
            data_dir=folder,
            replicas=_replicas(env),
            log_days=whole_number(env, "ADMIT_LOG_DAYS", 0, least=1),
            log_bytes=size_of_log(env),
            history_days=whole_number(env, "ADMIT_HISTORY_DAYS", 42, least=0),
            file_limit=size(env, "ADMIT_FILE_LIMIT", FILE_LIMIT),
            files_bytes=size(env, "ADMIT_FILES_BYTES", FILES_BYTES),
            lease_seconds=number(env, "ADMIT_LEASE_SECONDS", 5.0, least=1.0),
            claim_seconds=number(env, "ADMIT_CLAIM_SECONDS", 300.0, least=2.0),
            finished_seconds=number(
                env, "ADMIT_FINISHED_SECONDS", _retention(configuration), least=60.0
            ),
            checkpoint_seconds=number(env, "ADMIT_CHECKPOINT_SECONDS", 4 * 3600.0, least=1.0),
            drain_seconds=number(env, "ADMIT_DRAIN_SECONDS", 300.0, least=1.0),
            check_delay_seconds=number(env, "ADMIT_CHECK_DELAY_SECONDS", 7 * 86_400.0, least=1.0),
            beat_seconds=number(env, "ADMIT_BEAT_SECONDS", 10.0, least=0.1),
            provisioning_seconds=number(env, "ADMIT_PROVISIONING_SECONDS", 900.0, least=0.0),
            admin=admin or env.get("ADMIT_ADMIN") or None,
            metrics_prefix=metrics_prefix or env.get("ADMIT_METRICS_PREFIX") or PREFIX,
            compare_seconds=number(env, "ADMIT_COMPARE_SECONDS", 60.0, least=0.1),
            json_logs=choice(env, "ADMIT_LOG", {"json": True, "text": False}),
            log_level=env.get("ADMIT_LOG_LEVEL", "info").lower(),
            configuration=configuration,
        )


def new_instance() -> str:
    """Returns a unique name for an instance of a service."""
    return f"{socket.gethostname()}-{os.getpid()}-{chance.token_hex(3)}"


def _server(env: Mapping[str, str], url: str | None) -> str:
    try:
        return server_url(env, url)
    except BadOptions as error:
        raise SetupError(str(error)) from None


def _connection(env: Mapping[str, str], url: str | None) -> ConnectionOptions:
    try:
        return connection_options(env, url=url)
    except BadOptions as error:
        raise SetupError(str(error)) from None


def _configuration(path: Path | str | None) -> Configuration:
    if path is None:
        return Configuration()
    try:
        return read_file(Path(path)).configuration
    except ManifestError as error:
        raise SetupError(str(error)) from None
    except OSError as error:
        raise SetupError(f"cannot read the configuration file {path}: {error.strerror}") from None


def _retention(configuration: Configuration) -> float:
    kept = configuration.object_retention_policies.workloads.after_finished
    # A finished workload stays in the bucket for at least a minute, because a command that waits
    # for the workload must see that it finished.
    return max(float(RETENTION_MIN), float(seconds(kept))) if kept is not None else 7 * 86_400.0


T = TypeVar("T")


REPLICAS_MAX: Final = 5
"""The most replicas that nats-server keeps of a stream."""


def _replicas(env: Mapping[str, str]) -> int:
    replicas = whole_number(env, "ADMIT_REPLICAS", 1, least=1)
    if replicas > REPLICAS_MAX:
        raise SetupError(
            f"ADMIT_REPLICAS={replicas} is more than {REPLICAS_MAX}: nats-server keeps no more"
        )
    return replicas


def number(env: Mapping[str, str], name: str, default: float, *, least: float) -> float:
    """The variable's value as a finite number. Raises SetupError if the number is below
    ``least``."""
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SetupError(f"{name}={text!r} is not a number")
    if value < least:
        raise SetupError(f"{name}={text} is less than {least:g}")
    return value


def whole_number(env: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    """The variable's value as a whole number. Raises SetupError if the number is below
    ``least``."""
    value = number(env, name, float(default), least=least)
    if not value.is_integer():
        raise SetupError(f"{name}={env[name]} is not a whole number")
    return int(value)


SIZE_MAX: Final = 1 << 60
LOG_BYTES_MIN: Final = 64 << 20
"""The smallest bound of the log: the newest 20,000 messages stay in any case."""


def size(env: Mapping[str, str], name: str, default: int) -> int:
    """The value of the variable in bytes, such as ``8Gi``. Raises SetupError."""
    text = env.get(name)
    if not text:
        return default
    try:
        value = int(parse(text.removesuffix("B")))
    except BadQuantity:
        raise SetupError(f"{name}={text!r} is not a size like 8Gi or 500Mi") from None
    if not 0 <= value < SIZE_MAX:
        raise SetupError(f"{name}={text} is not a size from 0 to 1Ei")
    return value


def size_of_log(env: Mapping[str, str]) -> int:
    """The value of ``ADMIT_LOG_BYTES`` in bytes, such as ``8Gi``; 0: it is not set. Raises
    SetupError."""
    name = "ADMIT_LOG_BYTES"
    if not env.get(name):
        return 0
    value = size(env, name, 0)
    if value < LOG_BYTES_MIN:
        raise SetupError(f"{name}={env[name]} is less than {LOG_BYTES_MIN >> 20}Mi")
    return value


def choice(env: Mapping[str, str], name: str, choices: Mapping[str, T]) -> T | None:
    """The choice that the variable's value names; None if the variable is not set. Raises
    SetupError."""
    text = env.get(name)
    if not text:
        return None
    if text not in choices:
        raise SetupError(f"{name}={text!r} is not one of {', '.join(choices)}")
    return choices[text]


def text_list(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The comma-separated texts of a variable, in order, without duplicates."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, env.get(name, "").split(",")))))


def object_names(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The comma-separated names of objects in a variable, in order, without duplicates. Raises
    SetupError for text that is not a valid name."""
    names = text_list(env, name)
    for object_name in names:
        if complaint := name_error(object_name):
            raise SetupError(f"{name}: {complaint}")
    return names
