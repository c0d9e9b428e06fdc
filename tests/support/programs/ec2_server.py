"""EC2 for tests: moto's server as a process of its own, with what moto lacks.

moto has instance types, zones, tags and the protocol, but no capacity reservations: their three
calls are added to moto's EC2 here, as EC2's pages describe them. `TroubleMaker` stands before moto:
it refuses, throttles, delays and loses answers, and leaves the newest reservations out of lists.

`python -m support.programs.ec2_server PORT` serves; `Ec2Server` starts that process and tells it
which calls have to fail.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
REGION = "us-east-1"
ZONE = "us-east-1a"
CONTROL = "/_control/"
ERROR = (
    "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
    "<RequestID>0</RequestID></Response>"
)


class Ec2Server:
    """The process of moto, on a free port of loopback."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}"
        self._log = folder / "ec2.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, limit: float = 60.0) -> Ec2Server:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self.port)],
                cwd=Path(__file__).parents[2],  # as a script it would import `requests` from here
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + limit
        while True:
            try:
                self.control("calls")
                return self
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError(self._log.read_text()) from None
                time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def env(self) -> dict[str, str]:
        """The variables for boto3."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_MAX_ATTEMPTS": "2",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def control(self, what: str, **body: Any) -> Any:
        request = urllib.request.Request(
            f"{self.url}{CONTROL}{what}", json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def reset(self) -> None:
        """Resets the server: no reservations, no faults."""
        self.control("reset")

    def refuse(
        self, action: str, code: str, *, status: int = 400, times: int = 10**6, having: str = ""
    ) -> None:
        """Refuses the next ``times`` calls of the action; ``having``: only the calls that contain
        this text."""
        self.control("refuse", action=action, code=code, status=status, times=times, having=having)

    def allow(self) -> None:
        """Ends all refusals and delays."""
        self.control("allow")

    def hold(self, action: str) -> None:
        """Calls of action are done, but not answered until `allow`."""
        self.control("hold", action=action)

    def set(self, **how: Any) -> None:
        """``pending``: seconds until a new reservation is active; ``hidden``: until it is listed;
        ``capacity``: instances that there are, of all types."""
        self.control("set", **how)

    def becomes(self, reservation: str, **how: Any) -> None:
        """Changes a reservation without an API call: ``state``, ``total``."""
        self.control("becomes", id=reservation, **how)

    def reservations(self) -> list[dict[str, Any]]:
        """All reservations that were ever made."""
        reservations: list[dict[str, Any]] = self.control("reservations")
        return reservations

    def alive(self) -> list[dict[str, Any]]:
        """The reservations that cost something."""
        return [
            reservation
            for reservation in self.reservations()
            if reservation["state"] in ("active", "pending")
        ]

    def calls(self) -> Counter[str]:
        """How often each action was called."""
        return Counter(self.control("calls"))


# The server's side. ------------------------------------------------------------------------


class Reservations:
    """The reservations, and the behavior of EC2."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        with self.lock:
            self.made: dict[str, dict[str, Any]] = {}
            self.by_token: dict[str, tuple[str, str]] = {}
            self.refusals: list[dict[str, Any]] = []
            self.held: set[str] = set()
            self.calls: Counter[str] = Counter()
            self.how: dict[str, Any] = {"pending": 0.0, "hidden": 0.0, "capacity": 10**6}

    def now_is(self) -> None:
        for reservation in self.made.values():
            if reservation["state"] == "pending" and time.monotonic() >= reservation["active_at"]:
                reservation["state"] = "active"

    def control(self, what: str, body: dict[str, Any]) -> Any:
        with self.lock:
            self.now_is()
            match what:
                case "reset":
                    self.reset()
                case "refuse":
                    self.refusals.append(body)
                case "hold":
                    self.held.add(body["action"])
                case "allow":
                    self.refusals.clear()
                    self.held.clear()
                case "set":
                    self.how |= body
                case "becomes":
                    self.made[body.pop("id")] |= body
                case "reservations":
                    return list(self.made.values())
                case "calls":
                    return self.calls
            return {}

    def refusal(self, action: str, body: str) -> dict[str, Any] | None:
        with self.lock:
            self.calls[action] += 1
            for refusal in self.refusals:
                if (
                    refusal["action"] == action
                    and refusal["times"] > 0
                    and refusal["having"] in body
                ):
                    refusal["times"] -= 1
                    return refusal
        return None


