"""The containers that a request needs, the room for them, and which of them are lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.provider_docker.engine import CLASS, DockerSettings
from admittance.provider_docker.workers import (
    EngineCapacity,
    ListedWorker,
    NoWorkers,
    PodGroup,
    WorkerSpec,
    details_of,
    labels_of,
    lack_of_room,
    lost_message,
    missing_containers,
    worker_of,
    workers_of,
)
from admittance.runtime.errors import SetupError

ROOM = EngineCapacity("host-1", 4000, 8 << 30)


def wanted(pods: int = 1, **needs: int) -> list[PodGroup]:
    return [PodGroup("main", pods, needs)]


def workers(request_id: str = "u/c/1/1", pods: int = 1, **needs: int) -> tuple[WorkerSpec, ...]:
    made = workers_of(request_id, wanted(pods, **needs))
    assert isinstance(made, tuple)
    return made


def running(
    of: tuple[WorkerSpec, ...], request_id: str = "u/c/1/1", state: str = "running"
) -> list[ListedWorker]:
    return [
        ListedWorker(
            container=f"id-{worker.name}",
            name=worker.name,
            installation="ours",
            request_id=request_id,
            provisioning_class="class",
            state=state,
            cpu_milli=worker.cpu_milli,
            memory=worker.memory,
        )
        for worker in of
    ]


def test_each_pod_is_a_worker_with_its_limits() -> None:
    made = workers(pods=3, cpu=500, memory=1 << 30)

    assert len({worker.name for worker in made}) == 3
    assert {(worker.cpu_milli, worker.memory) for worker in made} == {(500, 1 << 30)}


def test_the_same_request_has_the_same_workers_and_another_has_others() -> None:
    assert workers("a", 2) == workers("a", 2)
    assert not set(workers("a", 2)) & set(workers("b", 2))


def test_pod_sets_with_similar_names_have_different_workers() -> None:
    made = workers_of("a", [PodGroup("x" * 63 + "1", 1, {}), PodGroup("x" * 63 + "2", 1, {})])

    assert isinstance(made, tuple)
    assert len({worker.name for worker in made}) == 2


def test_limits_below_the_minimum_of_engines_are_raised() -> None:
    (worker,) = workers(cpu=1, memory=1000)

    assert (worker.cpu_milli, worker.memory) == (10, 6 << 20)


def test_a_resource_that_containers_cannot_have_fails_permanently() -> None:
    made = workers_of("a", [PodGroup("main", 1, {"nvidia.com/gpu": 1, "pods": 1})])

    assert isinstance(made, NoWorkers)
    assert (made.ever, "nvidia.com/gpu" in made.message) == (False, True)


@pytest.mark.parametrize(
    ("asked", "used", "ever"),
    [
        pytest.param(workers(cpu=1000), (), None, id="it fits"),
        pytest.param(workers(pods=4, cpu=1000), (), None, id="it fits to the last thousandth"),
        pytest.param(workers(pods=5, cpu=1000), (), False, id="it never fits"),
        pytest.param(workers(memory=9 << 30), (), False, id="so much memory there never is"),
        pytest.param(
            workers(cpu=1000), running(workers("b", 4, cpu=1000), "b"), True, id="others are there"
        ),
        pytest.param(
            workers(cpu=1000),
            running(workers("b", 4, cpu=1000), "b", "exited"),
            None,
            id="what has ended takes no room",
        ),
        pytest.param(
            workers(pods=4, cpu=1000),
            running(workers(pods=4, cpu=1000)),
            None,
            id="its own workers do not stand in its way",
        ),
        pytest.param(workers(pods=11), (), False, id="too many workers"),
    ],
)
def test_room(asked: tuple[WorkerSpec, ...], used: list[ListedWorker], ever: bool | None) -> None:
    reason = lack_of_room("u/c/1/1", asked, used, ROOM, workers_max=10)

    assert (reason.ever if reason is not None else None) == ever


def test_workers_that_ended_or_were_removed_are_lost() -> None:
    booked = workers(pods=3)
    there = [*running(booked[:1]), *running(booked[1:2], state="exited")]

    missing = missing_containers(details_of(ROOM, booked), there)

    assert missing == tuple(worker.name for worker in booked[1:])
    message = lost_message(missing, there, "host-1")
    assert "(exited)" in message
    assert "(gone)" in message


def test_no_worker_is_lost_without_booked_containers() -> None:
    assert missing_containers({}, []) == ()


@given(st.text(max_size=30), st.integers(0, 10**12), st.integers(0, 10**15))
def test_labels_of_a_worker_are_read_back(request_id: str, cpu: int, memory: int) -> None:
    worker = WorkerSpec("w", cpu, memory)
    listed = {
        "Id": "1",
        "Names": ["/w"],
        "State": "running",
        "Labels": labels_of(worker, request_id, "class", "ours"),
    }

    read_back = worker_of(listed)

    assert read_back is not None
    assert (read_back.request_id, read_back.cpu_milli, read_back.memory) == (
        request_id,
        cpu,
        memory,
    )


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param({"Id": "1", "Labels": None}, id="no labels"),
        pytest.param({"Id": "1", "Labels": {"admittance.run": "x"}}, id="a job's container"),
    ],
)
def test_other_containers_are_not_workers(listed: dict[str, object]) -> None:
    assert worker_of(listed) is None


def test_settings_are_read_and_have_defaults() -> None:
    settings = DockerSettings.from_env(
        {"ADMIT_DOCKER_IMAGE": "worker:1", "ADMIT_DOCKER_COMMAND": "sleep '1 000'"}
    )

    assert settings.command == ("sleep", "1 000")
    assert settings.classes == (CLASS,)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        pytest.param({}, "ADMIT_DOCKER_IMAGE", id="no image"),
        pytest.param({"ADMIT_DOCKER_COMMAND": "'"}, "ADMIT_DOCKER_COMMAND", id="an open quote"),
        pytest.param(
            {"ADMIT_DOCKER_WORKERS_MAX": "0"}, "ADMIT_DOCKER_WORKERS_MAX", id="no worker at all"
        ),
        pytest.param(
            {"ADMIT_DOCKER_WORKERS_MAX": "1.7"},
            "ADMIT_DOCKER_WORKERS_MAX=1.7 is not a whole number",
            id="a part of a worker",
        ),
        pytest.param(
            {"ADMIT_DOCKER_CLASSES": "docker,A B"},
            "^ADMIT_DOCKER_CLASSES: 'A B' is not a name",
            id="a class that no ProvisioningRequestConfig can name",
        ),
    ],
)
def test_a_wrong_setting_names_its_variable(env: dict[str, str], name: str) -> None:
    image = {"ADMIT_DOCKER_IMAGE": "worker"} if env else {}
    with pytest.raises(SetupError, match=name):
        DockerSettings.from_env({**image, **env})
