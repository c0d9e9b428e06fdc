"""Cases about what is asked: again, in another attempt, in words that it does or does not know."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from admittance.conformance import cases
from admittance.conformance.cases import Attempt
from admittance.conformance.providers.form import Asked, reply_faults
from admittance.conformance.providers.watched import Watched
from admittance.conformance.report import FAILED, NOT_APPLICABLE, PASSED
from admittance.runtime import clock


class Asking(Watched):
    """What it makes of requests."""

    def _of_asking(self) -> Mapping[str, Attempt]:
        return {
            "twice": self._twice,
            "attempt": self._attempt,
            "unknown-parameters": self._unknown_parameters,
            "wrong-parameters": self._wrong_parameters,
            "unknown-fields": self._unknown_fields,
            "deadline": self._deadline,
            "query": self._query,
        }

    async def _twice(self) -> None:
        [asked] = await self._stand.ask("twice.1")
        if not await self._ended(asked):
            self._put("twice", FAILED, f"no end within {self._timeout:g} s")
            return
        await self._stand.ask_again(asked)
        await self._heard_all()
        await self._quiet()
        why = self._contradiction(asked)
        self._put("twice", FAILED if why else PASSED, *([why] if why else []))

    async def _attempt(self) -> None:
        [first] = await self._stand.ask("attempt.1")
        await self._ended(first)
        await self._clear()
        [second] = await self._stand.ask("attempt.1", attempt=2)
        if await self._ended(second):
            self._put("attempt", PASSED)
        else:
            why = f"nothing about the request {second.id} within {self._timeout:g} s"
            self._put("attempt", FAILED, f"{why}, after one of an attempt before was taken back")

    async def _unknown_parameters(self) -> None:
        more = {**self._stand.shape.parameters, "providerTestUnknown": "x"}
        [asked] = await self._stand.ask("unknown-parameters.1", parameters=more)
        answered = await self._ended(asked)
        if not await self._goes_on("unknown-parameters", "such a request"):
            return
        if not answered:
            why = f"no answer to such a request within {self._timeout:g} s"
            self._put("unknown-parameters", FAILED, why)
        elif self.usual != "failed" and self._may_be_retried(asked):
            why = "failed, and did not say retryable: false; it will be asked the same again"
            self._put("unknown-parameters", FAILED, why)
        else:
            self._put("unknown-parameters", PASSED)

    async def _wrong_parameters(self) -> None:
        if self._way.wrong is None:
            why = "give it parameters that must fail: --wrong"
            self._put("wrong-parameters", NOT_APPLICABLE, why)
            return
        [asked] = await self._stand.ask("wrong-parameters.1", parameters=self._way.wrong)
        if not await self._ended(asked):
            why = f"no answer to such a request within {self._timeout:g} s"
            self._put("wrong-parameters", FAILED, why)
        elif self._end(asked) != "failed":
            self._put("wrong-parameters", FAILED, f"answered {self._end(asked)} to such a request")
        elif self._may_be_retried(asked):
            why = "failed, and did not say retryable: false; it will be asked the same again"
            self._put("wrong-parameters", FAILED, why)
        else:
            self._put("wrong-parameters", PASSED)

    def _may_be_retried(self, asked: Asked) -> bool:
        """It failed, and said no word of that being for good."""
        failed = [one.told for one in self._stand.about(asked) if one.told is not None]
        return any(one.word == "failed" and getattr(one.fact, "retryable", True) for one in failed)

    async def _unknown_fields(self) -> None:
        more = {"providerTestUnknown": {"a": [1, None, "x"]}}
        [asked] = await self._stand.ask("unknown-fields.1", more=more)
        answered = await self._ended(asked)
        if not await self._goes_on("unknown-fields", "such a request"):
            return
        if not answered:
            why = f"no answer to such a request within {self._timeout:g} s"
            self._put("unknown-fields", FAILED, why)
        elif self._end(asked) != self.usual:
            why = f"answered {self._end(asked)} to such a request, and {self.usual} to others"
            self._put("unknown-fields", FAILED, why)
        else:
            self._put("unknown-fields", PASSED)

    async def _deadline(self) -> None:
        past = clock.now() - timedelta(hours=1)
        [asked] = await self._stand.ask("deadline.1", more={"deadline": past})
        await self._heard_all(self._timeout)
        await self._quiet()
        if "provisioned" in self._stand.words(asked):
            why = "said provisioned an hour after the deadline: nobody waits for that any more"
            self._put("deadline", FAILED, why)
        elif await self._goes_on("deadline", "such a request"):
            self._put("deadline", PASSED)

    async def _query(self) -> None:
        unknown = await self._stand.query("provider-test/unknown/1/1")
        if unknown is None:
            why = "it answers no questions: what it was asked lies in its durable anyway"
            self._put("query", NOT_APPLICABLE, why)
            return
        found = reply_faults("provider-test/unknown/1/1", unknown, {""}, known=False)
        [asked] = await self._stand.ask("query.1")
        await self._ended(asked)
        await self._quiet()
        found += reply_faults(asked.id, await self._stand.query(asked.id), {self._end(asked)})
        await self._stand.cancel(asked, reason="Preempted")
        await self._heard_all()
        over = {"", "cancelled", "failed"}
        found += reply_faults(asked.id, await self._stand.query(asked.id), over)
        self._put("query", FAILED if found else PASSED, *found[: cases.DETAILS_MAX])
