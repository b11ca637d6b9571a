"""Scores of scenes from those of their tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.tiles import scene_name, split_address

__all__ = ["SCORES", "rank_scenes"]

SCORES = ("quality", "agreement")


def rank_scenes(table: pd.DataFrame) -> pd.DataFrame:
    """Rank scenes that were cut into tiles, worst first.

    Parameters
    ----------
    table : DataFrame
        Scores of the tiles, as a review or :func:`gpgc_dask.score` gives them.

    Returns
    -------
    DataFrame
        One row per scene with the columns ``rank``, ``scene``, ``tiles`` and ``pixels`` (of the
        tiles that have a score), ``quality`` and ``agreement``: means over the tiles, weighted by
        the pixels that belong to each.

    Examples
    --------
    >>> import pandas as pd
    >>> from gpgc_dask.results.scenes import rank_scenes
    >>> tiles = pd.DataFrame({"image": ["a.tif/000-000", "a.tif/000-001"]})
    >>> tiles["image_path"] = [
    ...     "a.tif#xywh=0,0,64,64&core=0,0,64,64", "a.tif#xywh=64,0,32,64&core=64,0,32,64"
    ... ]
    >>> rank_scenes(tiles.assign(quality=[0.9, 0.6], agreement=1.0))["quality"].tolist()
    [0.8]
    """
    tiles = [split_address(path)[1] for path in table["image_path"]]
    own = [(n, tile) for n, tile in enumerate(tiles) if tile is not None]
    if not own:
        raise InputError("no image is a tile of a scene: cut scenes by gpgc ingest --tile")
    chosen = table.iloc[[number for number, _ in own]]
    scenes = np.array([scene_name(name) for name in chosen["image"]])
    areas = np.array([tile.area for _, tile in own], dtype=np.float64)
    rows = [
        _of_scene(name, chosen[scenes == name], areas[scenes == name])
        for name in dict.fromkeys(scenes.tolist())
    ]
    ranked = pd.DataFrame(rows).sort_values("quality", kind="stable", ignore_index=True)
    ranked.insert(0, "rank", np.arange(1, len(ranked) + 1))
    return ranked


def _of_scene(name: str, tiles: pd.DataFrame, areas: Any) -> dict[str, Any]:
    known = tiles["quality"].notna().to_numpy()
    result = {"scene": name, "tiles": int(known.sum()), "pixels": int(areas[known].sum())}
    for score in SCORES:
        values = tiles[score].to_numpy(dtype=np.float64)[known]
        mean = np.average(values, weights=areas[known]) if known.any() else np.nan
        result[score] = round(float(mean), 12)
    return result
