"""What EC2's refusals mean for whoever asked. Pure.

The code counts, not the HTTP status: that there is no capacity is said with a 500. What is not
known here fails, and may be tried again: a workload is rejected only for what surely does not mend.
"""

from __future__ import annotations

import enum
from typing import Final

from admittance.providers import Failed

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


class Trouble(Exception):
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


def failed(trouble: Trouble) -> Failed:
    """What is answered to a request that EC2 refused for good, or for now."""
    wrong = trouble.fault in (Fault.WRONG, Fault.FORBIDDEN)
    return Failed(str(trouble), retryable=not wrong)
