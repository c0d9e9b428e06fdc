"""The options and programs by which runs limit, ask, kill and remove containers of an engine.
Pure."""

from __future__ import annotations

from typing import Final

from admittance.runner.plans.pod_limits import PodLimits

ENGINE_MEMORY_MIN: Final = 6 << 20
"""The smallest limit of memory that an engine accepts, in bytes."""
ENGINE_SHARES: Final = (2, 262_144)
"""The smallest and the largest weight that an engine accepts."""


def limit_words(limits: PodLimits) -> list[str]:
    """The options of ``docker run`` for the limits of a container."""
    options = []
    if limits.memory:
        # The same for memory and swap together: no swap.
        size = str(max(limits.memory, ENGINE_MEMORY_MIN))
        options += ["--memory", size, "--memory-swap", size]
    if limits.cpu:
        options += ["--cpus", f"{limits.cpu / 1000:g}"]
    if limits.share:
        shares = limits.share * 1024 // 1000
        options += ["--cpu-shares", str(min(max(shares, ENGINE_SHARES[0]), ENGINE_SHARES[1]))]
    return options


def probe_docker(docker: str, id_file: str) -> tuple[str, ...]:
    """The program that checks whether a container has ended while its docker client still waits for
    the container's removal. The program's status is 0 if the container has ended; 1 if the
    container runs or has not started yet, or if the engine does not answer.
    """
    script = (
        'cid=$(cat "$1" 2>/dev/null); [ -n "$cid" ] || exit 1; '
        'state=$("$0" container inspect --format "{{.State.Status}}" "$cid" 2>&1) || '
        'case $state in *[Nn]"o such"*) exit 0;; *) exit 1;; esac; '
        "case $state in exited|dead|removing) exit 0;; esac; exit 1"
    )
    return ("/bin/sh", "-c", script, docker, id_file)


def kill_docker(docker: str, id_file: str) -> tuple[str, ...]:
    """The program that removes one container at once."""
    script = 'cid=$(cat "$1" 2>/dev/null) && exec "$0" rm --force "$cid" >/dev/null 2>&1'
    return ("/bin/sh", "-c", script, docker, id_file)


def sweep_docker(docker: str, mark: str) -> tuple[str, ...]:
    """The program that removes every container of a run and waits for containers that the engine is
    removing already. The program's status is 1 if some containers are left."""
    script = (
        "for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "
        'ids=$("$0" ps --all --quiet --filter "label=admittance.run=$1") || exit 1; '
        '[ -z "$ids" ] && exit 0; '
        '"$0" rm --force $ids >/dev/null 2>&1 || sleep 0.2; '
        "done; exit 1"
    )
    return ("/bin/sh", "-c", script, docker, mark)


def oom_docker(docker: str, id_file: str) -> tuple[str, ...]:
    """The program that says by its status 0 that the kernel has killed a process of a container for
    want of memory. Its last argument, which the shim adds, is the time in seconds since 1970. An
    engine keeps its last events for a while, also those of removed containers."""
    script = (
        'cid=$(cat "$1" 2>/dev/null); [ -n "$cid" ] || exit 1; '
        'found=$("$0" events --since 1 --until "$2" --filter event=oom '
        '--filter "container=$cid" --format "{{.ID}}" 2>/dev/null); [ -n "$found" ]'
    )
    return ("/bin/sh", "-c", script, docker, id_file)
