"""A service as a value: what other parts of the system must know about it.

The package of each service declares its value as ``SERVICE``, and `admittance.services` lists them
all. `admit serve`, `admit up`, `admit doctor`, the users of an installation and the pages of docs
read the values, so nothing outside a service compares names of services. A declaration imports
almost nothing: completion, help, and the fork server of a runner must stay fast.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition

Run: TypeAlias = Callable[..., Awaitable[None]]
"""``run(bus, settings, *, stop, …)``: runs a service until the event ``stop`` is set."""


class Streams(Enum):
    """How a service gets the streams of the bus."""

    KEEPS = "keeps"
    """It creates and updates them, also on a server that demands credentials."""
    CREATES = "creates"
    """It creates missing streams of a server that demands no credentials. On other servers it waits
    for the service that keeps them."""
    AWAITS = "awaits"
    """It has no permission to create streams, and waits for them."""


class LogConsumers(Enum):
    """The consumers of the log that a service has; their names begin with the service's name."""

    NONE = "none"
    OF_LEADER = "of leader"
    """Each leader makes a consumer for itself, named after its epoch."""
    DURABLE = "durable"
    """A consumer that stays, which the workload-controller makes on request."""


class WithUp(Enum):
    """Whether `admit up` starts a service."""

    ALWAYS = "always"
    IF_ASKED = "if asked"
    """If the environment asks for it: see `Service.asked`."""
    ON_DEMAND = "on demand"
    """In a process of its own, which begins with the first of the `Service.requests`."""
    NEVER = "never"
    """The service needs more than a NATS server."""


class Asked(NamedTuple):
    """Whether the environment asks for a service. ``warning``: why it cannot run although the
    environment asks for it; "": nothing to say."""

    starts: bool
    warning: str = ""


def _never_asked(_: Mapping[str, str]) -> Asked:
    return Asked(False)


async def _nothing_to_check(*_: object) -> None:
    return


def _no_metrics() -> Sequence[Definition]:
    return ()


class Service(NamedTuple):
    """A service. A name in ``name`` or ``role`` is part of subjects and permissions.

    ``load``: imports the service and returns its function. ``role``: the role of its users.
    ``probe``: a request, without ``admit.api.``, that only the leader answers; "": an instance that
    reports ready is enough. ``runs_jobs``: it starts the jobs of this machine, so its end waits for
    their grace periods, and its user is named after its data folder. ``check``: of a service that
    runs jobs: ``await check(executor, rules)`` raises SetupError if this machine lacks what jobs
    need. ``only_observes``: no workload waits for it. ``if_missing``: what `admit doctor` notes
    while no instance answers; "": this is an error. ``asked``: for `WithUp.IF_ASKED`; raises
    SetupError for a variable with a wrong value. ``provisioning_class``: the only class that its
    user provides, by the environment; None: the service provides no class, or many. ``unix_user``:
    the variable with the Unix user of its container; "": the user of all containers. ``metrics``:
    imports the service and returns what it counts. ``own_process``: of two processes of `admit up`,
    one is for this service. ``requests``: for `WithUp.ON_DEMAND`, the
    subjects of the requests with which its process begins.
    """

    name: str
    load: Callable[[], Run]
    role: str
    probe: str = ""
    streams: Streams = Streams.CREATES
    consumers: LogConsumers = LogConsumers.NONE
    runs_jobs: bool = False
    check: Callable[..., Awaitable[None]] = _nothing_to_check
    only_observes: bool = False
    if_missing: str = ""
    with_up: WithUp = WithUp.ALWAYS
    asked: Callable[[Mapping[str, str]], Asked] = _never_asked
    provisioning_class: Callable[[Mapping[str, str]], str] | None = None
    unix_user: str = ""
    metrics: Callable[[], Sequence[Definition]] = _no_metrics
    requests: tuple[str, ...] = ()
    own_process: bool = False

    @property
    def package(self) -> str:
        """The package of the service; ``python -m <package>`` runs it alone."""
        return self.load.__module__

    @property
    def ends_in_time(self) -> bool:
        """Whether the service ends within a few seconds after the stop signal, whatever it does."""
        return not self.runs_jobs
