"""Commands, public names, file formats and fits change only on purpose.

``python -m tests.support.golden`` writes the snapshots after an intended change.
"""

from __future__ import annotations

import json

import pytest

from tests.support import golden

pytestmark = pytest.mark.quick

EVIDENCE_NATS = 0.02
"""Largest difference of an evidence: products in float32 are rounded in another order elsewhere."""


@pytest.mark.parametrize("kind", ["commands", "names", "formats"])
def test_snapshot(kind):
    assert golden.take_snapshot(kind) == json.loads(golden.snapshot_path(kind).read_text())


def test_fits():
    stored = json.loads(golden.snapshot_path("fits").read_text())
    fits = golden.take_snapshot("fits")
    assert fits.keys() == stored.keys()
    for name, values in stored.items():
        assert fits[name].keys() == values.keys()
        for key, value in values.items():
            if key == "flags":
                assert fits[name][key] == value, (name, key)
            else:
                near = EVIDENCE_NATS if key == "log_evidence" else 1e-4
                assert fits[name][key] == pytest.approx(value, rel=1e-4, abs=near), (name, key)
