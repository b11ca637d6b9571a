"""Options about the source of the features that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpgc_dask.cli.console import facts, listing, print_json, print_out
from gpgc_dask.cli.options import check_choice

if TYPE_CHECKING:
    from gpgc_dask.imaging.backbones import Backbone

__all__ = [
    "FEATURES",
    "Features",
    "InputSide",
    "Layer",
    "PresentBackbone",
    "describe_backbone",
    "to_backbone",
]

FEATURES = "Superpixels and features"

Layer = Annotated[
    list[str] | None,
    typer.Option(
        help="Output or inner tensor of the ONNX network to pool; may be repeated. Default: its "
        "only output that is a feature map, or last_hidden_state.",
        rich_help_panel=FEATURES,
    ),
]
InputSide = Annotated[
    int | None,
    typer.Option(
        help="Longest side in pixels of the input of the network, unless its size is fixed. "
        "Default: 512, or that of the model on the hub.",
        rich_help_panel=FEATURES,
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        help="Feature maps computed elsewhere, in place of a network: a Zarr group with an array "
        "(channels, height, width) per photo, named as the photo, or a folder of .npy files.",
        rich_help_panel=FEATURES,
    ),
]
PresentBackbone = Annotated[
    str | None,
    typer.Option(
        help="FILE.onnx: present path of the network, if it has moved; or hf:ORG/MODEL@REVISION.",
        rich_help_panel=FEATURES,
    ),
]


def to_backbone(
    backbone: str | None, features: str | None, images: str, **options: Any
) -> Backbone | str | None:
    """The backbone that the options --backbone and --features name, None if they are omitted."""
    check_choice(backbone=backbone, features=features)
    options = {name: value for name, value in options.items() if value is not None}
    if features is None and not options:
        return backbone
    from gpgc_dask.imaging.backbones import find_backbone

    if features is not None:
        return find_backbone(f"maps:{features}", images=images, **options)
    return find_backbone(backbone or "lite0", **options)


def describe_backbone(
    backbone: str, side: int, *, json: bool, layers: list[str] | None, input_side: int | None
) -> None:
    """Print what a backbone makes of a square photo: layers, channels, sizes and strides."""
    import numpy as np

    from gpgc_dask.imaging.backbones import find_backbone

    options = {"layers": layers, "side": input_side}
    network = find_backbone(backbone, **{k: v for k, v in options.items() if v is not None})
    maps = network(np.zeros((side, side, 3), dtype=np.uint8))
    names = network.layer_names() or [f"map {number + 1}" for number in range(len(maps))]
    rows = [
        {
            "layer": name,
            "channels": values.shape[0],
            "height": values.shape[1],
            "width": values.shape[2],
            "stride": side / values.shape[1],
        }
        for name, values in zip(names, maps, strict=True)
    ]
    others = list(network.other_layers())
    if json:
        print_json({"backbone": network.provenance(), "layers": rows, "other_layers": others})
        return
    print_out(facts(list(network.provenance().items())))
    cells = [
        (r["layer"], r["channels"], f"{r['height']} × {r['width']}", f"{r['stride']:.3g}")
        for r in rows
    ]
    title = f"Features of a photo of {side} × {side} pixels"
    print_out(listing(title, ["layer", "channels", "size", "stride"], cells, limit=len(cells)))
    if others:
        print_out(facts([("other layers", ", ".join(others))]))
