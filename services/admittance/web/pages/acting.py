"""What a button leads to: the page after its action, or the page with the refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import RedirectResponse, Response

from admittance.client.errors import ClientError, NotAllowed, NotFound


async def acted(
    action: Awaitable[str], shown: Callable[[str, int], Awaitable[Response]]
) -> Response:
    """Awaits the action, which returns the page to go to. ``shown``: makes the page with a refusal
    and its HTTP status. Raises NotFound."""
    try:
        return RedirectResponse(await action, 303)
    except NotFound:
        raise
    except NotAllowed as error:
        return await shown(f"Not allowed: {error}", 403)
    except ClientError as error:
        return await shown(f"Refused: {error}", 409)
