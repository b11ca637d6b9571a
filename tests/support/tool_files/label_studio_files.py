"""Correct tasks with the library of Label Studio, and save them as it does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.support.verdict_files import SHIFTED, name, true_mask


def correct_in_label_studio(tasks: Path, config: Path, target: Path) -> None:
    """A JSON export in which all tasks are submitted, and its brushes as PNG files."""
    from label_studio_sdk.converter import Converter
    from label_studio_sdk.converter.brush import mask2rle

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
