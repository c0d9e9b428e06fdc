"""Roles of the account CORE: the services, and the program that makes backups."""

from __future__ import annotations

from typing import Final

from admittance.access.observer_roles import backup, forecast, server_watch
from admittance.access.parts import (
    ALIVE_KEYS,
    ANSWERS,
    ASK_HEALTH,
    CONNECT,
    HEALTH,
    JS,
    KV,
    KV_CLAIMS,
    KV_PROVIDERS,
    PROVIDER_FACTS,
    STREAMS,
    each,
    follow,
    inbox,
    micro_endpoints,
    own_durable,
    read_stream,
    rules,
    stream_info,
)
from admittance.access.permissions import Permissions, Rule
from admittance.access.role import Account, Names, Role
from admittance.access.users import User
from admittance.api.budgets import BUDGET_CONTROLLER
from admittance.api.checks import MACHINES_CHECK, MACHINES_CONTROLLER
from admittance.api.kinds import KINDS
from admittance.events import subjects
from admittance.events.files import FILES
from admittance.events.names import service_name, token
from admittance.events.requests.past import ABOUT, THEN
from admittance.events.stored.machines import OF_RUNNERS
from admittance.lease import service_domain

LOG: Final = subjects.STREAM
LISTENS: Final = (
    *HEALTH,
    *rules("see which instance leads", f"{subjects.EPOCH}*"),
)


def _leader_elected(service: str, *, epochs: tuple[str, ...]) -> tuple[Rule, ...]:
    return (
        *CONNECT,
        *stream_info(STREAMS),
        *rules("read the stored objects", *follow(KV)),
        *rules("see which instances are alive", *follow(KV_CLAIMS)),
        *rules("read the last epoch", f"{JS}.STREAM.MSG.GET.{LOG}"),
        *rules(
            "say that it is alive",
            f"{ALIVE_KEYS}.{service}.*",
            f"{subjects.ALIVE_INSTANCE}{service}.*",
        ),
        *rules("become leader", *epochs),
        *ASK_HEALTH,
        *ANSWERS,
    )


def _listens(user: User, service: str) -> tuple[Rule, ...]:
    return (
        *inbox(user),
        *LISTENS,
        *rules("be found by its instance", f"{subjects.ALIVE_INSTANCE}{service}.*"),
        *micro_endpoints(service),
    )


def _own_epoch(service: str, part: str = "") -> tuple[str, ...]:
    return (f"{subjects.EPOCH}{token(service_domain(service, part))}",)


CONSUMERS_OF_LOG: Final = rules(
    "keep the consumers of the log",
    *each(f"{JS}.CONSUMER.{{}}.{LOG}.*", ("INFO", "CREATE", "DELETE", "MSG.NEXT")),
    f"{JS}.CONSUMER.LIST.{LOG}",
    f"$JS.ACK.{LOG}.*.>",
)
SECRET: Final = f"$KV.{subjects.CLAIMS}._admittance.secret"
READ_SECRET: Final = rules("read the secret of message ids", f"{JS}.STREAM.MSG.GET.{KV_CLAIMS}")
READ_BUCKET: Final = rules("read a stored object", f"{JS}.STREAM.MSG.GET.{KV}")


CONTROLLER_QUESTIONS: Final = ("apply", "delete", "events", "settled", "objects", "usage")
"""Requests that the workload-controller answers, about one namespace or about all."""


