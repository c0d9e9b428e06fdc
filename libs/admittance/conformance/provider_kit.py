"""The conformance kit for providers: runs all test cases against one provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from admittance.conformance.kit import FAILED, PASSED, Attempt, KitOptions, run_kit
from admittance.conformance.program import OwnServer, ProgramProcess
from admittance.conformance.provider_cases import (
    CASES,
    TITLES,
    ProviderKitReport,
    ProviderUnderTest,
)
from admittance.conformance.provider_request_cases import (
    CancellationCases,
    FailureCases,
    RequestCases,
)
from admittance.conformance.provider_requester import (
    CapacityRequestKey,
    ProviderRequester,
    RequestShape,
)
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus


class ProviderKitOptions(KitOptions, frozen=True, kw_only=True):
    """Options of the kit for providers. ``shape``: the content of the capacity requests that the
    kit sends. ``room``: for how many requests of this shape the provider has capacity; 0 if
    unknown. ``wrong``: request parameters that the provider must refuse, if known.
    """

    provisioning_class: str
    shape: RequestShape
    room: int = 0
    wrong: Mapping[str, str] | None = None


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

    async def restart() -> None:
        if server is not None:
            await server.restart(bus)

    def kit_of(process: ProgramProcess | None, first_timeout: float) -> ProviderKit:
        return ProviderKit(
            requester,
            ProviderUnderTest(
                process, restart if server is not None else None, options.room, options.wrong
            ),
            timeout=options.timeout,
            first_timeout=first_timeout,
            only=options.only,
        )

    found = await run_kit(
        CASES, requester, kit_of, options, url, on_case=on_case, on_ready=on_ready
    )
    return ProviderKitReport(provisioning_class=options.provisioning_class, **found._asdict())


class ProviderKit(RequestCases, CancellationCases, FailureCases):
    """All test cases for one provider. Each test case cancels its capacity requests, so that the
    next test case finds all capacity of the provider free.
    """

    async def _first_request(self, number: int) -> CapacityRequestKey:
        [request] = await self._requester.send("answers.1", attempt=1 + number)
        return request

    def _cases(self) -> Mapping[str, Attempt]:
        found = {**self._request_cases(), **self._cancellation_cases(), **self._failure_cases()}
        return {case: self._with_clearing(found[case]) for case in TITLES if case in found}

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
