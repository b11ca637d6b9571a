"""Certificates that encrypt the connections of a Dask cluster."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Security

from gpgc_dask.core.errors import InputError, MissingFileError

__all__ = ["TlsFiles", "scheduler_security"]


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files, as ``gpgc certs`` writes them.

    Attributes
    ----------
    ca : str
        Certificate of the authority that is trusted.
    cert : str
        Own certificate, signed by that authority.
    key : str
        Private key of the own certificate.
    """

    ca: str
    cert: str
    key: str

    def security(self) -> Security:
        """Return the files as Dask's security settings."""
        for path in (self.ca, self.cert, self.key):
            if not Path(path).is_file():
                raise MissingFileError(
                    f"{path} does not exist: make certificates with gpgc certs DIR"
                )
        self._check()
        settings: dict[str, Any] = {"tls_ca_file": self.ca, "require_encryption": True}
        for role in ("client", "scheduler", "worker"):
            settings |= {f"tls_{role}_cert": self.cert, f"tls_{role}_key": self.key}
        return Security(**settings)

    def _check(self) -> None:
        """Raise an InputError for files that are not certificates, or not a pair.

        A key with a password is rejected: OpenSSL would ask for it on the terminal of each process.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cafile=self.ca)
        except OSError as error:
            raise InputError(
                f"{self.ca} is not a certificate of an authority ({_reason(error)}): make "
                "certificates with gpgc certs DIR"
            ) from None
        try:
            context.load_cert_chain(self.cert, self.key, password=b"")
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.cert} and {self.key} are not a certificate and its key without a password "
                f"({_reason(error)}): make certificates with gpgc certs DIR"
            ) from None


def _reason(error: OSError | ValueError) -> str:
    return str(getattr(error, "reason", None) or error)


def scheduler_security(address: str, tls: TlsFiles | None) -> Security | None:
    """Security settings for the scheduler at an address; None if it is not encrypted."""
    encrypted = address.startswith("tls://")
    if tls is not None:
        if not encrypted:
            raise InputError(
                f"{address} is not encrypted: with certificates the scheduler's address begins "
                "with tls://"
            )
        return tls.security()
    if not encrypted:
        return None
    security = Security(require_encryption=True)
    if security.tls_ca_file is None or security.tls_client_cert is None:
        raise InputError(
            f"{address} needs certificates: name them with --tls-ca, --tls-cert and --tls-key, "
            "or in Dask's configuration (distributed.comm.tls); gpgc certs DIR makes them"
        )
    return security