def workload_controller(user: User) -> Permissions:
    """The permissions of the workload-controller, which applies facts and writes workloads."""
    service = "workload-controller"
    said = ("requested", "withdrawn")
    outputs = sorted(subjects.OUTPUTS)
    publish = (
        *_leader_elected(service, epochs=_own_epoch(service)),
        *CONSUMERS_OF_LOG,
        *READ_BUCKET,
        *rules(
            "make the consumers of runners",
            f"{JS}.CONSUMER.INFO.{KV_CLAIMS}.*",
            f"{JS}.CONSUMER.CREATE.{KV_CLAIMS}.*",
            f"{JS}.CONSUMER.DELETE.{KV_CLAIMS}.*",
        ),
        *rules("answer for stored objects", f"{JS}.DIRECT.GET.{KV}"),
        *rules(
            "create the streams",
            *each(f"{JS}.STREAM.CREATE.{{}}", STREAMS),
            *each(f"{JS}.STREAM.UPDATE.{{}}", STREAMS),
            f"{JS}.STREAM.DELETE.{subjects.HISTORY}",
        ),
        *rules("write workloads, objects and barriers", f"$KV.{subjects.BUCKET}.>"),
        *READ_SECRET,
        *rules("keep the secret of message ids", SECRET),
        *rules(
            "forget runners that are gone",
            *each(f"$KV.{subjects.CLAIMS}.{{}}.*", (subjects.ANNOUNCED_RUNNERS, *OF_RUNNERS)),
        ),
        *rules(
            "keep the history for replays",
            "admit.checkpoint.>",
            f"{JS}.STREAM.MSG.GET.{subjects.CHECKPOINTS}",
            f"{JS}.STREAM.PURGE.{subjects.CHECKPOINTS}",
            f"{JS}.DIRECT.GET.{subjects.CHECKPOINTS}",
            f"{JS}.DIRECT.GET.{LOG}",
        ),
        *rules(
            "sum the usage of quota",
            f"{subjects.SUMMARY}*.*.*.*",
            subjects.USAGE_POSITION,
            f"{JS}.STREAM.MSG.GET.{subjects.SUMMARIES}",
            f"{JS}.DIRECT.GET.{subjects.SUMMARIES}",
        ),
        *rules("keep the log below its bound", f"{JS}.STREAM.PURGE.{LOG}"),
        *rules(
            "keep the files of jobs",
            *each(f"{JS}.STREAM.{{}}.{FILES}", ("CREATE", "INFO", "PURGE", "MSG.GET")),
        ),
        *rules("log changed objects", f"{subjects.OBJECTS}*.*.*.*"),
        *rules("ask checks", *each("admit.check.{}.*.*.*", said)),
        *rules("log what it decided", *each("admit.workload.{}.*.*", outputs)),
        *rules("log what people did", f"{subjects.USER_FACTS}*.*.*.*"),
        *rules("set messages aside", f"{subjects.DEADLETTER}{service}"),
    )
    subscribe = (
        *_listens(user, service),
        *rules("receive heartbeats of checks", f"{subjects.ALIVE_CHECK}*"),
        *rules(
            "answer requests",
            *each("admit.api.{}", CONTROLLER_QUESTIONS),
            *each("admit.api.{}.*", CONTROLLER_QUESTIONS),
            "admit.api.files.*",
            "admit.api.runners",
            "admit.api.runners.*",
            *each(f"{subjects.RUNNER_CONSUMER}{{}}", ("*", "*.*")),
            subjects.TELEMETRY_CONSUMER,
        ),
        *rules(
            "receive requests of people",
            f"{subjects.USER_REQUESTS}>",
            f"{subjects.OWNER_REQUESTS}>",
        ),
    )
    return Permissions(publish, subscribe)


def scheduler(user: User) -> Permissions:
    """The permissions of the scheduler, which takes heads of queues and publishes decisions."""
    service = "scheduler"
    decisions = sorted(subjects.FENCED)
    publish = (
        *_leader_elected(service, epochs=(f"{subjects.EPOCH}*", f"{subjects.BARRIER}*")),
        *rules("store usage", f"$KV.{subjects.BUCKET}.{subjects.USAGE}.*.*"),
        *rules("log its decisions", *each("admit.workload.{}.*.*", decisions)),
        *rules("decide logged decisions again", *read_stream(LOG, subjects.CHECKPOINTS)),
        *rules("say that quota or queues of a domain changed", f"{subjects.CHANGED}*"),
        *rules("show the past", *read_stream(subjects.HISTORY, KV)),
    )
    about = ("pending", "queues", "replay", "simulate", *(f"{THEN}{what}" for what in ABOUT))
    subscribe = (
        *_listens(user, service),
        *rules(
            "answer requests",
            *each("admit.api.{}", about),
            *each("admit.api.{}.*", (*about, "explain", "fit")),
        ),
    )
    return Permissions(publish, subscribe)


def retry_timer(user: User) -> Permissions:
    """The permissions of the retry-timer, which keeps a schedule for each due time of a
    workload."""
    service = "retry-timer"
    timers = subjects.TIMERS
    publish = (
        *_leader_elected(service, epochs=_own_epoch(service)),
        *rules(
            "keep the schedules",
            f"{subjects.TIMER_AT}*.*.*",
            *follow(timers),
            f"{JS}.CONSUMER.DELETE.{timers}.*",
            f"{JS}.STREAM.PURGE.{timers}",
        ),
        *rules("ask whether a fact is applied", "admit.api.settled"),
    )
    subscribe = (*_listens(user, service), *rules("answer requests", "admit.api.timers"))
    return Permissions(publish, subscribe)


VARIANT_FACTS: Final = (
    "activated", "aggregated", "deactivated", "deleted", "reprioritized", "submitted", "ungated",
)  # fmt: skip


def variant_controller(user: User) -> Permissions:
    """The permissions of the variant-controller, which creates, activates and deactivates
    variants."""
    service = "variant-controller"
    publish = (
        *_leader_elected(service, epochs=_own_epoch(service)),
        *READ_BUCKET,
        *READ_SECRET,
        *rules("submit and change variants", *each("admit.workload.{}.*.*", VARIANT_FACTS)),
    )
    subscribe = (*_listens(user, service), *rules("answer requests", "admit.api.families"))
    return Permissions(publish, subscribe)


