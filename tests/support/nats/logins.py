"""Keys, JWTs and certificates of NATS, made for tests."""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import nkeys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from admittance.runtime import clock

OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3
WIDE = {"subs": -1, "data": -1, "payload": -1}


class NKey:
    """A key pair of an operator, account or user."""

    def __init__(self, kind: int = USER) -> None:
        raw = bytes([(18 << 3) | kind >> 5, (kind & 31) << 3]) + os.urandom(32)
        whole = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
        self.seed = base64.b32encode(whole).decode().rstrip("=")
        pair = nkeys.from_seed(bytearray(self.seed.encode()))
        # nkeys names every key as that of a user.
        public = bytes([kind]) + base64.b32decode(pair.public_key)[1:33]
        whole = public + binascii.crc_hqx(public, 0).to_bytes(2, "little")
        self.public = base64.b32encode(whole).decode().rstrip("=")
        self._pair = pair

    def jwt(self, about: NKey, name: str, nats: dict[str, Any], **times: int) -> str:
        """The claims about a key, signed by this one."""
        claims = {"iat": int(time.time()) - 10, "iss": self.public, "sub": about.public}
        claims |= {"jti": name, "name": name, "nats": {"version": 2, **nats}, **times}
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        signed = f"{_text(json.dumps(head).encode())}.{_text(json.dumps(claims).encode())}"
        return f"{signed}.{_text(self._pair.sign(signed.encode()))}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def write_secret(path: Path, text: str) -> str:
    """Writes a file that only its owner may read; returns its path."""
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


class Operator:
    """An operator with a system account and one account with JetStream."""

    def __init__(self) -> None:
        self._key = NKey(OPERATOR)
        self._system = NKey(ACCOUNT)
        self._account = NKey(ACCOUNT)

    def config(self, revoked: tuple[NKey, ...] = ()) -> str:
        """The configuration of a server, with the users of revoked JWTs."""
        stored = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
        limits = {**WIDE, "imports": -1, "exports": -1, "conn": -1, "leaf": -1, "wildcards": True}
        account: dict[str, Any] = {"type": "account", "limits": {**limits, **stored}}
        account["revocations"] = {user.public: int(time.time()) for user in revoked}
        system = {"type": "account", "limits": limits}
        # A server that reads its configuration again refuses another JWT of its operator, such as
        # one of the next second.
        operator = self._key.jwt(self._key, "test", {"type": "operator"}, iat=1)
        return (
            f"operator: {operator}\n"
            f"system_account: {self._system.public}\n"
            "resolver: MEMORY\n"
            "resolver_preload: {\n"
            f"  {self._system.public}: {self._key.jwt(self._system, 'SYS', system)}\n"
            f"  {self._account.public}: {self._key.jwt(self._account, 'CORE', account)}\n"
            "}\n"
        )

    def credentials(self, path: Path, name: str, key: NKey | None = None, **times: int) -> str:
        """Writes a credentials file of a user; returns its path."""
        user = key or NKey()
        jwt = self._account.jwt(user, name, {"type": "user", **WIDE}, **times)
        return write_secret(
            path,
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n"
            "NKEY Seed printed below can be used to sign and prove identity.\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n",
        )


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("test authority")
        made = self._builder("test authority", self._key, 1).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = str(folder / "ca.pem")
        Path(self.file).write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def _builder(
        self, name: str, key: ec.EllipticCurvePrivateKey, days: int
    ) -> x509.CertificateBuilder:
        now = clock.now()
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=3))
            .not_valid_after(now + timedelta(days=days))
        )

    def certificate(self, name: str, *, host: str = "localhost", days: int = 1) -> tuple[str, str]:
        """Files of a certificate for a user or host, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(name, key, days).add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
        )
        cert = self._folder / f"{name}.pem"
        cert.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()
        return str(cert), write_secret(self._folder / f"{name}.key", text)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(made: x509.Certificate) -> bytes:
    return made.public_bytes(serialization.Encoding.PEM)
