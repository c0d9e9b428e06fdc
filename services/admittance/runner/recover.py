"""The start of a runner: its data folder, then its claims, then the bucket.

Nothing is told by the log alone: a new runner on an old log would start what ended long ago. The
bucket says what stands, and facts are heard from a place in the log noted before it was read.
"""

from __future__ import annotations

import asyncio

import structlog

from admittance.events.names import BadToken, plain
from admittance.events.reading import number
from admittance.runner import decide
from admittance.runner.claims import State, read_claim
from admittance.runner.decide import Run, Stage
from admittance.runner.folder import run_key
from admittance.runner.hearing import consider, mourn, settle
from admittance.runner.shell import Shell
from admittance.runner.shim import boot_seconds
from admittance.runner.world import AT_ONCE, Standing, standing
from admittance.runtime.bus.bucket import Entry

log = structlog.get_logger(service="runner")


async def recover(shell: Shell) -> None:
    """Goes on with what an earlier runner of this folder had begun, and begins what nobody has."""
    _read_folder(shell)
    await _renew(shell)
    views = await shell.insist(shell.world.all_views)
    for key, run in list(shell.runs.items()):
        view = standing(views.get((run.namespace, run.name)), run.revision)
        if view.standing is Standing.EVICTED:
            shell.happen(key, decide.Evicted(view.evicted))
        elif view.standing is Standing.OVER and shell.folders[key].journal.outcome is None:
            # The eviction went by unheard; its revision is not known, and nobody waits for it.
            shell.happen(key, decide.Evicted(run.revision + 1))
    for key, found in list(shell.folders.items()):
        shell.report(key, found)
    await shell.look_after()
    waiting = []
    for (namespace, name), view in views.items():
        key = run_key(namespace, name, view.revision)
        if key in shell.runs or key in shell.closed:
            continue
        if view.standing is Standing.EVICTED:
            await settle(shell, namespace, name, view.uid, view.evicted)
        elif view.standing is Standing.CURRENT:
            waiting.append((namespace, name))
    for start in range(0, len(waiting), AT_ONCE):
        part = waiting[start : start + AT_ONCE]
        await asyncio.gather(*(consider(shell, namespace, name) for namespace, name in part))
    log.info("runner_recovered", runs=len(shell.runs), considered=len(waiting))


def _read_folder(shell: Shell) -> None:
    shell.given_back.update((found.identity.key, found) for found in shell.folder.given_back())
    for found in shell.folder.runs():
        identity = found.identity
        if found.is_closed():
            shell.closed[identity.key] = found
            continue
        found.read_journal()
        note = found.stop_note()
        shell.folders[identity.key] = found
        shell.runs[identity.key] = Run(
            namespace=identity.namespace,
            name=identity.name,
            uid=identity.uid,
            revision=identity.revision,
            # What had been said by then is said again: its message ids are the same.
            stage=Stage.STARTING if note is None else Stage.STOPPING,
            evicted=note.evicted if note else 0,
            leaving=note.leaving if note else False,
            claim_lost=note.claim_lost if note else False,
        )
        if note is not None:
            # It may have been noted and not sent.
            shell.launcher.stop(found)


async def _renew(shell: Shell) -> None:
    """Takes the claims of what may still run; whatever is another's by now has to stop."""
    keys = [key for key, found in shell.folders.items() if found.journal.outcome is None]
    began = boot_seconds()
    claims = await shell.insist(lambda: shell.claims.take(keys, again=True))
    for key, claim in zip(keys, claims, strict=True):
        if not (claim.state is State.HELD and claim.runner == shell.folder.runner):
            shell.happen(key, decide.ClaimLost())
    shell.folder.touch_lease(began)


async def heed_claims(shell: Shell, entries: list[Entry]) -> None:
    """What others did with claims: died, gave back, or took what we thought ours."""
    for entry in entries:
        namespace, _, rest = entry.key.partition(".")
        name, _, written = rest.partition(".")
        revision = number(written)
        if namespace == "_alive" or revision is None:
            continue
        claim = read_claim(entry)
        if claim.state is State.OVER or claim.runner == shell.folder.runner:
            continue
        if entry.key in shell.runs:
            if entry.revision > shell.claims.held.get(entry.key, entry.revision):
                shell.claims.held.pop(entry.key, None)
                shell.happen(entry.key, decide.ClaimLost())
            continue
        try:
            plain_namespace, plain_name = plain(namespace), plain(name)
        except BadToken:
            continue
        if claim.state is State.EXPIRED:
            # Beside the others: it may wait for a shim's end.
            shell.keep(mourn(shell, plain_namespace, plain_name, revision), entry.key)
        elif claim.state is State.FREE and not shell.leaving:
            await consider(shell, plain_namespace, plain_name)