ARRAY_FACTS: Final = (
    "activated", "deactivated", "deleted", "dependencies_judged", "elements_counted", "finished",
    "released", "reprioritized", "submitted",
)  # fmt: skip


def array_controller(user: User) -> Permissions:
    """The permissions of the array-controller, which creates and counts the elements of arrays."""
    service = "array-controller"
    publish = (
        *_leader_elected(service, epochs=_own_epoch(service)),
        *READ_BUCKET,
        *READ_SECRET,
        *rules("submit and change elements", *each("admit.workload.{}.*.*", ARRAY_FACTS)),
    )
    subscribe = (*_listens(user, service), *rules("answer requests", "admit.api.arrays"))
    return Permissions(publish, subscribe)


def provisioning_check(user: User) -> Permissions:
    """The permissions of the provisioning check, which requests capacity from providers."""
    service = "provisioning-check"
    controller = token(subjects.PROVISIONING_CONTROLLER)
    asked = sorted(subjects.ASKED)
    publish = (
        *_leader_elected(service, epochs=_own_epoch(service)),
        *CONSUMERS_OF_LOG,
        *READ_BUCKET,
        *rules("report its check", f"admit.check.reported.{controller}.*.*"),
        *rules("say that it is alive", f"{subjects.ALIVE_CHECK}{controller}"),
        *rules("ask providers", *each("admit.provisioning.{}.*.*.*", asked)),
        *rules("ask providers for the status", "admit.api.provider.*"),
        *rules("store its requests", f"$KV.{subjects.BUCKET}.{subjects.CAPACITY}.*.*"),
        *rules("find requests with records that were deleted by hand", f"{JS}.DIRECT.GET.{LOG}"),
        *rules("store the statuses of providers outside", f"$KV.{subjects.PROVIDERS}.*.*"),
    )
    subscribe = (
        *_listens(user, service),
        *rules("receive withdrawals", f"admit.check.withdrawn.{controller}.*.*"),
        *rules("receive heartbeats of providers", f"{subjects.ALIVE_PROVISIONING}*"),
        *rules("answer requests", "admit.api.providers"),
        *rules("receive statuses of providers outside", f"{subjects.PROVIDER_STATUSES}*.*"),
    )
    return Permissions(publish, subscribe)


def placement(user: User) -> Permissions:
    """The permissions of placement, which stores what runners announce of their machines, and
    places workloads on them."""
    service = "placement"
    controller = token(MACHINES_CONTROLLER)
    domain = token(service_domain(service))
    publish = (
        *_leader_elected(service, epochs=_own_epoch(service)),
        *READ_BUCKET,
        *rules("publish its barrier", f"{subjects.BARRIER}{domain}"),
        *rules("report its check", f"admit.check.reported.{controller}.*.*"),
        *rules("say that its check is alive", f"{subjects.ALIVE_CHECK}{controller}"),
        *own_durable(subjects.check_durable(MACHINES_CONTROLLER), purpose="read its own requests"),
        *rules("store machines", f"$KV.{subjects.BUCKET}.{KINDS['Runner'].prefix}.*"),
        *rules("cover flavors", f"$KV.{subjects.BUCKET}.admissioncheck.{MACHINES_CHECK}"),
    )
    subscribe = (
        *_listens(user, service),
        *rules("answer requests", "admit.api.machines"),
        *rules("receive withdrawals", f"admit.check.withdrawn.{controller}.*.*"),
    )
    return Permissions(publish, subscribe)


def budget_controller(user: User) -> Permissions:
    """The permissions of the budget-controller, which sums used quota and reports its check."""
    service = "budget-controller"
    controller = token(BUDGET_CONTROLLER)
    publish = (
        *_leader_elected(service, epochs=_own_epoch(service)),
        *READ_BUCKET,
        *rules("publish its barrier", f"{subjects.BARRIER}{token(service_domain(service))}"),
        *rules("report its check", f"admit.check.reported.{controller}.*.*"),
        *rules("say that its check is alive", f"{subjects.ALIVE_CHECK}{controller}"),
        *own_durable(subjects.check_durable(BUDGET_CONTROLLER), purpose="read its own requests"),
        *rules(
            "sum the usage of quota",
            f"{JS}.STREAM.MSG.GET.{subjects.SUMMARIES}",
            *read_stream(LOG),
        ),
    )
    subscribe = (
        *_listens(user, service),
        *rules("answer requests", "admit.api.budgets", "admit.api.budgets.*"),
        *rules("receive withdrawals", f"admit.check.withdrawn.{controller}.*.*"),
    )
    return Permissions(publish, subscribe)


