"""The conformance kit for providers: runs all test cases against one provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from admittance.conformance.kit import FAILED, PASSED, Attempt, run_kit
from admittance.conformance.program import OwnServer
from admittance.conformance.provider_cases import (
    CASES,
    TITLES,
    ProviderKitOptions,
    ProviderKitReport,
)
from admittance.conformance.provider_request_cases import (
    CancellationCases,
    FailureCases,
    RequestCases,
)
from admittance.conformance.provider_requester import (
    CapacityRequestKey,
    ProviderRequester,
)
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus


async def run_provider_kit(
    bus: Bus,
    url: str,
    options: ProviderKitOptions,
    *,
    on_case: Callable[[str], None],
    on_ready: Callable[[], None],
    server: OwnServer | None = None,
) -> ProviderKitReport:
    """Tests one provider on this bus. ``server``: the NATS server, if it was started for this test,
    so that the test may restart the server; else None. ``on_case`` and ``on_ready`` are called as
    in `run_kit`. Raises the exceptions of `run_kit`.
    """
    requester = ProviderRequester(bus, options.provisioning_class, options.shape)

    restart = partial(server.restart, bus) if server is not None else None
    kit_of = partial(ProviderKit, requester, options, restart)
    result = await run_kit(
        CASES, requester, kit_of, options, url, on_case=on_case, on_ready=on_ready
    )
    return ProviderKitReport(provisioning_class=options.provisioning_class, **result._asdict())


class ProviderKit(RequestCases, CancellationCases, FailureCases):
    """All test cases for one provider. Each test case cancels its capacity requests, so that the
    next test case finds all capacity of the provider free.
    """

    async def _first_request(self, number: int) -> CapacityRequestKey:
        [request] = await self._requester.send("answers.1", attempt=1 + number)
        return request

    def _cases(self) -> Mapping[str, Attempt]:
        cases = {**self._request_cases(), **self._cancellation_cases(), **self._failure_cases()}
        return {case: self._with_clearing(cases[case]) for case in TITLES if case in cases}

    async def _answers(self) -> bool:
        if not await self._first_answer():
            return False
        # The provider's answer time is measured with a second request, because the provider may
        # still have been starting when the first request was sent.
        await self._clear()
        began = clock.monotonic()
        [request] = await self._requester.send("answers.2")
        if not await self._until_final(request):
            if words := self._requester.words(request):
                why = (
                    f"sent {words[-1]}, but no final status within {self._timeout:g} s: "
                    "use a longer --timeout"
                )
            else:
                why = "it answered the first request, but not the second"
            self._record("answers", FAILED, why)
            return False
        self._answer_seconds = clock.monotonic() - began
        self.usual = self._final_word(request)
        await self._clear()
        self._record("answers", PASSED)
        return True
