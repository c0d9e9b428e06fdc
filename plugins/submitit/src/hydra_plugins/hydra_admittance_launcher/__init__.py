"""Hydra's launcher ``submitit_admittance``: ``python app.py -m hydra/launcher=submitit_admittance
hydra.launcher.queue=research lr=0.1,0.01``."""

from __future__ import annotations

from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore
from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import BaseSubmititLauncher


class AdmittanceLauncher(BaseSubmititLauncher):
    """Runs the jobs of a sweep as an array."""

    _EXECUTOR = "admittance"


@dataclass
class AdmittanceQueueConf(BaseQueueConf):
    """The parameters of the executor of `admittance_submitit`."""

    _target_: str = "hydra_plugins.hydra_admittance_launcher.AdmittanceLauncher"
    queue: str | None = None
    namespace: str | None = None
    priority: int | None = None
    priority_class: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    flavors: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    signal_delay_s: int = 90
    max_num_timeout: int = 0
    array_parallelism: int | None = None


ConfigStore.instance().store(
    group="hydra/launcher",
    name="submitit_admittance",
    node=AdmittanceQueueConf(),
    provider="submitit_admittance",
)
