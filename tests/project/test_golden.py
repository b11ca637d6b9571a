"""What others rely on does not change by accident; ``python -m tests.support.golden`` updates."""

from __future__ import annotations

import json

import pytest

from tests.support import golden


@pytest.mark.parametrize("kind", ["commands", "names", "formats"])
def test_snapshot(kind):
    assert golden.taken(kind) == json.loads(golden.path_of(kind).read_text())


def test_fits():
    stored = json.loads(golden.path_of("fits").read_text())
    found = golden.taken("fits")
    assert found.keys() == stored.keys()
    for name, values in stored.items():
        assert found[name].keys() == values.keys()
        for key, value in values.items():
            here = found[name][key]
            if key == "flags":
                assert here == value, (name, key)
            else:
                assert here == pytest.approx(value, rel=1e-4, abs=1e-4), (name, key)
