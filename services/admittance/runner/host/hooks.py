"""The prolog and the epilog of this machine: which ones a run has, and the epilog of a run whose
shim has died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from admittance.events.facts import Admitted
from admittance.job_rules.hooks import JobHooks
from admittance.job_rules.options import own_unix_user
from admittance.job_rules.rules import UnixUser
from admittance.runner.decide import Ended
from admittance.runner.host.inherited import without_secrets
from admittance.runner.host.port import RunFiles
from admittance.runner.jobs.hooks import (
    KEPT_BYTES,
    KILL_SECONDS,
    SHELL,
    hook_env,
    problem_of,
)
from admittance.runner.jobs.pod_process import signal_group
from admittance.runner.plans.devices import units_of
from admittance.runner.plans.hook_plan import HookPlan, hook_plan
from admittance.runner.plans.run_plan import RunPlan


def hooks_of_run(
    hooks: JobHooks, admitted: Admitted, plan: RunPlan, runner: str, user: UnixUser | None
) -> HookPlan | None:
    """The hooks of a run of the runner with the id ``runner``. ``user``: the Unix user of its
    processes; None: that of the runner."""
    if not hooks.any:
        return None
    folders = (process.cwd for pods in plan.sets for process in (*pods.init, *pods.main))
    return hook_plan(
        hooks,
        admitted,
        user=user or own_unix_user(os.environ),
        units=units_of(admitted.pod_sets, runner),
        folder=next(filter(None, folders), ""),
        checkpoint=plan.checkpoint,
    )


async def run_epilog(run: RunFiles, end: Ended) -> str:
    """Runs the epilog of a run that has no shim; returns why it failed, or "". The epilog may have
    run before: the shim may have died in it."""
    hooks = run.identity.hooks
    if hooks is None or not hooks.epilog:
        return ""
    log = run.path / "epilog.log"
    own = {"ADMITTANCE_RESULT": end.kind, "ADMITTANCE_EXIT_CODE": end.exit_code}
    of_job = hook_env({"env": hooks.env}, run.identity.mark, "epilog", **own)
    try:
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(SHELL, "-c", hooks.epilog),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**without_secrets(os.environ), **of_job},
                cwd="/",
                start_new_session=True,
            )
    except OSError as error:
        return f"epilog failed: it cannot start: {error.strerror}"
    killed = False
    try:
        async with asyncio.timeout(hooks.seconds):
            await process.wait()
    except TimeoutError:
        killed = True
    finally:
        signal_group(process.pid, signal.SIGKILL)
    if killed:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS):
                await process.wait()
    said = await asyncio.to_thread(_end_of, log)
    return problem_of("epilog", process.returncode, killed, hooks.seconds, said)


def _end_of(log: Path) -> bytes:
    try:
        return log.read_bytes()[-KEPT_BYTES:]
    except OSError:
        return b""
