"""The README's code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tests.images import save_pairs

README = Path(__file__).parent.parent / "README.md"


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_pairs(tmp_path, 12)
    (tmp_path / "images").rename("photos")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert len(list((tmp_path / "predicted").iterdir())) == 12
    assert len(names["worst"]) == 12
    model, agreement = names["model"], names["agreement"]
    spoilt = ["photo_03.jpg", "photo_17.jpg"]
    assert sorted(model.groups_[np.argsort(model.confidence_)][:2]) == spoilt
    assert sorted(agreement.groups[np.argsort(agreement.iou)][:2]) == spoilt