class TroubleMaker:
    """Stands in front of moto's application."""

    def __init__(self, inner: Any, state: Reservations) -> None:
        self._inner = inner
        self._state = state

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        environ["wsgi.input"] = BytesIO(body)
        path = environ.get("PATH_INFO", "")
        if path.startswith(CONTROL):
            answer = self._state.control(path.removeprefix(CONTROL), json.loads(body or b"{}"))
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(answer, default=str).encode()]
        asked = urllib.parse.parse_qs(body.decode(errors="replace"))
        action = asked.get("Action", [""])[0]
        refusal = self._state.refusal(action, body.decode(errors="replace"))
        if refusal is None and asked.get("DryRun") == ["true"]:
            # As EC2 says it: nothing is done, and it would have been.
            refusal = {"status": 412, "code": "DryRunOperation"}
        if refusal is not None:
            start_response(f"{refusal['status']} No", [("Content-Type", "text/xml")])
            return [ERROR.format(code=refusal["code"], message="as the test wants it").encode()]
        answered = list(self._inner(environ, start_response))
        while action in self._state.held:
            time.sleep(0.01)
        return answered


def add_reservations(state: Reservations) -> None:
    """Gives moto's EC2 the three calls."""
    from moto.core.responses import ActionResult
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.responses import EC2Response
    from moto.ec2.utils import random_resource_id

    def described(reservation: dict[str, Any]) -> dict[str, Any]:
        return {
            "CapacityReservationId": reservation["id"],
            "InstanceType": reservation["type"],
            "InstancePlatform": reservation["platform"],
            "AvailabilityZone": reservation["zone"],
            "TotalInstanceCount": reservation["total"],
            "AvailableInstanceCount": reservation["total"],
            "State": reservation["state"],
            "EndDateType": "unlimited",
            "CreateDate": datetime.fromtimestamp(reservation["created"], UTC),
            "Tags": [{"Key": key, "Value": value} for key, value in reservation["tags"].items()],
        }

    def create_capacity_reservation(self: Any) -> ActionResult:
        wanted = {
            name: self._get_param(name)
            for name in ("InstanceType", "InstancePlatform", "InstanceCount", "AvailabilityZone")
        }
        for name, value in wanted.items():
            if not value:
                raise EC2ClientError("MissingParameter", f"The request must contain {name}")
        self.ec2_backend.describe_instance_types([wanted["InstanceType"]])
        zones = {zone.name for zone in self.ec2_backend.describe_availability_zones()}
        if wanted["AvailabilityZone"] not in zones:
            raise EC2ClientError("InvalidParameterValue", "Invalid availability zone")
        token, shape = self._get_param("ClientToken"), json.dumps(wanted, default=str)
        count = int(wanted["InstanceCount"])
        with state.lock:
            if token in state.by_token:
                known, before = state.by_token[token]
                if before != shape:
                    raise EC2ClientError("IdempotentParameterMismatch", "not as it was before")
                state.now_is()
                return ActionResult({"CapacityReservation": described(state.made[known])})
            alive = [
                reservation
                for reservation in state.made.values()
                if reservation["state"] in ("active", "pending")
            ]
            used = sum(reservation["total"] for reservation in alive)
            if used + count > state.how["capacity"]:
                raise EC2ClientError("InsufficientInstanceCapacity", "Insufficient capacity.")
            made = {
                "id": f"cr-{random_resource_id(17)}",
                "token": token,
                "type": wanted["InstanceType"],
                "platform": wanted["InstancePlatform"],
                "zone": wanted["AvailabilityZone"],
                "total": count,
                "state": "pending" if state.how["pending"] else "active",
                "created": time.time(),
                "active_at": time.monotonic() + state.how["pending"],
                "listed_at": time.monotonic() + state.how["hidden"],
                "tags": self._parse_tag_specification().get("capacity-reservation", {}),
            }
            state.made[made["id"]] = made
            state.by_token[token] = made["id"], shape
        return ActionResult({"CapacityReservation": described(made)})

    def describe_capacity_reservations(self: Any) -> ActionResult:
        filters = self._filters_from_querystring()
        with state.lock:
            state.now_is()
            matching = [
                described(reservation)
                for reservation in state.made.values()
                if time.monotonic() >= reservation["listed_at"]
                and all(
                    reservation["tags"].get(name.removeprefix("tag:")) in values
                    for name, values in filters.items()
                )
            ]
        return ActionResult({"CapacityReservations": matching})

    def cancel_capacity_reservation(self: Any) -> ActionResult:
        with state.lock:
            reservation = state.made.get(self._get_param("CapacityReservationId"))
            if reservation is None or time.monotonic() < reservation["listed_at"]:
                raise EC2ClientError("InvalidCapacityReservationId.NotFound", "no such one")
            reservation["state"] = "cancelled"
        return ActionResult({"Return": True})

    for call in (
        create_capacity_reservation,
        describe_capacity_reservations,
        cancel_capacity_reservation,
    ):
        setattr(EC2Response, call.__name__, call)


def main() -> None:
    """Serves at the port that is given as the argument."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    state = Reservations()
    add_reservations(state)
    moto = DomainDispatcherApplication(create_backend_app)
    with contextlib.suppress(KeyboardInterrupt):
        run_simple(
            HOST,
            int(sys.argv[1]),
            TroubleMaker(moto, state),
            threaded=True,
            request_handler=MotoRequestHandler,
        )


if __name__ == "__main__":
    main()
