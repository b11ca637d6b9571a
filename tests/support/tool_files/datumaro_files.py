"""Correct annotations with datumaro, by which CVAT reads and writes files, and save them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.verdict_files import SHIFTED, name, true_mask


def correct_in_cvat(folder: Path, target: Path) -> None:
    """Read the export as CVAT does, correct it, and write it in three formats."""
    import datumaro
    from datumaro.components.annotation import Mask

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
