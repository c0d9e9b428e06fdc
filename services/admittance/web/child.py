"""``python -m admittance.web.child``: the page of `admit up`, as a process that ends with it."""

from __future__ import annotations

import sys

from admittance.runtime.process.startup import end_at_once_on_signals


def main() -> int:
    """Serves the page until a stop signal. Reads a `PageStart` from the input."""
    end_at_once_on_signals()
    # After the signal handlers, because these imports take most of a second.
    import socket

    import msgspec
    import uvloop

    from admittance.runtime.errors import SetupError
    from admittance.runtime.nats.connection_options import ConnectionOptions
    from admittance.runtime.process.web_page import PageStart
    from admittance.runtime.telemetry import logs
    from admittance.web.server import serve

    given = msgspec.json.decode(sys.stdin.buffer.read(), type=PageStart)
    logs.configure("web", "", None)
    access = ConnectionOptions(**given.tls)  # type: ignore[arg-type]
    listens = socket.socket(fileno=given.socket)
    try:
        uvloop.run(
            serve(
                listens,
                given.nats,
                access,
                url=given.url,
                key=given.key,
                code=given.code,
                credentials=given.credentials,
            )
        )
    except SetupError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
