"""Errors and states of EC2, parameters, and the number of instances."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.provider_aws.ec2 import Ec2Error, ErrorCause, failed_answer, fault_of
from admittance.provider_aws.parameters import (
    CLASS,
    MEBI,
    TAG_MAX,
    Parameters,
    Pods,
    TooLarge,
    creation_arguments,
    instances,
    machine_of,
    token_of,
)
from admittance.provider_aws.reservations import (
    Reservation,
    ReservationPhase,
    initial_answer,
    reservation_of,
    revocation,
)
from admittance.provider_aws.service import DEFAULT_CLASS, AwsSettings
from admittance.providers import CapacityRevoked, Failed, Provisioned
from admittance.providers.builtin import REQUEST
from admittance.runtime.errors import SetupError

GPU = "nvidia.com/gpu"


# Errors. -----------------------------------------------------------------------------------


REFUSAL_CASES: dict[str, tuple[str, int, ErrorCause]] = {
    "none, said with 500": ("InsufficientInstanceCapacity", 500, ErrorCause.LACKING),
    "whatever is insufficient": ("InsufficientCapacity", 503, ErrorCause.LACKING),
    "a full reservation": ("ReservationCapacityExceeded", 400, ErrorCause.LACKING),
    "a limit of the account": ("InstanceLimitExceeded", 400, ErrorCause.LACKING),
    "another limit": ("VcpuLimitExceeded", 400, ErrorCause.LACKING),
    "a wrong parameter": ("InvalidParameterValue", 400, ErrorCause.WRONG),
    "no such type": ("InvalidInstanceType", 400, ErrorCause.WRONG),
    "a missing one": ("MissingParameter", 400, ErrorCause.WRONG),
    "a type that the zone does not have": ("Unsupported", 400, ErrorCause.WRONG),
    "what EC2 does not do": ("UnsupportedOperation", 400, ErrorCause.WRONG),
    "what a policy forbids": ("UnauthorizedOperation", 403, ErrorCause.FORBIDDEN),
    "unknown keys": ("AuthFailure", 401, ErrorCause.CREDENTIALS),
    "keys, not parameters": ("InvalidClientTokenId", 403, ErrorCause.CREDENTIALS),
    "a session that has ended": ("ExpiredToken", 400, ErrorCause.CREDENTIALS),
    "no keys at all": ("NoCredentials", 0, ErrorCause.CREDENTIALS),
    "throttling is no limit": ("RequestLimitExceeded", 503, ErrorCause.LATER),
    "throttling by another name": ("Throttling", 400, ErrorCause.LATER),
    "a network that is down": ("Unreachable", 0, ErrorCause.LATER),
    "any other trouble of the server": ("Strange", 502, ErrorCause.LATER),
    "what we do not know": ("Strange", 400, ErrorCause.UNCLEAR),
    "a token used up": ("IdempotentParameterMismatch", 400, ErrorCause.UNCLEAR),
}


@pytest.mark.parametrize("case", REFUSAL_CASES)
def test_a_refusal_is_known_by_its_code(case: str) -> None:
    code, status, fault = REFUSAL_CASES[case]
    assert fault_of(code, status) is fault


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        pytest.param("InsufficientInstanceCapacity", True, id="capacity may come"),
        pytest.param("InstanceLimitExceeded", True, id="a limit may be raised"),
        pytest.param("InvalidParameterValue", False, id="a wrong parameter stays wrong"),
        pytest.param("UnsupportedOperation", False, id="so does what EC2 does not do"),
        pytest.param("UnauthorizedOperation", False, id="and what a policy forbids"),
        pytest.param("Strange", True, id="an unknown code rejects no request"),
    ],
)
def test_only_permanent_errors_fail_a_request_permanently(code: str, retryable: bool) -> None:
    answer = failed_answer(Ec2Error(code, "told", 400))
    assert (answer.retryable, answer.message) == (retryable, f"{code}: told")


def test_a_long_refusal_is_cut() -> None:
    assert len(failed_answer(Ec2Error("UnauthorizedOperation", "x" * 5000)).message) == 500


# States. -----------------------------------------------------------------------------------


def a_reservation(state: str, total: int = 2) -> Reservation:
    return Reservation("cr-1", "token", state, total, "m5.large", "us-east-1a")


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        ("active", ReservationPhase.HERE),
        ("pending", ReservationPhase.COMING),
        ("assessing", ReservationPhase.COMING),
        ("delayed", ReservationPhase.COMING),
        ("scheduled", ReservationPhase.COMING),
        ("payment-pending", ReservationPhase.COMING),
        ("a word of later", ReservationPhase.COMING),
        ("expired", ReservationPhase.GONE),
        ("cancelled", ReservationPhase.GONE),
        ("cancelling", ReservationPhase.GONE),
        ("failed", ReservationPhase.GONE),
        ("payment-failed", ReservationPhase.GONE),
        ("unsupported", ReservationPhase.GONE),
        ("unavailable", ReservationPhase.GONE),
    ],
)
def test_the_phase_and_answer_of_a_state(state: str, standing: ReservationPhase) -> None:
    reservation = a_reservation(state)
    assert reservation.phase is standing
    match initial_answer(reservation):
        case None:
            assert standing is ReservationPhase.COMING
        case Provisioned():
            assert standing is ReservationPhase.HERE
        case Failed(retryable=retryable):
            assert standing is ReservationPhase.GONE
            assert retryable is (state != "unsupported")
    assert (revocation(reservation, 2) is not None) is (standing is ReservationPhase.GONE)


def test_a_provisioned_reservation_has_details_for_node_selectors() -> None:
    answer = initial_answer(a_reservation("active"))
    assert isinstance(answer, Provisioned)
    assert dict(answer.details) == {
        "capacityReservationId": "cr-1",
        "availabilityZone": "us-east-1a",
        "instanceType": "m5.large",
        "instanceCount": "2",
    }


def test_a_reservation_that_shrinks_is_revoked() -> None:
    assert revocation(a_reservation("active", 2), 2) is None
    revoked = revocation(a_reservation("active", 1), 2)
    assert isinstance(revoked, CapacityRevoked)
    assert revoked.message == "capacity reservation cr-1 has 1 instances, not 2"


def test_a_reservation_is_read_from_a_description() -> None:
    described = {
        "CapacityReservationId": "cr-1",
        "State": "active",
        "TotalInstanceCount": 2,
        "InstanceType": "m5.large",
        "AvailabilityZone": "us-east-1a",
        "Tags": [{"Key": REQUEST, "Value": "token"}, {"Key": "team", "Value": "a"}],
    }
    assert reservation_of(described) == a_reservation("active")
    assert reservation_of({}).phase is ReservationPhase.COMING


# Parameters. -------------------------------------------------------------------------------


def read(**given: str) -> Parameters:
    return msgspec.convert(given, Parameters, strict=False, str_keys=True)


WRONG_CASES: dict[str, tuple[dict[str, str], str]] = {
    "a type is needed": ({}, "InstanceType"),
    "and a zone": ({"InstanceType": "m5.large"}, "AvailabilityZone"),
    "but not two": (
        {"InstanceType": "m", "AvailabilityZone": "a", "AvailabilityZoneId": "b"},
        "one of",
    ),
    "and the type is no empty text": ({"InstanceType": ""}, "InstanceType"),
    "one instance at least": (
        {"InstanceType": "m", "AvailabilityZone": "a", "InstanceCount": "0"},
        "InstanceCount",
    ),
    "which is a number": (
        {"InstanceType": "m", "AvailabilityZone": "a", "InstanceCount": "many"},
        "InstanceCount",
    ),
    "a tenancy that reservations have": (
        {"InstanceType": "m", "AvailabilityZone": "a", "Tenancy": "host"},
        "Tenancy",
    ),
    "a date that says in which zone": (
        {"InstanceType": "m", "AvailabilityZone": "a", "EndDate": "2030-01-01T00:00:00"},
        "EndDate",
    ),
}


@pytest.mark.parametrize("case", WRONG_CASES)
def test_wrong_parameters_are_named(case: str) -> None:
    given, message = WRONG_CASES[case]
    with pytest.raises(msgspec.ValidationError, match=message):
        read(**given)


def created(parameters: Parameters, request_id: str = "u/c/1/1") -> dict[str, Any]:
    return creation_arguments(
        parameters, 3, request_id=request_id, provisioning_class="class", namespace="ns", name="w"
    )


def test_parameters_that_are_not_set_are_left_to_ec2() -> None:
    made = created(read(InstanceType="m5.large", AvailabilityZone="a", Theirs="x"))
    tags = {tag["Key"]: tag["Value"] for tag in made.pop("TagSpecifications")[0]["Tags"]}
    assert made == {
        "ClientToken": token_of("u/c/1/1"),
        "InstanceType": "m5.large",
        "InstancePlatform": "Linux/UNIX",
        "InstanceCount": 3,
        "Tenancy": "default",
        "InstanceMatchCriteria": "open",
        "EndDateType": "unlimited",
        "AvailabilityZone": "a",
    }
    assert tags == {
        "Name": "ns/w",
        REQUEST: token_of("u/c/1/1"),
        CLASS: "class",
        "admittance.dev/request-id": "u/c/1/1",
        "admittance.dev/namespace": "ns",
        "admittance.dev/workload": "w",
    }


def test_parameters_are_passed_to_ec2() -> None:
    made = created(
        read(
            InstanceType="m5.large",
            AvailabilityZoneId="use1-az1",
            Tenancy="dedicated",
            InstanceMatchCriteria="targeted",
            EbsOptimized="true",
            PlacementGroupArn="arn",
            EndDate="2030-01-01T00:00:00Z",
        )
    )
    assert made["AvailabilityZoneId"] == "use1-az1"
    assert "AvailabilityZone" not in made
    assert (made["Tenancy"], made["InstanceMatchCriteria"]) == ("dedicated", "targeted")
    assert (made["EbsOptimized"], made["PlacementGroupArn"]) == (True, "arn")
    assert (made["EndDateType"], made["EndDate"].year) == ("limited", 2030)


@given(st.text(max_size=400), st.text(max_size=400))
def test_a_request_has_one_valid_token(request_id: str, other: str) -> None:
    assert (token_of(request_id) == token_of(other)) is (request_id == other)
    assert len(token_of(request_id)) == 64
    assert token_of(request_id).isascii()
    parameters = Parameters(instance_type="m", availability_zone="a")
    made = created(parameters, request_id)
    assert made == created(parameters, request_id)
    assert all(len(tag["Value"]) <= TAG_MAX for tag in made["TagSpecifications"][0]["Tags"])


# Instances. --------------------------------------------------------------------------------

MACHINE = {"cpu": 8000, "memory": 32 * 1024 * MEBI, GPU: 4}


def pods(count: int, name: str = "main", **needs: int) -> Pods:
    return Pods(name, count, {key.replace("gpu", GPU): much for key, much in needs.items()})


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        pytest.param([pods(1, cpu=8000)], 1, id="a pod as large as a machine has one"),
        pytest.param([pods(3, cpu=4000)], 2, id="two that are half as large share one"),
        pytest.param([pods(3, cpu=4001)], 3, id="no pod is split"),
        pytest.param([pods(5, gpu=1)], 2, id="what there is least of decides"),
        pytest.param([pods(2, gpu=3), pods(2, "b", gpu=1)], 2, id="small ones fill gaps"),
        pytest.param([pods(2, "b", gpu=1), pods(2, gpu=3)], 2, id="in whatever order they come"),
        pytest.param([pods(4, gpu=1, cpu=1), pods(1, "b", cpu=8000)], 2, id="needs of two kinds"),
        pytest.param([pods(100_000, cpu=1000)], 12_500, id="many cost no more to count"),
        pytest.param([pods(7)], 1, id="pods that need nothing have one machine"),
        pytest.param([pods(0, gpu=100)], 1, id="no pods do not count"),
        pytest.param([Pods("m", 3, {"ephemeral-storage": 2**50})], 1, id="disks are set up beside"),
    ],
)
def test_the_number_of_instances_for_the_pods(wanted: list[Pods], count: int) -> None:
    assert instances(wanted, MACHINE, "m5.large") == count


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        pytest.param(
            pods(1, cpu=8001),
            "a pod of main needs 8001 cpu, m5.large has 8000 (thousandths)",
            id="a pod that is too large",
        ),
        pytest.param(
            Pods("main", 1, {"example.com/qpu": 1}),
            "a pod of main needs 1 example.com/qpu, m5.large has 0",
            id="a device that the type does not have",
        ),
    ],
)
def test_a_pod_that_is_larger_than_an_instance_is_named(wanted: Pods, message: str) -> None:
    assert instances([wanted], MACHINE, "m5.large") == TooLarge(message)


@given(
    st.lists(
        st.builds(pods, st.integers(0, 12), cpu=st.integers(0, 8000), gpu=st.integers(0, 4)),
        max_size=5,
    )
)
def test_grouped_machines_are_packed_like_single_ones(wanted: list[Pods]) -> None:
    def share(pods: Pods) -> float:
        return max((much / MACHINE[name] for name, much in pods.needs.items()), default=0.0)

    machines: list[dict[str, int]] = []
    for pods in sorted(wanted, key=share, reverse=True):
        for _ in range(pods.pods):
            for machine in machines:
                if all(much <= machine[name] for name, much in pods.needs.items()):
                    break
            else:
                machine = dict(MACHINE)
                machines.append(machine)
            for name, much in pods.needs.items():
                machine[name] -= much
    assert instances(wanted, MACHINE, "m5.large") == max(1, len(machines))


def test_the_resources_of_an_instance() -> None:
    described = {
        "VCpuInfo": {"DefaultVCpus": 96},
        "MemoryInfo": {"SizeInMiB": 1024},
        "GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Count": 8}]},
        "NeuronInfo": {"NeuronDevices": [{"Count": 2, "CoreInfo": {"Count": 4}}]},
        "NetworkInfo": {"EfaInfo": {"MaximumEfaInterfaces": 4}},
    }
    assert machine_of(described) == {
        "cpu": 96_000,
        "memory": 1024 * MEBI,
        GPU: 8,
        "aws.amazon.com/neuron": 2,
        "aws.amazon.com/neurondevice": 2,
        "aws.amazon.com/neuroncore": 8,
        "vpc.amazonaws.com/efa": 4,
    }
    assert machine_of({}) == {"cpu": 0, "memory": 0}


# Settings. ---------------------------------------------------------------------------------


def test_settings_have_defaults_and_arguments_take_precedence() -> None:
    assert AwsSettings.from_env({}) == AwsSettings()
    env = {"ADMIT_AWS_CLASS": "eu.example.com", "ADMIT_AWS_POLL_SECONDS": "2"}
    assert AwsSettings.from_env(env).provisioning_class == "eu.example.com"
    assert AwsSettings.from_env(env).poll_seconds == 2
    assert AwsSettings.from_env(env, provisioning_class="us").provisioning_class == "us"
    assert DEFAULT_CLASS == "ec2-capacity-reservation.admittance.dev"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        pytest.param("ADMIT_AWS_POLL_SECONDS", "often", id="not a number"),
        pytest.param("ADMIT_AWS_SWEEP_SECONDS", "0", id="what never ends"),
        pytest.param("ADMIT_AWS_CLASS", "*", id="a class that is not a name"),
        pytest.param("ADMIT_AWS_CLASS", "eu..com", id="one with nothing between two dots"),
    ],
)
def test_a_wrong_setting_is_named(variable: str, value: str) -> None:
    with pytest.raises(SetupError, match=variable):
        AwsSettings.from_env({variable: value})
