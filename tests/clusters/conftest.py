"""Fixtures of tests of clusters."""

from __future__ import annotations

import pytest
from distributed import Security


@pytest.fixture
def certificates(tmp_path):
    """The files of the Secret; one pair serves all roles."""
    own = Security.temporary()
    (tmp_path / "ca.pem").write_text(own.tls_ca_file)
    for role in ("scheduler", "worker", "client"):
        (tmp_path / f"{role}.pem").write_text(getattr(own, f"tls_{role}_cert"))
        (tmp_path / f"{role}-key.pem").write_text(getattr(own, f"tls_{role}_key"))
    return tmp_path
