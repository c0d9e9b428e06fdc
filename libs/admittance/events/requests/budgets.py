"""What budgets have used and may still use, which the budget-controller answers."""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.requests.base import Reply, Request


class Budgets(Request, frozen=True, kw_only=True):
    """``admit.api.budgets[.<ns>]``: what budgets have used in their windows, and what waits for
    them. For a namespace only what is the namespace's own: its account and those of its
    LocalQueues, and its workloads that wait. ClusterQueues and users may count what other
    namespaces use, so they have no accounts in that answer; a budget with neither is left out.

    ``budget``: only this one; "": all, a page of at most ``limit``, by name, after the name
    ``after``."""

    budget: str = ""
    after: str = ""
    limit: int = 20


class BudgetAccount(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A ClusterQueue, LocalQueue, Namespace or User; "": workloads without a user. ``used``: in the
    window up to now; ``ahead``: what its jobs may still use by their time limits; ``limit`` None:
    it has none. All in the unit of the budget, in hundredths."""

    name: str
    used: float = 0
    ahead: float = 0
    limit: float | None = None


class BudgetWait(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A workload that waits for the budget. ``until``: when it asks again; None: it waits for a
    verdict."""

    namespace: str
    name: str
    until: datetime | None = None


class BudgetState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One budget. ``per``, ``window``, ``unit``: those of its spec. ``checks``: the AdmissionChecks
    that name it; without one it limits nothing, and nothing is summed. ``window_begin``,
    ``window_end``: of the present window. ``accounts``: those that have used the greatest parts of
    their limits first, of ``accounts_total``. ``waiting``: the first workloads that wait, of
    ``waiting_total``."""

    budget: str
    per: str = ""
    window: str = ""
    unit: str = ""
    checks: tuple[str, ...] = ()
    window_begin: datetime | None = None
    window_end: datetime | None = None
    accounts: tuple[BudgetAccount, ...] = ()
    accounts_total: int = 0
    waiting: tuple[BudgetWait, ...] = ()
    waiting_total: int = 0


class BudgetsReply(Reply, frozen=True, kw_only=True):
    """``more``: there are budgets after the last one of this page."""

    budgets: tuple[BudgetState, ...] = ()
    more: bool = False
