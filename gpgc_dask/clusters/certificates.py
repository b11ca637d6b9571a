"""Certificates for a Dask cluster: an authority, and one certificate per role.

Dask requires a certificate of the given authority from both sides of every connection, and does not
check host names: the owner of ``ca-key.pem`` decides who may connect. Certificates of clients are
valid for outgoing connections only, so that a stolen one cannot impersonate the scheduler.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path

from gpgc_dask.core.errors import ExistsError, MissingDependencyError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise MissingDependencyError(
        f'certificates are made with cryptography ({error}): pip install "gpgc_dask[tls]"'
    ) from None

__all__ = ["ROLES", "make_certificates"]

ROLES = ("scheduler", "worker", "client")

OUTGOING, INCOMING = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH

USAGES = {
    "scheduler": [OUTGOING, INCOMING],
    "worker": [OUTGOING, INCOMING],
    "client": [OUTGOING],
}


def make_certificates(folder: str | PathLike[str], *, days: int = 365) -> list[Path]:
    """Write an authority and a certificate for each role into a new or empty folder.

    The files are ``ca.pem`` and ``ca-key.pem``, ``scheduler.pem`` and ``scheduler-key.pem``, and so
    on. Only their owner can read the keys.

    Parameters
    ----------
    folder : path-like
        New or empty folder.
    days : int, default 365
        Number of days for which the certificates are valid.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ExistsError
        If the folder is not empty.
    """
    target = Path(folder).expanduser()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExistsError(
            f"{target} is not empty: certificates are never replaced; choose another folder"
        )
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    until = datetime.now(UTC) + timedelta(days=days)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    name = _name("gpgc_dask authority")
    authority = (
        _builder(name, name, authority_key, until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    written = [*_write(target, "ca", authority, authority_key)]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name(f"gpgc_dask {role}"), name, key, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(USAGES[role]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        written += _write(target, role, certificate, key)
    return written


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of other machines may be slow.
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> Iterable[Path]:
    public, private = folder / f"{name}.pem", folder / f"{name}-key.pem"
    public.write_bytes(certificate.public_bytes(Encoding.PEM))
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # Not readable by others at any time, not even before it is written.
    with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return public, private
