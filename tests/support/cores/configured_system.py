"""A system in memory that is configured in one line for each object."""

from __future__ import annotations

from typing import Any

from admittance.api.kinds import KINDS
from admittance.control.manifests.objects import StoredObject
from admittance.events.subjects import object_key
from admittance.system.local_system import LocalSystem
from support.builders import an_object

NS = "ns"


class ConfiguredSystem(LocalSystem):
    """Objects of the configuration are applied and deleted by their kind and name."""

    def put(self, kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any) -> None:
        """Applies an object of that kind."""
        self.apply_manifest(an_object(kind, name, spec, namespace, **more))

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Deletes an object."""
        self.put_object(object_key(KINDS[kind].token, namespace, name), None, b"")

    def object_at(self, kind: str, name: str, namespace: str = "") -> StoredObject | None:
        """Returns the stored object; None: it does not exist."""
        return self.controller.objects.get(object_key(KINDS[kind].token, namespace, name))

    def queue(self, name: str, cohort: str = "", **spec: Any) -> None:
        """Applies a ClusterQueue that accepts every namespace, and a LocalQueue of its name."""
        self.cluster_queue(name, cohort, **spec)
        if self.object_at("LocalQueue", name, NS) is None:
            self.put("LocalQueue", name, {"clusterQueue": name}, namespace=NS)

    def cluster_queue(self, name: str, cohort: str = "", **spec: Any) -> None:
        """Applies a ClusterQueue that accepts every namespace."""
        spec.setdefault("namespaceSelector", {})
        if cohort:
            spec["cohortName"] = cohort
        self.put("ClusterQueue", name, spec)

    def check(self, name: str, controller: str = "", **spec: Any) -> None:
        """Applies an AdmissionCheck of the controller, by default ``ctl-<name>``."""
        self.put("AdmissionCheck", name, {"controllerName": controller or f"ctl-{name}", **spec})
