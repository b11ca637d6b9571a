"""``python -m tests.support.golden`` writes the snapshots after an intended change."""

from __future__ import annotations

from tests.support.golden import KINDS, snapshot_path, take_snapshot, to_json

for kind in KINDS:
    snapshot_path(kind).write_text(to_json(take_snapshot(kind)))
    print(f"wrote {snapshot_path(kind)}")
