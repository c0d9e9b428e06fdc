"""Which jobs the announced runners start, so that a submission that no runner starts is refused.
Pure."""

from __future__ import annotations

from admittance.events.system import RunnerStarts


def starts_job(rules: RunnerStarts, user: str, namespace: str) -> bool:
    """Whether the runner starts jobs of the user in the namespace. ``user`` "": the submitter is
    unknown."""
    named = user in rules.submitters if user else rules.unknown
    return named or namespace in rules.all_of or rules.every


class AnnouncedRunners:
    """The runners of a deployment, by name, as they announced themselves."""

    def __init__(self) -> None:
        self._known: dict[str, RunnerStarts | None] = {}

    def note(self, runner: str, starts: RunnerStarts | None) -> None:
        """Records an announcement. ``starts`` None: the runner starts all jobs."""
        self._known[runner] = starts

    def forget(self, runner: str) -> None:
        """Forgets a runner of which nothing was heard for days."""
        self._known.pop(runner, None)

    def refusal(self, user: str, namespace: str) -> str:
        """Why no runner starts a job of the user in the namespace, as a sentence; "": a runner
        starts it, or no runner of the namespace is known."""
        responsible = [
            starts
            for starts in self._known.values()
            if starts is None or not starts.namespaces or namespace in starts.namespaces
        ]
        if not responsible or any(
            starts is None or starts_job(starts, user, namespace) for starts in responsible
        ):
            return ""
        return (
            f"no runner has a Unix user for jobs of the user {user} in namespace {namespace}: an "
            f"admin names one with `admit auth run-as user:{user}=UNIX_USER`, or with the option "
            "--run-as of the runner"
        )
