"""The calls to EC2 through boto3, and the meaning of EC2's errors. The library boto3 reads its own
variables (AWS_*), files and roles. All calls to EC2 block until EC2 answers, and raise only
`Ec2Error`.

The meaning of an error follows from its code, not from the HTTP status, because EC2 reports missing
capacity with a 500. After an unknown error the request fails and may be tried again; a workload is
rejected only for errors that are certainly permanent.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from admittance.provider_aws.parameters import CLASS
from admittance.provider_aws.reservations import Reservation, reservation_of
from admittance.providers import Failed
from admittance.providers.builtin import REQUEST, ObjectSteps
from admittance.runtime.errors import SetupError

MESSAGE_MAX: Final = 500


class ErrorCause(enum.Enum):
    """The cause of an error that EC2 reports."""

    LACKING = "no capacity now, or the account's limit is reached"
    WRONG = "the request is not valid"
    FORBIDDEN = "the credentials do not allow the call"
    CREDENTIALS = "EC2 does not accept the credentials; requests are not at fault"
    LATER = "EC2 is busy or cannot be reached"
    UNCLEAR = "unknown"


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
    """The error that EC2 refused a call or did not answer. ``status``: the HTTP status of EC2's
    answer; 0 if EC2 did not answer.
    """

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(f"{code}: {message}"[:MESSAGE_MAX])
        self.code = code
        self.fault = fault_of(code, status)


STEPS: Final = ObjectSteps("provider-aws", (Ec2Error,))


def fault_of(code: str, status: int) -> ErrorCause:
    """The cause of an EC2 error with this code and HTTP status. Some groups of codes are recognised
    by a prefix or suffix.
    """
    for known, fault in (
        (_LACKING, ErrorCause.LACKING),
        (_WRONG, ErrorCause.WRONG),
        (_FORBIDDEN, ErrorCause.FORBIDDEN),
        (_CREDENTIALS, ErrorCause.CREDENTIALS),
        (_LATER, ErrorCause.LATER),
    ):
        if code in known:
            return fault
    if code.startswith("Insufficient") or code.endswith("LimitExceeded"):
        return ErrorCause.LACKING
    if code.startswith("Invalid"):
        return ErrorCause.WRONG
    return ErrorCause.LATER if status >= 500 else ErrorCause.UNCLEAR


def failed_answer(trouble: Ec2Error) -> Failed:
    """The answer to a request after EC2 refused the call with the error ``trouble``."""
    wrong = trouble.fault in (ErrorCause.WRONG, ErrorCause.FORBIDDEN)
    return Failed(str(trouble), retryable=not wrong)


CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 30
PAGE: Final = 1000
NEEDED: Final = "provider-aws needs the package boto3: pip install 'admittance[aws]'"
CONNECTIONS: Final = 32
_CREDENTIAL_ERRORS: Final = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
    "SSOTokenLoadError",
    "ProfileNotFound",
)


class Ec2:
    """The capacity reservations of one account and region. ``making`` and ``looking`` are separate
    boto3 clients for writes and reads, because EC2 throttles writes and reads separately, and a
    throttled client slows down all its calls.
    """

    def __init__(self, making: Any, looking: Any, provisioning_class: str) -> None:
        self._making = making
        self._looking = looking
        self._class = provisioning_class

    @classmethod
    def connect(cls, provisioning_class: str) -> Ec2:
        """Makes the clients of EC2. Raises SetupError if boto3 is missing or has no region."""
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise SetupError(NEEDED) from None
        more: dict[str, Any] = {}
        if not os.environ.get("AWS_RETRY_MODE"):
            # An adaptive client slows down the calls of all its threads when EC2 throttles one
            # call.
            more["retries"] = {"mode": "adaptive"}
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            user_agent_extra="admittance",
            **more,
        )
        try:
            # A session of its own is made, because boto3's default session would keep its
            # credentials until the process ends.
            session = boto3.session.Session()
            making, looking = (session.client("ec2", config=config) for _ in range(2))
        except (BotoCoreError, ValueError) as error:
            raise SetupError(
                f"EC2: {error} (boto3 reads the region from AWS_DEFAULT_REGION)"
            ) from None
        return cls(making, looking, provisioning_class)

    def instance_type(self, name: str) -> Mapping[str, Any]:
        """Returns EC2's description of the instance type, from DescribeInstanceTypes."""
        answer = _call(self._looking.describe_instance_types, InstanceTypes=[name])
        for entry in answer.get("InstanceTypes", ()):
            if isinstance(entry, Mapping):
                return entry
        raise Ec2Error("InvalidInstanceType", f"there is no instance type {name}", 400)

    def create(self, arguments: Mapping[str, Any]) -> Reservation:
        """Makes a reservation, or returns the reservation that was made before with the same
        token.
        """
        answer = _call(self._making.create_capacity_reservation, **arguments)
        made = reservation_of(answer["CapacityReservation"])
        return made._replace(token=arguments["ClientToken"])

    def try_out(self, arguments: Mapping[str, Any]) -> None:
        """Calls EC2 as `create` does, but as a dry run, which makes no reservation. Raises Ec2Error
        if EC2 would not allow the reservation.
        """
        try:
            _call(self._looking.create_capacity_reservation, DryRun=True, **arguments)
        except Ec2Error as trouble:
            if trouble.code != "DryRunOperation":
                raise

    def cancel(self, reservation: str) -> None:
        """Cancels the reservation. If the reservation does not exist any more, nothing happens."""
        try:
            _call(self._making.cancel_capacity_reservation, CapacityReservationId=reservation)
        except Ec2Error as trouble:
            gone = ("InvalidCapacityReservation", "IncorrectState", "InvalidState")
            if not trouble.code.startswith(gone):
                raise

    def ours(self, token: str | None = None) -> list[Reservation]:
        """All reservations of the provisioning class, in any state; with ``token``, only the
        reservations of the request with this token.
        """
        name, value = (CLASS, self._class) if token is None else (REQUEST, token)
        filters = [{"Name": f"tag:{name}", "Values": [value]}]
        reservations: list[Reservation] = []
        more: dict[str, Any] = {}
        while True:
            answer = _call(
                self._looking.describe_capacity_reservations,
                Filters=filters,
                MaxResults=PAGE,
                **more,
            )
            reservations += map(reservation_of, answer.get("CapacityReservations", ()))
            next_ = answer.get("NextToken")
            if not next_:
                return reservations
            more = {"NextToken": next_}


def _call(function: Callable[..., Any], **arguments: Any) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    try:
        return function(**arguments)
    except ClientError as error:
        details = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        raise Ec2Error(details.get("Code", "Unknown"), details.get("Message", ""), status) from None
    except ParamValidationError as error:
        raise Ec2Error("InvalidParameterValue", str(error), 400) from None
    except BotoCoreError as error:
        no_credentials = type(error).__name__ in _CREDENTIAL_ERRORS
        raise Ec2Error("NoCredentials" if no_credentials else "Unreachable", str(error)) from None
