"""Write the files: export from a model, correct with each tool's library, save as the tool does."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import datumaro
import numpy as np
from datumaro.components.annotation import Mask
from label_studio_sdk.converter import Converter
from label_studio_sdk.converter.brush import mask2rle

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.results.export import export
from tests.support.verdict_files import SHIFTED, make_dataset, name, true_mask

HERE = Path(__file__).parent
EXPORTED = 6


def correct_in_label_studio(tasks: Path, config: Path, target: Path) -> None:
    """A JSON export in which all tasks are submitted, and its brushes as PNG files."""
    corrected = {name(number): true_mask(number) for number in SHIFTED}
    content = []
    for number, task in enumerate(json.loads(tasks.read_text()), start=11):
        image = task["data"]["name"]
        result = task["predictions"][-1]["result"]
        for region in result:
            if image in corrected:
                region["value"]["rle"] = mask2rle(255 * corrected[image].astype(np.uint8))
        own = {
            "id": number + 100,
            "completed_by": {"id": 1, "email": "anna@example.org"},
            "result": result,
            "was_cancelled": False,
            "created_at": "2026-11-17T09:00:00.000000Z",
            "updated_at": f"2026-11-17T10:00:{number:02d}.000000Z",
        }
        data = {"name": image, "image": f"/data/local-files/?d=photos/{image}"}
        content.append({"id": number, "data": data, "annotations": [own], "predictions": []})
    (target / "png").mkdir(parents=True)
    (target / "export.json").write_text(json.dumps(content))
    converter = Converter(config.read_text(), None, download_resources=False)
    exported, pictures = str(target / "export.json"), str(target / "png")
    converter.convert(exported, pictures, "BRUSH_TO_PNG", is_dir=False)


def correct_in_cvat(folder: Path, target: Path) -> None:
    """Read the export as CVAT does, correct it, and write it in three formats."""
    corrected = {Path(name(number)).stem: true_mask(number) for number in SHIFTED}
    dataset = datumaro.Dataset.import_from(str(folder), "cvat")
    for item in list(dataset):
        kept = []
        for one in item.annotations:
            if one.type == datumaro.AnnotationType.mask and item.id in corrected:
                kept.append(Mask(corrected[item.id], label=one.label))
            elif one.type == datumaro.AnnotationType.mask:
                kept.append(one)
        dataset.put(item.wrap(annotations=kept))
    # CVAT gives each label a colour in the same way.
    colours = {"background": [(0, 0, 0), [], []], "foreground": [(250, 50, 83), [], []]}
    masks = target / "masks"
    dataset.export(str(masks), "voc_segmentation", label_map=colours, apply_colormap=True)
    for unused in ("SegmentationObject", "JPEGImages", "Annotations", "ImageSets"):
        shutil.rmtree(masks / unused)
    dataset.export(str(target / "coco"), "coco_instances", save_media=False)
    dataset.export(str(target / "cvat"), "cvat", save_media=False)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = Path(temporary), Path(temporary) / "out"
        dataset = open_dataset(make_dataset(folder))
        model = GPGC().fit(dataset)
        model.review(dataset)
        out.mkdir()
        export(model, folder / "tasks.json", "label-studio", count=EXPORTED)
        config = folder / "tasks.config.xml"
        correct_in_label_studio(folder / "tasks.json", config, out / "label_studio")
        cvat = folder / "cvat"
        export(model, cvat / "annotations.xml", "cvat", count=EXPORTED)
        shutil.copytree(folder / "images", cvat / "images")
        correct_in_cvat(cvat, out / "datumaro")
        for path in sorted(out.rglob("*")):
            print(path.relative_to(out), path.stat().st_size)
        for part in out.iterdir():
            shutil.rmtree(HERE / part.name, ignore_errors=True)
            shutil.copytree(part, HERE / part.name)


if __name__ == "__main__":
    main()
