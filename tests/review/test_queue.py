"""Orders, claims and estimates: pure functions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpgc_dask.core.errors import InputError
from gpgc_dask.review.estimates import estimate_outlook
from gpgc_dask.review.masks import apply_edits, decode_runs, encode_runs
from gpgc_dask.review.queue import CLAIM_SECONDS, Claims, make_orders


def table_of(n, bad=0.5, **more):
    rng = np.random.default_rng(0)
    quality = rng.permutation(n) / n
    columns = {
        "image": [f"{number:03d}.jpg" for number in range(n)],
        "quality": quality,
        "quality_low": quality - 0.1,
        "quality_high": quality + 0.1,
        "bad_probability": np.full(n, bad),
        "agreement": quality[::-1],
        "confidence": np.full(n, np.nan),
    }
    return pd.DataFrame(columns | more)


def test_orders():
    table = table_of(10)
    objects = pd.DataFrame({"image": ["007.jpg", "002.jpg", "007.jpg", "gone.jpg"]})
    orders = make_orders(table, objects)
    assert list(orders) == ["quality", "agreement", "objects"]
    assert np.all(np.diff(table["quality"].to_numpy()[orders["quality"]]) > 0)
    assert np.all(np.diff(table["agreement"].to_numpy()[orders["agreement"]]) > 0)
    assert orders["objects"][:2] == [7, 2]
    rest = [image for image in orders["quality"] if image not in (7, 2)]
    assert orders["objects"][2:] == rest
    assert "objects" not in make_orders(table, None)
    with_confidence = make_orders(table_of(4, confidence=[0.3, 0.1, 0.2, 0.0]), None)
    assert with_confidence["confidence"] == [3, 1, 2, 0]


def test_two_people_get_different_images():
    now = [0.0]
    claims, order = Claims(lambda: now[0]), list(range(8))
    first = claims.claim("a", "anna", order, decided=(), wanted=3)
    second = claims.claim("b", "ben", order, decided={3}, wanted=3, skipped={5})
    assert (first, second) == ([0, 1, 2], [4, 6, 7])
    assert claims.of_others("a") == {4: "ben", 6: "ben", 7: "ben"}
    assert claims.names() == ["anna", "ben"]
    assert claims.claim("a", "anna", order, decided={3, 0}, wanted=2, held=[0]) == [1, 2]
    assert claims.of_others("b") == {0: "anna", 1: "anna", 2: "anna"}
    assert claims.claim("c", "carl", order, decided={3}, wanted=9, skipped={5}) == [5]
    claims.release("b")
    assert claims.claim("c", "carl", order, decided={3}, wanted=9, skipped={5}) == [4, 6, 7, 5]
    now[0] = CLAIM_SECONDS + 1  # anna's page was closed without a word
    assert claims.claim("c", "carl", order, decided={3}, wanted=3) == [0, 1, 2]
    assert claims.names() == ["carl"]


def test_the_outlook_counts_what_is_left():
    table = table_of(40, bad=np.where(np.arange(40) < 10, 0.9, 0.0))
    order = list(range(40))
    start = estimate_outlook(table, order, {})
    assert (start.images, start.seen, start.ahead) == (40, 0, 4)
    assert start.left.estimate == 9
    assert start.gain_text.startswith("Of the next 4 masks about 4 (")
    assert start.left_text.startswith("About 9 (")
    later = estimate_outlook(table, order, dict.fromkeys(range(8), "rejected") | {39: "confirmed"})
    assert later.seen == 9
    assert later.kinds == {"confirmed": 1, "rejected": 8}
    assert later.left.estimate == later.gain.estimate == 2
    end = estimate_outlook(table, order, dict.fromkeys(order, "confirmed"))
    assert (end.left_text, end.gain_text) == ("All masks have a verdict.", "")


def test_few_images_have_no_estimate():
    outlook = estimate_outlook(table_of(12, bad=np.nan), list(range(12)), {})
    assert "not estimated" in outlook.left_text
    assert outlook.gain_text == ""
    assert outlook.to_json()["gain"] is None


def test_run_lengths():
    rng = np.random.default_rng(0)
    for codes in (rng.integers(0, 3, (7, 9)), np.zeros((4, 5)), np.full((1, 1), 255)):
        codes = codes.astype(np.uint8)
        runs = encode_runs(codes)
        np.testing.assert_array_equal(decode_runs(runs, *codes.shape, 3), codes)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ("model", "not a list"),
        ([], "not a list"),
        ([0, 11, 1], "not a list"),
        ([0, 5], "5 pixels"),
        ([0, 10**12], "in range"),
        ([0, -2, 1, 14], "in range"),
        ([0, 6.0, 1, 6], "in range"),
        ([True, 12], "in range"),
        ([7, 12], "class 7"),
        ([0, 1] * 13, "not a list"),
    ],
)
def test_wrong_run_lengths(runs, message):
    with pytest.raises(InputError, match=message):
        decode_runs(runs, 3, 4, 2)


def test_edits_keep_the_resolution_of_the_given_mask():
    """Only what was painted is enlarged; the rest is as fine as it was."""
    rng = np.random.default_rng(0)
    given = rng.integers(0, 2, (40, 60)).astype(np.uint8)
    shown = given[2::4, 2::4]
    edited = shown.copy()
    edited[2:5, 3:7] = 2
    result = apply_edits(given, edited)
    np.testing.assert_array_equal(result[2::4, 2::4], edited)
    np.testing.assert_array_equal(result[8:20, 12:28], 2)
    result[8:20, 12:28] = given[8:20, 12:28]
    np.testing.assert_array_equal(result, given)
    np.testing.assert_array_equal(apply_edits(given, given), given)
