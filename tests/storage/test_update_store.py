"""Updates of datasets in an object store: stopped, resumed, and with readers."""

from __future__ import annotations

import dask
import numpy as np
import pytest
from PIL import Image

from gpgc_dask import open_dataset, update
from gpgc_dask.core.errors import ChangedError, PipelineError
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.update import lock as update_lock
from gpgc_dask.storage.location import Location
from tests.support.images import save_pair, save_pairs
from tests.support.ingesting import QUICK, CrashError, crash_after
from tests.support.object_store import object_store
from tests.support.updating import contents

pytestmark = pytest.mark.newest

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
SETTINGS = {"gpgc.store.wait": 0.03, "gpgc.store.tries": 5, "gpgc.update.stale-after": "1 s"}


@pytest.fixture(params=["s3fs", "obstore"])
def proxy(request, tmp_path, monkeypatch):
    """An S3 server. s3fs takes its keys from a file, obstore from the environment."""
    import s3fs

    if request.param == "obstore":
        pytest.importorskip("obstore")
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = k\naws_secret_access_key = s\n")
    with object_store() as server, dask.config.set(SETTINGS):
        for name in (*KEYS, "AWS_PROFILE", "AWS_MAX_ATTEMPTS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        if request.param == "obstore":
            for name, value in KEYS.items():
                monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield server
        s3fs.S3FileSystem.clear_instance_cache()


def test_an_update_that_is_stopped_and_resumed(proxy, tmp_path, small_chunks, monkeypatch):
    images, masks = save_pairs(tmp_path, 8)
    url = "s3://bucket/data.zarr"
    ingest(images, masks, url, recipe=QUICK)
    old, reader = contents(url), open_dataset(url)
    save_pair(tmp_path, "zzz", 50)
    Image.fromarray(np.zeros((60, 80), dtype=np.uint8)).save(masks / "photo_005.png")
    (masks / "photo_001.png").unlink()
    with monkeypatch.context() as patch:
        crash_after(patch, Location, "move", 30)
        with pytest.raises(CrashError):
            update(url, images, masks, prune=True)
    with pytest.raises(ChangedError, match=r"an update of .* is not finished"):
        open_dataset(url)
    with pytest.raises(ChangedError, match="is being updated"):
        reader["label"].compute()
    # As a killed process leaves it; one that works would write it again and again.
    Location.of(url).write(update_lock.KEY, b"killed 7")
    proxy.failing = 0.05
    report = update(url, images, masks, prune=True)
    proxy.heal()
    assert (report.new, report.relabelled, report.removed, report.images) == (1, 1, 1, 8)
    (images / "photo_001.jpg").unlink()
    ingest(images, masks, tmp_path / "fresh.zarr", recipe=QUICK)
    found, fresh = contents(url), contents(tmp_path / "fresh.zarr")
    for each in (found, fresh):  # the photo that has no mask is a skipped file of the update
        each[""].pop("skipped")
        each[""].pop("files_digest")
    assert found == fresh
    assert found.keys() != old.keys()
    assert ".update" not in Location.of(url).names()
    with pytest.raises(ChangedError, match="has been updated since"):
        reader["label"].compute()


def test_a_second_update_is_refused(proxy, tmp_path):
    images, masks = save_pairs(tmp_path, 3)
    url = "s3://bucket/second.zarr"
    ingest(images, masks, url, recipe=QUICK)
    save_pair(tmp_path, "zzz", 50)
    with (
        update_lock.update_lock(Location.of(url)),
        pytest.raises(PipelineError, match=r"another gpgc update of .* is running"),
    ):
        update(url, images, masks)
    assert update(url, images, masks).new == 1