BUILT_IN_PROVIDERS: Final = (
    *("provider-pool", "provider-docker", "provider-aws", "provider-kubernetes"),
)
"""The services of Admittance that provide capacity, by their names."""
LED_PROVIDERS: Final = ("provider-pool", "provider-docker")
"""Those that elect one leader."""
PROVIDER_LED_BY_CLASS: Final = "provider-aws"
"""The one that elects a leader for each class: one account and region of EC2."""


def built_in_provider(user: User) -> Permissions:
    """The permissions of a provider service of Admittance, which elects a leader and keeps a ledger
    of bookings. Without a class the service provides all classes, as the pool provider does, and
    may read each consumer of the log.
    """
    name = token(user.class_name) if user.class_name else "*"
    durable = subjects.provider_durable(user.class_name) if user.class_name else "*"
    epochs = tuple(epoch for service in LED_PROVIDERS for epoch in _own_epoch(service))
    if user.class_name:
        epochs = (*epochs, *_own_epoch(PROVIDER_LED_BY_CLASS, user.class_name))
    listed = service_name(f"provider-{user.class_name}") if user.class_name else "*"
    ledger = f"$KV.{subjects.PROVIDERS}"
    publish = (
        *CONNECT,
        *stream_info(STREAMS),
        *rules("read the stored objects", *follow(KV)),
        *rules("see which instances are alive", *follow(KV_CLAIMS)),
        *rules("read the last epoch", f"{JS}.STREAM.MSG.GET.{LOG}"),
        *rules("become leader", *epochs),
        *rules(
            "say that it is alive",
            *each(f"{ALIVE_KEYS}.{{}}.*", BUILT_IN_PROVIDERS),
            *each(f"{subjects.ALIVE_INSTANCE}{{}}.*", BUILT_IN_PROVIDERS),
            f"{subjects.ALIVE_PROVISIONING}{name}",
        ),
        *rules(
            "keep its ledger",
            *follow(KV_PROVIDERS),
            f"{JS}.STREAM.MSG.GET.{KV_PROVIDERS}",
            f"{JS}.DIRECT.GET.{KV_PROVIDERS}.{ledger}.>",
            f"{ledger}.>",
        ),
        *own_durable(durable, purpose="read its own requests"),
        *rules(
            "report on capacity",
            *each("admit.provisioning.{}." + f"{name}.*.*", PROVIDER_FACTS),
        ),
        *ASK_HEALTH,
        *ANSWERS,
    )
    found_by = each(f"{subjects.ALIVE_INSTANCE}{{}}.*", BUILT_IN_PROVIDERS)
    subscribe = (
        *inbox(user),
        *LISTENS,
        *rules("be found by its instance", *found_by),
        *(endpoint for each_name in BUILT_IN_PROVIDERS for endpoint in micro_endpoints(each_name)),
        *micro_endpoints(listed),
        *rules(
            "receive requests and cancellations",
            *each("admit.provisioning.{}." + f"{name}.*.*", sorted(subjects.ASKED)),
        ),
        *rules("answer for the status of its requests", f"admit.api.provider.{name}"),
    )
    return Permissions(publish, subscribe)


SERVICE_ROLES: Final = (
    Role(
        "workload-controller",
        Account.CORE,
        "write workloads, manifests and their facts; keep streams and consumers",
        workload_controller,
    ),
    Role(
        "scheduler",
        Account.CORE,
        "publish decisions with epochs of all domains; store usage",
        scheduler,
    ),
    Role("retry-timer", Account.CORE, "keep the schedules", retry_timer),
    Role(
        "variant-controller",
        Account.CORE,
        "submit and change variants",
        variant_controller,
    ),
    Role(
        "array-controller",
        Account.CORE,
        "submit, change and count the elements of arrays",
        array_controller,
    ),
    Role(
        "provisioning-check",
        Account.CORE,
        "ask providers for capacity, report its own check",
        provisioning_check,
    ),
    Role("placement", Account.CORE, "store the machines that runners announce", placement),
    Role(
        "budget-controller", Account.CORE, "sum used quota, report its own check", budget_controller
    ),
    Role("forecast", Account.CORE, "read workloads, queues and the log, for forecasts", forecast),
    Role(
        "built-in-provider",
        Account.CORE,
        "provide capacity of one class, or of all, with a provider of Admittance",
        built_in_provider,
        takes=(Names.CLASS,),
    ),
    Role(
        "server-watch",
        Account.CORE,
        "see whether streams store messages, by probes",
        server_watch,
    ),
    Role("backup", Account.CORE, "read and restore whole streams", backup),
)
"""The roles of the account CORE."""
