"""Write the files: export from a model, correct with each tool's library, save as the tool does."""

from __future__ import annotations

import json
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.results.export import export
from tests.support.round_trip import EXPORTED
from tests.support.tool_files.datumaro_files import correct_in_cvat
from tests.support.tool_files.label_studio_files import correct_in_label_studio
from tests.support.verdict_files import make_dataset

HERE = Path(__file__).parent


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
        versions = {library: version(library) for library in ("label-studio-sdk", "datumaro")}
        (HERE / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
        for part in out.iterdir():
            shutil.rmtree(HERE / part.name, ignore_errors=True)
            shutil.copytree(part, HERE / part.name)


if __name__ == "__main__":
    main()
