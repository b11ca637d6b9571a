"""``gpgc rank --scenes``."""

from __future__ import annotations

import sys
from pathlib import Path

from gpgc_dask.cli.console import listing, print_json, print_out

__all__ = ["list_scenes"]


def list_scenes(model: str, out: str | None, *, json: bool) -> None:
    """Write or print the table of scenes of a model."""
    from gpgc_dask.models.persistence import load
    from gpgc_dask.models.review import require_review
    from gpgc_dask.results.scenes import SCORES, rank_scenes
    from gpgc_dask.storage.location import write_whole

    scenes = rank_scenes(require_review(load(model), model))
    content = scenes.to_csv(index=False, float_format="%.4f")
    if out is not None:
        as_json = out.lower().endswith(".json")
        text = scenes.to_json(orient="records", indent=2) + "\n" if as_json else content
        write_whole(Path(out), text.encode())
    if json:
        print_json(scenes.to_dict("records"))
    elif out is None and not sys.stdout.isatty():
        print(content, end="")
    else:
        columns = ["rank", "scene", "tiles", *SCORES]
        rows = [
            tuple(f"{one[name]:.3f}" if name in SCORES else str(one[name]) for name in columns)
            for one in scenes.to_dict("records")
        ]
        print_out(listing(f"{len(rows):,} scenes, worst first", columns, rows))
