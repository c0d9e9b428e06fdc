"""Settings of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import Settings


def test_arguments_come_before_variables_and_these_before_defaults() -> None:
    env = {"ADMIT_NATS_URL": "nats://env:1", "ADMIT_DATA_DIR": "/env", "ADMIT_LOG": "json"}
    settings = Settings.from_env("runner", env=env, url="nats://argument:1")
    assert settings.url == "nats://argument:1"
    assert settings.data_dir == Path("/env")
    assert settings.json_logs is True
    assert (settings.replicas, settings.log_days) == (1, 0)
    assert Settings.from_env("runner", env={}).url == "nats://127.0.0.1:4222"


def test_an_instance_is_a_token_and_new_ones_differ() -> None:
    assert Settings.from_env("runner", env={"ADMIT_INSTANCE": "host.one"}).instance == "host_one"
    instance = Settings.from_env("runner", env={}).instance
    assert instance != Settings.from_env("runner", env={}).instance


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("ADMIT_REPLICAS", "three", id="no number"),
        pytest.param("ADMIT_REPLICAS", "0", id="too few replicas"),
        pytest.param("ADMIT_LOG_BYTES", "many", id="a bound of the log that is not a size"),
        pytest.param("ADMIT_LOG_BYTES", "1Mi", id="a bound of the log that is too small"),
        pytest.param("ADMIT_LOG_DAYS", "0", id="a log without an age"),
        pytest.param("ADMIT_LOG_DAYS", "1.5", id="a part of a day"),
        pytest.param("ADMIT_CLAIM_SECONDS", "nan", id="not a number"),
        pytest.param("ADMIT_LEASE_SECONDS", "inf", id="for ever"),
        pytest.param("ADMIT_LOG", "xml", id="an unknown form of log"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(SetupError, match=name):
        Settings.from_env("runner", env={name: value})


def test_the_configuration_file_is_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {}\n"
        "objectRetentionPolicies: {workloads: {afterFinished: 2h}}\n"
    )
    settings = Settings.from_env("scheduler", env={"ADMIT_CONFIG": str(file)})
    assert settings.configuration.fair_sharing is not None
    assert settings.finished_seconds == 7200.0


def test_a_missing_configuration_file_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(SetupError, match=r"none\.yaml: No such file"):
        Settings.from_env("scheduler", env={"ADMIT_CONFIG": str(missing)})
