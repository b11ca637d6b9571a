"""The server: what it stores, and what it does not answer."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import threading
import zlib

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import load, open_dataset
from gpgc_dask.core.errors import InputError, NotReviewedError
from gpgc_dask.data.verdicts import Verdict, VerdictLog
from gpgc_dask.imaging.painting import paint_image
from gpgc_dask.models.review import predict_and_review
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.review.masks import encode_runs
from gpgc_dask.review.refit import make_refit
from gpgc_dask.review.server import ReviewServer, is_loopback
from gpgc_dask.review.state import Review
from gpgc_dask.storage.location import Location
from tests.review.conftest import CORRUPTED, HOSTILE
from tests.support.ingesting import QUICK
from tests.support.review import TOKEN, ReviewProcess, read_log, request, serving, verdict

pytestmark = pytest.mark.newest


def unpack(content):
    """(description, {name: bytes}) of a picture."""
    (length,) = struct.unpack(">I", content[:4])
    about, at, parts = json.loads(content[4 : 4 + length]), 4 + length, {}
    for name, size in about["parts"].items():
        parts[name], at = content[at : at + size], at + size
    assert at == len(content)
    return about, parts


def labels_of(content, name):
    about, parts = unpack(content)
    values = np.frombuffer(zlib.decompress(parts[name]), np.uint8)
    return values.reshape(about["height"], about["width"])


def drawn_mask(reviewed, name):
    return (np.asarray(Image.open(reviewed / f"masks/{name}.png")) > 0).astype(np.uint8)


def number_of(review, name):
    return review.basis.names.index(f"{name}.jpg")


def sync(port, session="a" * 32, **more):
    body = {"session": session, "name": "anna", "order": "quality", "count": 0, **more}
    status, answer, _ = request(port, "/api/sync", body)
    assert status == 200, answer
    return answer


def test_worst_first(server, review):
    status, start, _ = request(server.port, "/api/start", {})
    assert status == 200
    names = [start["images"]["image"][n] for n in start["orders"]["quality"][:4]]
    assert set(names) == {f"{name}.jpg" for name in (*CORRUPTED, HOSTILE)}
    answer = sync(server.port)
    assert answer["next"] == start["orders"]["quality"][:6]
    assert answer["outlook"]["images"] == 34
    assert answer["outlook"]["gain_text"].startswith("Of the next 4 masks about 4 (")
    assert start["verdicts"] == answer["news"] == []


def test_pictures(server, review, reviewed):
    dataset, model = open_dataset(reviewed / "data.zarr"), load(reviewed / "model.zarr")
    predicted, _ = predict_and_review(model, dataset)
    photo = number_of(review, CORRUPTED[0])
    status, content, headers = request(server.port, f"/api/picture/{photo}")
    assert status == 200
    assert headers["Cache-Control"] == "no-store"
    about, parts = unpack(content)
    assert (about["width"], about["height"], about["problem"]) == (80, 60, "")
    assert parts["photo"][:2] == b"\xff\xd8"
    np.testing.assert_array_equal(labels_of(content, "given"), drawn_mask(reviewed, CORRUPTED[0]))
    painted = paint_image(dataset, predicted, photo)
    np.testing.assert_array_equal(labels_of(content, "predicted"), painted)


def test_a_photo_that_is_gone_is_grey(reviewed, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(reviewed, folder)
    shutil.rmtree(folder / "data.zarr")
    ingest(folder / "images", folder / "masks", folder / "data.zarr", recipe=QUICK)
    train(folder / "data.zarr", folder / "own.zarr", parameters={"rounds": 0})
    (folder / "images/photo_003.jpg").unlink()
    review = Review(folder / "data.zarr", folder / "own.zarr")
    photo = number_of(review, "photo_003")
    about, _ = unpack(review.picture(photo))
    assert "cannot be opened" in about["problem"]
    assert labels_of(review.picture(photo), "given").any()  # what ingest has kept of the mask
    review.save(verdict(photo, "corrected", mask="model", basis=review.basis.key))
    assert open_dataset(folder / "data.zarr")["verdict"].values[photo] == "corrected"


def test_verdicts_are_in_the_dataset(server, review, reviewed, place):
    one, two, three = (number_of(review, name) for name in CORRUPTED)
    for body in (
        verdict(one),
        verdict(two, "rejected"),
        verdict(three),
        verdict(three, "withdrawn"),
    ):
        assert request(server.port, "/api/verdict", body)[0] == 200
    kinds = open_dataset(place)["verdict"].values
    assert [kinds[n] for n in (one, two, three)] == ["confirmed", "rejected", ""]
    assert {each.by for each in read_log(place)} == {"anna"}
    answer = sync(server.port, count=0)
    assert [each["kind"] for each in answer["news"]] == [
        "confirmed", "rejected", "confirmed", "withdrawn",
    ]  # fmt: skip
    assert answer["count"] == 4
    assert answer["outlook"]["seen"] == 2
    assert one not in answer["next"]
    assert three in answer["next"]
    assert sync(server.port, count=4)["news"] == []


def test_the_model_s_mask_and_a_region_of_it(server, review, reviewed, place):
    photo = number_of(review, CORRUPTED[0])
    body = verdict(photo, "corrected", mask="model", basis=review.basis.key)
    assert request(server.port, "/api/verdict", body)[1]["stored"] is True
    predicted = paint_image(review.basis.dataset, review.basis.predicted, photo)
    np.testing.assert_array_equal(read_log(place)[-1].correction.mask, predicted)
    edited = drawn_mask(reviewed, CORRUPTED[1])
    edited[10:20, 5:30] = 1
    other = number_of(review, CORRUPTED[1])
    request(server.port, "/api/verdict", verdict(other, "corrected", mask=encode_runs(edited)))
    np.testing.assert_array_equal(read_log(place)[-1].correction.mask, edited)
    _, content, _ = request(server.port, f"/api/picture/{other}")
    np.testing.assert_array_equal(labels_of(content, "given"), edited)
    request(server.port, "/api/verdict", verdict(other, "withdrawn"))
    _, content, _ = request(server.port, f"/api/picture/{other}")
    np.testing.assert_array_equal(labels_of(content, "given"), drawn_mask(reviewed, CORRUPTED[1]))


def test_a_mask_of_another_model(server, place):
    body = verdict(3, "corrected", mask="model", basis="0" * 16)
    status, answer, _ = request(server.port, "/api/verdict", body)
    assert status == 409
    assert "look at the image again" in answer["error"]
    assert read_log(place) == []


def test_repeated_requests_are_stored_once(server, review, reviewed, place):
    bodies = [verdict(n % 7, "corrected", mask="model", basis=review.basis.key) for n in range(8)]
    threads = [
        threading.Thread(target=request, args=(server.port, "/api/verdict", body))
        for body in bodies * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.id for each in read_log(place)) == sorted(body["id"] for body in bodies)
    with serving(Review(place, reviewed / "model.zarr")) as again:
        assert request(again.port, "/api/verdict", bodies[0])[1]["stored"] is False
    assert len(read_log(place)) == 8


def test_verdicts_of_other_programs(server, review, place, monkeypatch):
    monkeypatch.setattr("gpgc_dask.review.state.REFRESH_SECONDS", 0.0)
    log = VerdictLog(Location.of(place))
    log.append(Verdict(review.basis.names[2], "rejected", "ben", at="2099-01-01"))
    log.append(Verdict("elsewhere.jpg", "rejected", "ben"))
    answer = sync(server.port)
    assert [(each["image"], each["by"]) for each in answer["news"]] == [(2, "ben")]
    # However wrong that clock was, a later verdict counts.
    request(server.port, "/api/verdict", verdict(2, "confirmed"))
    assert open_dataset(place)["verdict"].values[2] == "confirmed"


def test_two_pages_get_different_images(server):
    first, second = sync(server.port), sync(server.port, session="b" * 32, name="ben")
    assert not set(first["next"]) & set(second["next"])
    assert second["others"] == {str(image): "anna" for image in first["next"]}
    assert second["people"] == ["anna", "ben"]
    request(server.port, "/api/leave", {"session": "a" * 32})
    assert sync(server.port, session="b" * 32, name="ben")["next"] == first["next"]


def test_fit_again(reviewed, place, tmp_path):
    """The fit uses the verdicts, and the page gets a new order from it."""
    model = reviewed / "model.zarr"
    review = Review(place, model, refit=make_refit(place, model, folder=tmp_path))
    photo = number_of(review, CORRUPTED[0])
    before = review.basis
    review.save(verdict(photo, "corrected", mask="model", basis=before.key))
    review.fit_again()
    review.fit_again()  # while it runs: nothing happens
    (thread,) = [each for each in threading.enumerate() if each.name == "fit again"]
    thread.join(120)
    assert review.fit.state == "finished", review.fit
    assert review.fit.text == str(tmp_path / "model-1.zarr")
    quality = [basis.table["quality"][photo] for basis in (before, review.basis)]
    assert quality[1] > quality[0] + 0.3
    assert review.basis.dataset["verdict"].values[photo] == "corrected"
    body = verdict(1, "corrected", mask="model", basis=before.key)  # what a page still shows
    assert review.save(body)["stored"]
    with pytest.raises(InputError, match="choose another path"):
        make_refit(place, model, folder=tmp_path, target=model)


def test_a_fit_that_fails(reviewed, place):
    def fail(report):
        raise InputError("no space")

    review = Review(place, reviewed / "model.zarr", refit=fail)
    review.fit_again()
    for thread in threading.enumerate():
        if thread.name == "fit again":
            thread.join(10)
    assert (review.fit.state, review.fit.text) == ("failed", "no space")
    with pytest.raises(InputError, match="run gpgc fit"):
        Review(place, reviewed / "model.zarr").fit_again()


def test_wrong_models_and_orders(reviewed, place, tmp_path):
    with pytest.raises(InputError, match="not one of those"):
        Review(place, reviewed / "model.zarr", order="size")
    fitted = load(reviewed / "model.zarr")
    bare = type(fitted)(rounds=0).fit(open_dataset(reviewed / "data.zarr"))
    bare.save(tmp_path / "bare.zarr")
    with pytest.raises(NotReviewedError, match=r"bare\.zarr has not reviewed"):
        Review(place, tmp_path / "bare.zarr")


# -- security ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/start", "/api/sync", "/api/verdict", "/api/fit"])
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x"])
def test_nothing_without_the_token(server, place, path, token):
    status, answer, _ = request(server.port, path, verdict(0), token=token)
    assert (status, answer) == (401, {"error": "Wrong token"})
    assert request(server.port, "/api/picture/0", token=token)[0] == 401
    assert read_log(place) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1:1"},
        {"Host": "192.168.0.7:{port}"},
        {"Host": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)
def test_other_origins_and_hosts(server, place, headers):
    """With the right token, too: other pages, and other names of this machine (DNS rebinding)."""
    headers = {name: text.format(port=server.port) for name, text in headers.items()}
    for path, body in (("/api/verdict", verdict(0)), ("/api/picture/0", None), ("/page.js", None)):
        assert request(server.port, path, body, **headers)[0] in (400, 403), path
    assert read_log(place) == []


def test_its_own_origin(server):
    port = server.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        own = {"Host": host, "Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
        assert request(port, "/api/start", {}, **own)[0] == 200
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert request(port, "/", token=None, **link)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/picture/../../etc/passwd",
        "/api/picture/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/api/picture/0%00",
        "/api/picture/-1",
        "/api/picture/99999999999999999999",
        "/api/picture/photo_001.jpg",
        "/../server.py",
        "/page.html",
        "/server.py",
        "//etc/passwd",
        "/static/page.js",
        "/api/stop",
        "/api/__class__",
    ],
)
def test_no_path_reaches_the_file_system(server, path):
    assert request(server.port, path)[0] in (400, 404)
    assert request(server.port, path, {})[0] in (400, 404, 405)


def test_numbers_out_of_range(server):
    assert request(server.port, "/api/picture/34")[0] == 400
    assert request(server.port, "/api/picture/33")[0] == 200


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../../x"},
        {"id": 5},
        {"id": ""},
        {"image": -1},
        {"image": 34},
        {"image": "0"},
        {"image": True},
        {"image": None},
        {"kind": "fine"},
        {"kind": ["confirmed"]},
        {"name": "x" * 101},
        {"name": {}},
        {"kind": "corrected"},
        {"kind": "corrected", "mask": [0, 5]},
        {"kind": "corrected", "mask": {"0": 1}},
        {"kind": "corrected", "mask": [9, 4800]},
        {"kind": "corrected", "mask": [0, 10**18]},
        {"kind": "corrected", "mask": "/etc/passwd"},
        {"kind": "corrected", "mask": "model", "basis": {}},
    ],
    ids=str,
)
def test_wrong_verdicts(server, place, change):
    status, answer, _ = request(server.port, "/api/verdict", verdict(0) | change)
    assert status == 400, answer
    assert answer["error"]
    assert read_log(place) == []


@pytest.mark.parametrize("raw", [b"[" * 100_000, b"[]", b"no", b"\xff", b"7"])
def test_what_is_no_request(server, raw):
    assert request(server.port, "/api/verdict", raw=raw)[0] == 400


def test_forms_of_other_pages_are_no_requests(server):
    headers = {"Content_Type": "text/plain"}
    assert request(server.port, "/api/verdict", verdict(0), **headers)[0] == 415


def test_huge_uploads_are_not_read(server):
    """The server closes the connection, and answers others."""
    head = f"POST /api/verdict HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), 10) as sent:
        sent.sendall(head + b"Content-Length: 100000000000\r\n\r\n")
        assert b" 400 " in sent.recv(100) or sent.recv(1) == b""
    with socket.create_connection(("127.0.0.1", server.port), 10) as sent:
        sent.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        with pytest.raises(OSError, match=r"reset|pipe|aborted"):
            sent.sendall(chunk * 40)
    assert request(server.port, "/api/start", {})[0] == 200


def test_headers(server):
    for path, token in (
        ("/", None),
        ("/page.js", None),
        ("/page.css", None),
        ("/api/picture/0", TOKEN),
    ):
        status, _, headers = request(server.port, path, token=token)
        assert status == 200
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Server" not in headers
        assert not [name for name in headers if name.startswith("Access-Control")]
    page = request(server.port, "/", token=None)[1].decode()
    assert "<script src=" in page
    assert page.count("<script") == 1
    assert TOKEN not in page


def test_beyond_loopback(review):
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "x")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    with serving(review, host="0.0.0.0") as server:
        assert request(server.port, "/api/start", {}, token=None)[0] == 401
        own = {"Host": f"192.168.0.7:{server.port}"}
        assert request(server.port, "/api/start", {}, **own)[0] == 200
        assert request(server.port, "/api/start", {}, Host=f"evil.example:{server.port}")[0] == 403
    assert f"http://{socket.gethostname()}:" in server.url


def test_tokens_and_ports(review):
    first, second = (ReviewServer(review, port=0) for _ in range(2))
    assert len(first.token) >= 32
    assert first.token != second.token
    with pytest.raises(InputError, match="at least 16"):
        ReviewServer(review, port=0, token="short")
    with pytest.raises(InputError, match="choose another --port"):
        ReviewServer(review, port=first.port)
    for server in (first, second):
        for each in server.sockets:
            each.close()


# -- a real process --------------------------------------------------------------------------------


def test_two_people_and_a_server_that_is_killed(reviewed, place):
    """Requests without an answer are repeated after SIGKILL: none is lost, none is doubled."""
    environment = os.environ | {"GPGC_REVIEW_TOKEN": "kept-between-two-servers"}
    model = reviewed / "model.zarr"
    server = ReviewProcess(place, model, 0, **environment)
    assert server.token == "kept-between-two-servers"
    port, sent, answered = server.port, [], []
    basis = request(port, "/api/start", {}, token=server.token)[1]["basis"]

    def decide(person):
        for image in range(person, 34, 2):
            body = verdict(image, "corrected", mask="model", basis=basis, name=f"person {person}")
            sent.append(body)
            while True:
                try:
                    status, *_ = request(port, "/api/verdict", body, token=server.token)
                except OSError:
                    threading.Event().wait(0.05)
                    continue
                assert status == 200
                answered.append(body["id"])
                break

    people = [threading.Thread(target=decide, args=(person,)) for person in (0, 1)]
    for person in people:
        person.start()
    for _ in range(2):
        goal = len(answered) + 6
        while len(answered) < goal:
            threading.Event().wait(0.005)
        server.kill()
        at_kill = set(answered)
        assert at_kill <= {each.id for each in read_log(place)}  # on disk before the answer
        server = ReviewProcess(place, model, port, **environment)
    for person in people:
        person.join(120)
    server.kill()
    log = read_log(place)
    assert len(log) == 34
    assert {each.id for each in log} == {body["id"] for body in sent}
    assert set(open_dataset(place)["verdict"].values) == {"corrected"}
