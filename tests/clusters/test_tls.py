"""Certificates: who takes part in a cluster, and who is kept out."""

from __future__ import annotations

import contextlib
import socket
import ssl
import stat
import sys
import threading
from dataclasses import replace
from pathlib import Path

import dask
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from distributed import Client, Security

from gpgc_dask.clusters import remote
from gpgc_dask.clusters.certificates import make_certificates
from gpgc_dask.clusters.connect import connect
from gpgc_dask.core.errors import InputError
from tests.support.processes import Processes, tls_files


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("cluster"), n_workers=1) as processes:
        yield processes


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(remote, "CONNECT_SECONDS", 2)


def test_holders_of_a_certificate_take_part(encrypted):
    with encrypted.connect() as client:
        encrypted.wait(client)
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        assert str(client.scheduler.address).startswith("tls://")


def test_the_configuration_names_certificates_too(encrypted):
    files = tls_files(encrypted.certificates, "client")
    names = {"ca-file": files.ca, "client.cert": files.cert, "client.key": files.key}
    settings = {f"distributed.comm.tls.{name}": path for name, path in names.items()}
    with dask.config.set(settings), connect(encrypted.address) as client:
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3


def test_without_certificates(encrypted):
    with (
        pytest.raises(ValueError, match=r"needs certificates: .*--tls-ca.* gpgc certs DIR"),
        connect(encrypted.address),
    ):
        pass


def test_plain_tcp_is_rejected(encrypted, impatient):
    plain = encrypted.address.replace("tls://", "tcp://")
    with pytest.raises(ConnectionError, match="no Dask scheduler answers"), connect(plain):
        pass
    files = tls_files(encrypted.certificates, "client")
    with pytest.raises(ValueError, match="is not encrypted"), connect(plain, tls=files):
        pass


def test_other_certificates_are_rejected(encrypted, impatient, tmp_path):
    make_certificates(tmp_path / "other")
    with (
        pytest.raises(ConnectionError, match="check the address and the certificates"),
        connect(encrypted.address, tls=tls_files(tmp_path / "other", "client")),
    ):
        pass


@pytest.mark.parametrize(("role", "refused"), [("client", True), ("worker", False)])
def test_the_certificate_of_a_client_cannot_serve(encrypted, role, refused):
    """What is stolen from a user's laptop lets nobody answer in a scheduler's name."""
    answering = tls_files(encrypted.certificates, role).security()
    calling = tls_files(encrypted.certificates, "worker").security()
    server = answering.get_listen_args("scheduler")["ssl_context"]
    client = calling.get_connection_args("client")["ssl_context"]
    left, right = socket.socketpair()
    failures = []

    def answer():
        with contextlib.suppress(OSError), server.wrap_socket(left, server_side=True) as wrapped:
            wrapped.recv(1)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with client.wrap_socket(right) as wrapped:
            wrapped.send(b"x")
    except ssl.SSLCertVerificationError as error:
        failures.append(error.verify_message)
    right.close()
    thread.join()
    assert bool(failures) == refused
    assert not refused or "purpose" in failures[0]


def test_a_local_cluster_over_tls(encrypted):
    with connect("local", workers=1, tls=tls_files(encrypted.certificates, "worker")) as client:
        assert str(client.scheduler.address).startswith("tls://")
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        port = client.scheduler.address.rsplit(":", 1)[1]
        with pytest.raises(OSError):  # noqa: PT011
            Client(f"tcp://127.0.0.1:{port}", timeout=2, security=Security())


def test_files(tmp_path, run):
    code, out, _ = run("certs", tmp_path / "tls", "--days", 30)
    assert code == 0
    assert "valid for 30 days" in out
    names = {path.name for path in (tmp_path / "tls").iterdir()}
    roles = ("ca", "scheduler", "worker", "client")
    assert names == {f"{role}{end}" for role in roles for end in (".pem", "-key.pem")}
    for path in (tmp_path / "tls").glob("*-key.pem"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    code, _, err = run("certs", tmp_path / "tls")
    assert code == 2
    assert "certificates are never replaced" in err


def test_a_missing_file_is_named(run, reference, tmp_path):
    given = ("--scheduler", "tls://127.0.0.1:1", "--tls-ca", tmp_path / "no.pem")
    code, _, err = run("fit", reference, "-o", tmp_path / "m.zarr", *given)
    assert code == 2
    assert "--tls-cert and --tls-key missing" in err
    given += ("--tls-cert", tmp_path / "c.pem", "--tls-key", tmp_path / "k.pem")
    code, _, err = run("fit", reference, "-o", tmp_path / "m.zarr", *given)
    assert code == 2
    assert "no.pem does not exist: make certificates with gpgc certs DIR" in err


@pytest.mark.parametrize(
    ("role", "change", "message"),
    [
        ("ca", lambda text: "", "ca.pem is not a certificate of an authority"),
        ("cert", lambda text: text[:300], "are not a certificate and its key"),
        ("key", lambda text: "", "are not a certificate and its key"),
    ],
)
def test_files_that_are_not_certificates(tmp_path, role, change, message):
    make_certificates(tmp_path / "tls")
    files = tls_files(tmp_path / "tls", "client")
    path = Path(getattr(files, role))
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=rf"{message}.*gpgc certs DIR"):
        files.security()


def test_a_key_of_another_certificate_or_with_a_password(tmp_path):
    make_certificates(tmp_path / "tls")
    files, other = (tls_files(tmp_path / "tls", role) for role in ("client", "worker"))
    with pytest.raises(InputError, match="KEY_VALUES_MISMATCH"):
        replace(files, key=other.key).security()
    key = load_pem_private_key(Path(files.key).read_bytes(), None)
    secret = BestAvailableEncryption(b"secret")
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
    Path(files.key).write_bytes(locked)
    with pytest.raises(InputError, match="its key without a password"):  # and nobody is asked
        files.security()


def test_without_cryptography(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "gpgc_dask.clusters.certificates")
    code, _, err = run("certs", tmp_path / "tls")
    assert code == 2
    assert 'pip install "gpgc_dask[tls]"' in err
    assert not (tmp_path / "tls").exists()
