"""Check the weights of the built-in network by the ImageNet classes that it predicts.

Give a folder of photos and the number of the class they show (339 is sorrel, a horse).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from common import parser
from photos import save_set

from gpgc_dask.imaging.backbones.lite0 import CLASSIFIER, build_graph
from gpgc_dask.imaging.backbones.onnx import Lite0, open_session, scale_image
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.photos import read_photo


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path)
    arguments.add_argument("--class", dest="number", type=int, default=339)
    args = arguments.parse_args()
    session, side = open_session(build_graph((CLASSIFIER,))), Lite0().side
    with tempfile.TemporaryDirectory() as place:
        folder = args.folder or Path(place) / "images"
        if args.folder is None:
            save_set(Path(place), 2, 60, 80)
        seen: Counter[int] = Counter()
        for name in find_images(folder):
            image = scale_image(read_photo(folder / name, side).pixels, side)
            (logits,) = session.run([CLASSIFIER], {"image": image})
            seen[int(logits.argmax())] += 1
    share = seen[args.number] / seen.total()
    print(
        f"class {args.number} is the top-1 of {100 * share:.1f} % of {seen.total()} photos (bar 60)"
    )
    print("most frequent:", ", ".join(f"{number} ({n})" for number, n in seen.most_common(5)))


if __name__ == "__main__":
    main()
