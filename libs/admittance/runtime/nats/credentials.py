"""Reads the files of `ConnectionOptions`: credentials, passwords, tokens, certificates.

Every error is an AccessDenied with one line: a service retries until the file is right.
"""

from __future__ import annotations

import binascii
import re
import ssl
import stat
from base64 import b32decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime
from os import fstat, geteuid
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from admittance.runtime import clock
from admittance.runtime.errors import AccessDenied
from admittance.runtime.nats.connection_options import OPTIONS, VARIABLES, ConnectionOptions

BYTES_MAX: Final = 1 << 20
"""The most bytes of a credentials file, a password file or a token file."""
_JWT: Final = re.compile(r"^[\w-]+\.([\w-]+)\.[\w-]+$", re.ASCII | re.MULTILINE)
_SEED: Final = re.compile(r"^S[A-Z2-7]{57}$", re.MULTILINE)
_INBOX_PREFIX: Final = re.compile(r"^# inbox prefix: (_INBOX\.[\w=-]+)$", re.ASCII | re.MULTILINE)
_USER: Final = re.compile(r"^# user: (.+)$", re.MULTILINE)
_NAMESPACES: Final = re.compile(r"^# namespaces: (.+)$", re.MULTILINE)
_ROLE: Final = re.compile(r"^# role: (.+)$", re.MULTILINE)
_KINDS: Final = {"SA": "an account", "SO": "an operator", "SN": "a server", "SX": "a curve key"}


class JwtClaims(msgspec.Struct, frozen=True):
    """The claims of a user's JWT about its validity, in seconds since 1970; 0: no limit."""

    name: str = ""
    sub: str = ""
    exp: int = 0
    nbf: int = 0
    iat: int = 0


class UserKey(NamedTuple):
    """The credentials of a user. ``jwt`` and ``claims`` None: a plain NKey. ``public``: the public
    key. ``sign``: returns the signature of a nonce in the server's format. ``inbox``: the prefix of
    the subjects on which the user may receive answers. ``user``: the name that the file gives the
    user; "": no name. ``role``: the role that the file gives the user; "": none. ``namespaces``:
    those that the file gives the user."""

    public: str
    jwt: str | None
    claims: JwtClaims | None
    sign: Callable[[str], bytes]
    inbox: str = "_INBOX"
    user: str = ""
    role: str = ""
    namespaces: tuple[str, ...] = ()


def read_user_key(path: str) -> UserKey:
    """The credentials in a file: a JWT with its seed, or an NKey seed alone. Raises AccessDenied
    for a file that is missing, wrong, or open to other users."""
    text = read_secret(path, "credentials file", holds=_SEED)
    return user_key_in(text, f"the credentials file {path}", "the file")


def user_key_of(options: ConnectionOptions) -> UserKey | None:
    """The credentials that the options name; None if they name none. Raises AccessDenied."""
    if options.creds_text:
        return user_key_in(options.creds_text)
    return read_user_key(options.creds) if options.creds else None


def user_key_in(text: str, what: str = "the credentials", which: str = "the text") -> UserKey:
    """The credentials in a text, as in a file. ``what``, ``which``: the text in the sentences of
    errors. Raises AccessDenied for a text without credentials."""
    # `nkeys` is imported late, so that commands without an NKey do not spend the time.
    import nkeys

    wrong = f"{what} is not valid"
    seed = _SEED.search(text)
    match = _JWT.search(text)
    if seed is None:
        holds = "a JWT but no seed" if match else "neither a user's JWT with its seed nor a seed"
        raise AccessDenied(f"{wrong}: {which} has {holds}; get a new file")
    kind = seed[0][:2]
    if kind != "SU":
        raise AccessDenied(f"{wrong}: its seed is of {_KINDS.get(kind, 'another')}, not of a user")
    try:
        _check_sum(seed[0])
        pair = nkeys.from_seed(bytearray(seed[0].encode()))
        public = pair.public_key.decode()
    except Exception:
        # The text of an exception of `nkeys` may quote the seed, so the text is not shown.
        raise AccessDenied(f"{wrong}: its seed is damaged; get a new file") from None

    def sign(nonce: str) -> bytes:
        return urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=")

    named = _INBOX_PREFIX.search(text)
    inbox = named[1] if named else "_INBOX"
    written = _USER.search(text)
    user = written[1].strip() if written else ""
    role = written[1].strip() if (written := _ROLE.search(text)) else ""
    spaces = tuple(written[1].split()) if (written := _NAMESPACES.search(text)) else ()
    if match is None:
        return UserKey(public, None, None, sign, inbox, user, role, spaces)
    if (claims := claims_of(match[0])) is None:
        raise AccessDenied(f"{wrong}: its JWT is damaged; get a new file")
    if claims.sub != public:
        raise AccessDenied(f"{wrong}: its seed does not belong to its JWT; get a new file")
    return UserKey(public, match[0], claims, sign, inbox, user, role, spaces)


def jwt_in(text: str) -> str:
    """The JWT in a text; "": there is none."""
    match = _JWT.search(text)
    return match[0] if match else ""


def has_seed(text: str) -> bool:
    """Whether the text has a seed, and so is a secret."""
    return _SEED.search(text) is not None


def claims_of(jwt: str) -> JwtClaims | None:
    """The claims of a user's JWT; None if it is damaged."""
    match = _JWT.search(jwt)
    if match is None:
        return None
    try:
        padded = match[1] + "=" * (-len(match[1]) % 4)
        return msgspec.json.decode(urlsafe_b64decode(padded), type=JwtClaims)
    except (msgspec.MsgspecError, ValueError):
        return None


