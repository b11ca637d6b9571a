"""``python -m tests.support.golden``: write the snapshots again, after a change that is meant."""

from __future__ import annotations

from tests.support.golden import KINDS, path_of, taken, text_of

for kind in KINDS:
    path_of(kind).write_text(text_of(taken(kind)))
    print(f"wrote {path_of(kind)}")
