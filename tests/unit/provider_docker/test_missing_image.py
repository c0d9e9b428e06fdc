"""The container engine provider pulls an image that the engine lacks."""

from __future__ import annotations

from typing import Any

import docker
import pytest

from admittance.provider_docker.engine import DockerSettings, Engine
from admittance.provider_docker.workers import WorkerSpec


class ClientWithoutImages:
    """The calls of the docker SDK that start a container, on an engine that has no image yet."""

    def __init__(self, **_: Any) -> None:
        self.images: set[str] = set()
        self.started: list[str] = []

    def create_host_config(self, **_: Any) -> dict[str, Any]:
        return {}

    def create_container(self, image: str, **_: Any) -> dict[str, str]:
        if image not in self.images:
            raise docker.errors.ImageNotFound(f"No such image: {image}")
        return {"Id": "1"}

    def pull(self, image: str, tag: str | None) -> None:
        self.images.add(f"{image}:{tag}" if tag else image)
        self.images.add(image)

    def start(self, container: str) -> None:
        self.started.append(container)


@pytest.mark.parametrize(
    ("image", "pulled"), [("worker", "worker:latest"), ("registry:5000/worker:1", None)]
)
async def test_a_missing_image_is_pulled_before_the_worker_starts(
    image: str, pulled: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ClientWithoutImages()
    monkeypatch.setattr(docker, "APIClient", lambda **_: client)
    worker = WorkerSpec("worker-0", 100, 0)
    await Engine(DockerSettings(image=image)).start(worker, {}, {})
    assert client.images == {image, pulled or image}
    assert client.started == ["1"]
