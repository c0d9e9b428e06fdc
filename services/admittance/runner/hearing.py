"""What a runner makes of facts: whose an admission is, whether it stands, who answers an eviction.

Each is a function of the shell; what they ask of the bus is asked until it answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

from admittance.events.facts import Admitted, Evicted, Stopped
from admittance.runner import decide
from admittance.runner.claims import State
from admittance.runner.decide import NODE_FAILURES
from admittance.runner.folder import run_key
from admittance.runner.other_folders import ended
from admittance.runner.shell import Shell
from admittance.runner.world import Standing

log = structlog.get_logger(service="runner")


async def admit(shell: Shell, facts: Sequence[tuple[Admitted, str]]) -> None:
    """Claims the admissions and begins those that are ours and still stand.

    When it returns, what is ours is in the data folder. Each comes with its trace.
    """
    new: dict[str, Admitted] = {}
    for fact, trace in facts:
        if not shell.knows(fact) and not shell.leaving:
            new[shell.begin(fact, trace)] = fact
    keys = list(new)
    if not keys:
        return
    claims = await shell.insist(lambda: shell.claims.take(keys))
    ours = []
    for key, claim in zip(keys, claims, strict=True):
        if claim.state is State.HELD and claim.runner == shell.folder.runner:
            ours.append(key)
            continue
        shell.happen(key, decide.NotOurs())
        of = new[key].namespace, new[key].name, new[key].revision
        if claim.state is State.EXPIRED:
            shell.keep(mourn(shell, *of), key)
        elif claim.state is State.OVER and claim.runner == shell.folder.runner:
            # We may have buried it and died before we said so.
            shell.keep(say_end(shell, *of), key)
    # Read after the claim was made: what was taken back before is not started any more.
    views = await shell.insist(
        lambda: shell.world.standings(
            [(new[key].namespace, new[key].name, new[key].revision) for key in ours]
        )
    )
    for key, view in zip(ours, views, strict=True):
        match view.standing:
            case Standing.OVER:
                log.info("admission_is_over", run=key)
                await shell.insist(lambda key=key: shell.claims.bury(key))  # type: ignore[misc]
                shell.happen(key, decide.NotOurs())
                continue
            case Standing.EVICTED:
                shell.happen(key, decide.Evicted(view.evicted))
        shell.happen(key, decide.Claimed())
    await shell.settled(keys)


async def evict(shell: Shell, fact: Evicted) -> None:
    """Stops the job; of what runs nowhere, says at once that it has stopped."""
    keys = decide.concerned(shell.runs, fact.namespace, fact.name, fact.revision)
    if any(shell.runs[key].evicted for key in keys):
        last = await shell.insist(lambda: shell.world.last_admitted(fact.namespace, fact.name))
        admitted = last[0].revision if last is not None else 0
        keys = decide.concerned(shell.runs, fact.namespace, fact.name, fact.revision, admitted)
    for key in keys:
        shell.happen(key, decide.Evicted(fact.revision))
    await shell.settled(keys)
    if not keys:
        await settle(shell, fact.namespace, fact.name, fact.uid, fact.revision)


async def settle(shell: Shell, namespace: str, name: str, uid: str, evicted: int) -> None:
    """An eviction of what does not run here.

    The claim decides who answers: burying it also keeps a slower runner from starting now.
    """
    found = await shell.insist(
        lambda: shell.world.last_admitted(namespace, name, lambda at: at < evicted)
    )
    if found is not None:
        key = run_key(namespace, name, found[0].revision)
        claim = await shell.insist(lambda: shell.claims.look(key))
        if claim.state is State.EXPIRED:
            shell.keep(mourn(shell, namespace, name, found[0].revision), key)
            return
        if not await shell.insist(lambda: shell.claims.bury(key)):
            return
    await shell.say(Stopped(namespace=namespace, name=name, uid=uid, revision=evicted))


async def mourn(shell: Shell, namespace: str, name: str, revision: int) -> None:
    """A claim has expired: the job is lost, unless its folder can be read and has its result. One
    runner says so."""
    key = run_key(namespace, name, revision)
    other = await shell.insist(lambda: shell.others.find(key))
    if other is not None:
        await ended(other)
    if await shell.insist(lambda: shell.claims.bury(key, dead_only=True)):
        await say_end(shell, namespace, name, revision)


async def say_end(shell: Shell, namespace: str, name: str, revision: int) -> None:
    """Says what became of a job whose claim ran out and that we have buried."""
    key = run_key(namespace, name, revision)
    other = await shell.insist(lambda: shell.others.find(key))
    if other is not None:
        other.folder.read_journal()
    if other is not None and other.folder.journal.is_result:
        log.info("result_found", run=key, folder=str(other.folder.path))
        await shell.say_result_of(other)
        return
    view = (await shell.insist(lambda: shell.world.standings([(namespace, name, revision)])))[0]
    lost = Stopped(
        namespace=namespace,
        name=name,
        uid=view.uid,
        revision=revision,
        reason=NODE_FAILURES,
        message="the runner of the job is gone",
    )
    match view.standing:
        case Standing.CURRENT:
            log.warning("job_lost", run=key)
            await shell.say(lost)
        case Standing.EVICTED:
            await shell.say(msgspec.structs.replace(lost, revision=view.evicted, reason=""))


async def consider(shell: Shell, namespace: str, name: str) -> None:
    """Takes on the workload's admission if it stands and its fact is on the log."""
    view = await shell.insist(lambda: shell.world.view(namespace, name))
    if view is None or view.standing is not Standing.CURRENT:
        return
    found = await shell.insist(
        lambda: shell.world.last_admitted(namespace, name, lambda at: at == view.revision)
    )
    if found is not None:
        await admit(shell, [found])