def _check_sum(seed: str) -> None:
    """Raises ValueError if the seed's checksum, its last two bytes, is wrong: `nkeys` does not
    check it."""
    raw = b32decode(seed + "=" * (-len(seed) % 8))
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("the seed has a wrong checksum")


def why_refused(path: str, at: str, said: str, *, takes_keys: bool) -> str:
    """A sentence: why the nats-server at address ``at`` refuses the credentials in a file, and what
    a person must do. ``said``: the server's own text. ``takes_keys``: whether the server asked for
    a signature.
    """
    try:
        key = read_user_key(path)
    except AccessDenied as error:
        return str(error)
    claims = key.claims
    now = clock.now().timestamp()
    these = f"the credentials in {path}"
    if claims is not None and claims.name.isprintable() and claims.name:
        these += f" (user {claims.name})"
    if claims is not None and (0 < claims.exp <= now or "expired" in said):
        return f"{at} refuses {these}: they expired at {_moment(claims.exp)}; get a new file"
    if claims is not None and max(claims.nbf, claims.iat) > now:
        since = _moment(max(claims.nbf, claims.iat))
        return (
            f"{at} refuses {these}: they are valid from {since}, and the clock of this machine "
            f"says {_moment(now)}: check the clocks"
        )
    if "revoked" in said:
        return f"{at} refuses {these}: they were revoked; get a new file"
    if not takes_keys:
        return f"{at} refuses {these}: it takes no NKeys; give user and password, or a token"
    return (
        f"{at} refuses {these}: the server does not know them, or they were revoked; "
        "check the address, or get a new file"
    )


def _moment(seconds: float) -> str:
    if not seconds:
        return "an unknown time"
    at = datetime.fromtimestamp(seconds, tz=clock.now().tzinfo)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def read_secret(path: str, what: str, *, holds: re.Pattern[str] | None = None) -> str:
    """The text of a file that only its owner may read. ``what``: the file's name for people.
    ``holds``: what the secret looks like; a file without it is not secret, so other users may read
    it. Raises AccessDenied. A file of root may be readable by its group, as a mounted secret is."""
    try:
        with Path(path).open("rb") as file:
            status = fstat(file.fileno())
            data = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        raise AccessDenied(f"{what} {path} not found") from None
    except IsADirectoryError:
        raise AccessDenied(
            f"the {what} {path} is a folder, as docker makes in place of a missing secret: make "
            "the file, then make the container anew"
        ) from None
    except PermissionError:
        raise AccessDenied(
            f"cannot read the {what} {path}: Unix user {geteuid()} has no right to: make it the "
            "owner"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not the name of a file"
        raise AccessDenied(f"cannot read the {what} {path}: {reason}") from None
    closed = stat.S_IRWXO if status.st_uid == 0 else stat.S_IRWXO | stat.S_IRWXG
    is_secret = holds is None or holds.search(data.decode(errors="replace")) is not None
    if is_secret and stat.S_ISREG(status.st_mode) and status.st_mode & closed:
        raise AccessDenied(f"other users may read the {what} {path}: run `chmod 600 {path}`")
    if len(data) > BYTES_MAX:
        raise AccessDenied(f"the {what} {path} is not valid: it is longer than {BYTES_MAX:,} bytes")
    try:
        return data.decode().strip().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise AccessDenied(f"the {what} {path} is not valid: it is not text") from None


def password_of(options: ConnectionOptions) -> str | None:
    """The password of the login, read from the password file if the options name one. Raises
    AccessDenied."""
    if options.password_file:
        return read_secret(options.password_file, "password file")
    return options.password


def token_of(options: ConnectionOptions) -> str | None:
    """The token of the login, read from the token file if the options name one. Raises
    AccessDenied."""
    return read_secret(options.token_file, "token file") if options.token_file else options.token


def tls_context(options: ConnectionOptions) -> ssl.SSLContext:
    """The TLS settings of a connection. Raises AccessDenied for a file that is missing or wrong,
    or a key that other users may read."""
    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
    except ssl.SSLError:
        raise AccessDenied(
            f"the CA file {options.tls_ca} has no certificate in PEM format: "
            f"check {_named('tls_ca')}"
        ) from None
    except OSError as error:
        raise _unreadable("CA file", options.tls_ca, error) from None
    cert, key = options.tls_cert, options.tls_key
    if cert is None:
        return context
    read_secret(key or cert, "key file")
    try:
        Path(cert).read_bytes()
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise AccessDenied(f"the key {key} does not belong to the certificate {cert}") from None
        raise AccessDenied(
            f"the client certificate {cert} with the key {key or cert} is not valid: both must be "
            "in PEM format, the key without a password"
        ) from None
    except OSError as error:
        raise _unreadable("client certificate", cert, error) from None
    return context


def _no_password() -> str:
    """Refuses a TLS key with a password: without this callback, OpenSSL would ask for the password
    at the terminal."""
    return ""


def _unreadable(what: str, path: str | None, error: OSError) -> AccessDenied:
    if isinstance(error, FileNotFoundError):
        return AccessDenied(f"{what} {path} not found")
    return AccessDenied(f"cannot read the {what} {path}: {error.strerror}")


def _named(name: str) -> str:
    return f"{OPTIONS[name]} or {VARIABLES[name]}"
