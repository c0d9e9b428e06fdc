"""Credentials files: what `admit auth` writes into them, and how their JWT is replaced."""

from __future__ import annotations

from pathlib import Path

from admittance.access.users import User
from admittance.events.names import token
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.credentials import claims_of, has_seed, jwt_in, read_user_key
from admittance.runtime.nats_server.secret_files import change_secret_file, write_secret_file


def credentials_text(user: User, seed: str, jwt: str = "") -> str:
    """The content of a credentials file: the seed, the JWT if there is one, and comment lines that
    name the user, its role, its namespaces, its public key and its inbox prefix. `admit` reads the
    inbox prefix from the file; any other NATS client must be given that prefix."""
    secret = seed
    spaces = f"# namespaces: {' '.join(user.namespaces)}\n" if user.namespaces else ""
    if jwt:
        secret = (
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------"
        )
    return (
        "# Credentials of Admittance for a nats-server. Keep this file secret.\n"
        f"# user: {user.name}\n"
        f"# role: {user.role}\n"
        f"{spaces}"
        f"# public key: {user.key}\n"
        f"# inbox prefix: _INBOX.{user.token}\n"
        f"{secret}\n"
    )


def credentials_file(folder: Path, name: str) -> Path:
    """The path of the credentials file of a user in a folder."""
    return folder / f"{token(name)}.creds"


def write_jwt(path: Path, jwt: str) -> bool:
    """Writes a user's new JWT: into its credentials file, whose key and other lines stay, or alone
    into a file that does not exist or has such a JWT alone. Returns whether the file has the key,
    too. Raises SetupError for a file of another user or with a newer JWT, and AccessDenied for a
    credentials file that is not valid."""
    if not path.exists():
        write_secret_file(path, f"{jwt}\n")
        return False
    text = _text_of(path)
    old, has_key = jwt_in(text), has_seed(text)
    if has_key:
        read_user_key(str(path))
    claims, before = claims_of(jwt), claims_of(old)
    if claims is None:
        raise SetupError("the JWT is damaged: have an administrator send it again")
    if before is None:
        what = "has an NKey and no JWT" if has_key else "has no JWT"
        raise SetupError(f"{path} {what}: name the credentials file of a user with a JWT")
    if before.sub != claims.sub:
        raise SetupError(
            f"{path} is of the user {before.name}, and the JWT is for another key: the user "
            f"{claims.name} needs its own file"
        )
    if before.iat > claims.iat:
        raise SetupError(f"{path} has a newer JWT than this one: it is kept")
    change_secret_file(path, text.replace(old, jwt))
    return has_key


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise SetupError(f"cannot read {path}: {reason}") from None


def read_jwt(path: Path) -> str:
    """The JWT in a file that an administrator sent. Raises SetupError."""
    if jwt := jwt_in(_text_of(path)):
        return jwt
    raise SetupError(f"{path} has no JWT: name the file that `admit auth renew` wrote")
