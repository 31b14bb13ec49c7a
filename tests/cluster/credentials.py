"""A certificate authority and a NATS operator, made for one test."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import nkeys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

UNLIMITED = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
JETSTREAM = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Authority:
    """Signs certificates for 127.0.0.1; writes PEM files into ``directory``."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Oasgate test {name}")])
        self.certificate = directory / f"{name}.pem"
        made = self._builder(self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = dict.fromkeys(
            (
                *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
                *("key_agreement", "encipher_only", "decipher_only"),
            ),
            False,
        )
        made = made.add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
        _write(self.certificate, made.sign(self._key, hashes.SHA256()))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Files of a certificate, for a server or a client, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = self._builder(subject, key.public_key()).add_extension(address, critical=False)
        certificate, private = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        _write(certificate, made.sign(self._key, hashes.SHA256()))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


class Operator(NamedTuple):
    """A NATS operator with a system account and one account; ``config`` is the part of a server's configuration."""

    config: str
    account: Any

    @classmethod
    def make(cls) -> Operator:
        operator, system, account = (
            _keys(prefix)
            for prefix in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT)
        )
        itself = _token(operator, operator, "operator", {"system_account": _public(system)})
        plain = {**UNLIMITED, "wildcards": True}
        config = f"""
operator: {itself}
system_account: {_public(system)}
resolver: MEMORY
resolver_preload: {{
  {_public(system)}: {_token(operator, system, "account", {"limits": plain})}
  {_public(account)}: {_token(operator, account, "account", {"limits": {**plain, **JETSTREAM}})}
}}
"""
        return cls(config, account)

    def user(self, path: Path) -> Path:
        """Write a user's credentials file."""
        user = _keys(nkeys.PREFIX_BYTE_USER)
        token = _token(self.account, user, "user", {"subs": -1, "data": -1, "payload": -1})
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        return path


def _keys(prefix: int) -> Any:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))


def _public(keys: Any) -> str:
    return str(keys.public_key.decode())


def _token(issuer: Any, subject: Any, kind: str, claims: dict[str, Any]) -> str:
    """A NATS JWT: the claims of ``subject``, signed by ``issuer``."""
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    body = {
        "jti": os.urandom(16).hex(),
        "iat": int(datetime.datetime.now(datetime.UTC).timestamp()),
        "iss": _public(issuer),
        "sub": _public(subject),
        "name": kind,
        "nats": {**claims, "type": kind, "version": 2},
    }
    signed = f"{_base64(json.dumps(head).encode())}.{_base64(json.dumps(body).encode())}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
