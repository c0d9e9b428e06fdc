"""The calls of EC2 that are made, through boto3, which reads its own variables, files and roles
(AWS_*). All of them block, and raise nothing but `Trouble`.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from admittance.provider_aws.parameters import CLASS
from admittance.provider_aws.reservations import Reservation, reservation_of
from admittance.providers import Failed
from admittance.providers.builtin import REQUEST
from admittance.runtime.errors import SetupError

MESSAGE_MAX: Final = 500


class Fault(enum.Enum):
    """Whose matter it is."""

    LACKING = "there is none now, or the account may have no more"
    WRONG = "what was asked can never be had"
    FORBIDDEN = "we may not do this for anybody who asks so"
    CREDENTIALS = "EC2 does not take us for somebody: nobody's request is at fault"
    LATER = "EC2 is busy, or out of reach"
    UNCLEAR = "we do not know"


_LACKING: Final = frozenset({"ReservationCapacityExceeded", "ResourceCountExceeded"})
_WRONG: Final = frozenset(
    {
        "MalformedQueryString",
        "MissingInput",
        "MissingParameter",
        "OperationNotPermitted",
        "UnknownParameter",
        "Unsupported",
        "UnsupportedHostConfiguration",
        "UnsupportedInstanceAttribute",
        "UnsupportedOperation",
        "UnsupportedTenancy",
        "ValidationError",
    }
)
_FORBIDDEN: Final = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
_CREDENTIALS: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "NoCredentials",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_LATER: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "InternalError",
        "InternalFailure",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeout",
        "ServerInternal",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "Unavailable",
        "Unreachable",
    }
)


class Ec2Error(Exception):
    """EC2 refused, or was not to be reached. ``status``: of HTTP; 0: there was no answer."""

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(f"{code}: {message}"[:MESSAGE_MAX])
        self.code = code
        self.fault = fault_of(code, status)


def fault_of(code: str, status: int) -> Fault:
    """What a code means. The names that EC2 forms by rule are known by the rule."""
    for known, fault in (
        (_LACKING, Fault.LACKING),
        (_WRONG, Fault.WRONG),
        (_FORBIDDEN, Fault.FORBIDDEN),
        (_CREDENTIALS, Fault.CREDENTIALS),
        (_LATER, Fault.LATER),
    ):
        if code in known:
            return fault
    if code.startswith("Insufficient") or code.endswith("LimitExceeded"):
        return Fault.LACKING
    if code.startswith("Invalid"):
        return Fault.WRONG
    return Fault.LATER if status >= 500 else Fault.UNCLEAR


def failed(trouble: Ec2Error) -> Failed:
    """What is answered to a request that EC2 refused for good, or for now."""
    wrong = trouble.fault in (Fault.WRONG, Fault.FORBIDDEN)
    return Failed(str(trouble), retryable=not wrong)


CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 30
PAGE: Final = 1000
NEEDED: Final = "provider-aws needs the package boto3: pip install 'admittance[aws]'"
CONNECTIONS: Final = 32
_NO_CREDENTIALS: Final = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
    "SSOTokenLoadError",
    "ProfileNotFound",
)


class Ec2:
    """Capacity reservations of one account and region. ``making`` and ``looking``: clients, each of
    which slows down when EC2 throttles it; EC2 counts what changes something apart, too."""

    def __init__(self, making: Any, looking: Any, provisioning_class: str) -> None:
        self._making = making
        self._looking = looking
        self._class = provisioning_class

    @classmethod
    def connect(cls, provisioning_class: str) -> Ec2:
        """Raises SetupError when boto3 is missing, or does not know which region to ask."""
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise SetupError(NEEDED) from None
        more: dict[str, Any] = {}
        if not os.environ.get("AWS_RETRY_MODE"):
            # A client slows down by itself when EC2 throttles it, in all threads at once.
            more["retries"] = {"mode": "adaptive"}
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            user_agent_extra="admittance",
            **more,
        )
        try:
            # Not the session that a process has anyway: it keeps what it has found for ever.
            session = boto3.session.Session()
            making, looking = (session.client("ec2", config=config) for _ in range(2))
        except (BotoCoreError, ValueError) as error:
            raise SetupError(f"EC2: {error} (boto3 reads AWS_DEFAULT_REGION)") from None
        return cls(making, looking, provisioning_class)

    def instance_type(self, name: str) -> Mapping[str, Any]:
        """Its entry of DescribeInstanceTypes."""
        answer = _call(self._looking.describe_instance_types, InstanceTypes=[name])
        for entry in answer.get("InstanceTypes", ()):
            if isinstance(entry, Mapping):
                return entry
        raise Ec2Error("InvalidInstanceType", f"there is no instance type {name}", 400)

    def create(self, arguments: Mapping[str, Any]) -> Reservation:
        """Makes a reservation, or finds the one that was made with the same token."""
        answer = _call(self._making.create_capacity_reservation, **arguments)
        made = reservation_of(answer["CapacityReservation"])
        return made._replace(token=arguments["ClientToken"])

    def try_out(self, arguments: Mapping[str, Any]) -> None:
        """Whether we were let make such a reservation; makes none. Raises Trouble if not."""
        try:
            _call(self._looking.create_capacity_reservation, DryRun=True, **arguments)
        except Ec2Error as trouble:
            if trouble.code != "DryRunOperation":
                raise

    def cancel(self, reservation: str) -> None:
        """Cancels it. One that there is not, or no longer, is done."""
        try:
            _call(self._making.cancel_capacity_reservation, CapacityReservationId=reservation)
        except Ec2Error as trouble:
            gone = ("InvalidCapacityReservation", "IncorrectState", "InvalidState")
            if not trouble.code.startswith(gone):
                raise

    def ours(self, token: str | None = None) -> list[Reservation]:
        """All that are listed of our class, in whatever state, or those of one request."""
        name, value = (CLASS, self._class) if token is None else (REQUEST, token)
        filters = [{"Name": f"tag:{name}", "Values": [value]}]
        found: list[Reservation] = []
        more: dict[str, Any] = {}
        while True:
            answer = _call(
                self._looking.describe_capacity_reservations,
                Filters=filters,
                MaxResults=PAGE,
                **more,
            )
            found += map(reservation_of, answer.get("CapacityReservations", ()))
            next_ = answer.get("NextToken")
            if not next_:
                return found
            more = {"NextToken": next_}


def _call(function: Callable[..., Any], **arguments: Any) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    try:
        return function(**arguments)
    except ClientError as error:
        told = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        raise Ec2Error(told.get("Code", "Unknown"), told.get("Message", ""), status) from None
    except ParamValidationError as error:
        raise Ec2Error("InvalidParameterValue", str(error), 400) from None
    except BotoCoreError as error:
        lacks = type(error).__name__ in _NO_CREDENTIALS
        raise Ec2Error("NoCredentials" if lacks else "Unreachable", str(error)) from None
