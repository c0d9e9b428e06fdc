"""The provider names a missing package or setting when it starts."""

from __future__ import annotations

import os
import sys

import pytest

from admittance.provider_aws.ec2 import Ec2, Ec2Error, ErrorCause
from admittance.runtime.errors import SetupError


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without the AWS settings of this machine."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_without_boto3_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SetupError, match=r"pip install 'admittance\[aws\]'"):
        Ec2.connect("class")


def test_without_a_region_the_error_names_the_variable() -> None:
    with pytest.raises(SetupError) as refused:
        Ec2.connect("class")
    assert str(refused.value) == (
        "EC2: You must specify a region. (boto3 reads the region from AWS_DEFAULT_REGION)"
    )


def test_the_provider_starts_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials may come later, for instance with a role or a mounted file."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    ec2 = Ec2.connect("class")
    with pytest.raises(Ec2Error) as caught:
        ec2.ours()
    assert caught.value.fault is ErrorCause.CREDENTIALS


def test_an_unreachable_endpoint_is_not_the_fault_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    ec2 = Ec2.connect("class")
    with pytest.raises(Ec2Error) as caught:
        ec2.ours()
    assert caught.value.fault is ErrorCause.LATER
