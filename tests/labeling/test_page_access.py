"""The server of the page answers its own page and nobody else, and serves items of the query and nothing else."""

import re
import sys

import pytest
from starlette.testclient import TestClient

from lightning_diffal.labeling.page.app import STATIC, make_app
from lightning_diffal.labeling.page.leases import Leases
from lightning_diffal.labeling.page.pace import Pace
from lightning_diffal.labeling.page.session import Session
from lightning_diffal.labeling.question import Answer, Question
from lightning_diffal.labeling.store import open_query, store_answers
from lightning_diffal.studies.cli import main
from tests.contrast import contrast
from tests.labeling.page_folder import asking_run, picture, picture_questions

TOKEN = "correct-token"
ORIGIN = "http://127.0.0.1:8000"
ONE, TWO = "first page", "second page"


def client_of(folder, host="127.0.0.1", **options):
    app = make_app(Session(folder, "ada", **options), TOKEN, host)
    return TestClient(app, base_url=f"{ORIGIN}/{TOKEN}/", headers={"Origin": ORIGIN})


@pytest.fixture
def folder(tmp_path):
    return asking_run(tmp_path / "run", texts(10, 11, 12))


def texts(*indices):
    return [Question(index=index, text=f"item {index}") for index in indices]


def label(name):
    return {"verdict": "label", "label": name}


def post(client, path, page=ONE, **content):
    return client.post(path, json={"client": page, **content})


def store(client, index, answer, was=None, page=ONE):
    return post(client, "api/answers", page, answers=[{"index": index, "answer": answer, "was": was}]).json()


def test_only_those_with_the_token_get_in(folder):
    client = client_of(folder)
    assert client.get("").status_code == 200
    assert post(client, "api/take", count=1).json()["items"][0]["text"] == "item 10"
    for path in (
        "/",
        "/wrong/",
        "/static/main.js",
        f"/{TOKEN}x/",
        f"/{TOKEN[:-1]}/",
        "//",
        f"/wrong/../{TOKEN}x/api/take",
    ):
        reply = client.get(f"{ORIGIN}{path}")
        assert reply.status_code == 403, path
        assert "item 10" not in reply.text


@pytest.mark.parametrize(
    ("host", "called", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1:8000", True),
        ("127.0.0.1", "localhost:9999", True),  # a tunnel from another port
        ("127.0.0.1", "[::1]:8000", True),
        ("127.0.0.1", "evil.example", False),  # a name that its owner has given the address 127.0.0.1
        ("127.0.0.1", "127.0.0.1.evil.example:8000", False),
        ("127.0.0.1", "evil.example@127.0.0.1", False),
        ("127.0.0.1", "192.168.0.7", False),
        ("127.0.0.1", "", False),
        ("0.0.0.0", "192.168.0.7:8000", True),
        ("0.0.0.0", "evil.example", False),
        ("labels.lan", "labels.lan:8000", True),
        ("labels.lan", "evil.example", False),
    ],
)
def test_the_server_answers_to_its_own_names_only(folder, host, called, allowed):
    reply = client_of(folder, host).get("", headers={"Host": called, "Origin": f"http://{called}"})
    assert reply.status_code == (200 if allowed else 403)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1:8000.evil.example", None]
)
def test_no_other_page_can_answer(folder, origin):
    client = client_of(folder)
    del client.headers["Origin"]
    headers = {} if origin is None else {"Origin": origin}
    said = {"client": ONE, "answers": [{"index": 10, "answer": label("ant"), "was": None}]}
    assert client.post("api/answers", json=said, headers=headers).status_code == 403
    assert not open_query(folder).answers
    assert client.post("api/answers", json=said, headers={"Origin": ORIGIN}).status_code == 200
    assert open_query(folder).answers[10].label == "ant"


def test_every_response_forbids_foreign_scripts_frames_and_caches(folder):
    client = client_of(folder)
    for reply in (client.get(""), client.get("static/main.js"), client.get("items/999"), client.get(f"{ORIGIN}/wrong")):
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Referrer-Policy"] == "no-referrer", "the address holds the token"
        assert reply.headers["Cache-Control"] == "no-store"


def test_only_pictures_of_the_query_are_served(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    picture(tmp_path / "secret.png", 7)
    (tmp_path / "secret.txt").write_text("secret")
    outside = picture(tmp_path / "data" / "far.png", 9)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "data" / "link.png").symlink_to(outside)
    questions = [
        *picture_questions(folder, [10]),
        Question(index=11, path="../secret.png"),
        Question(index=12, path="link.png"),
        Question(index=13, path=str(tmp_path / "secret.txt")),
        Question(index=14, path=str(outside)),
        Question(index=15, path=str(tmp_path / "data" / "link.png")),
        Question(index=16, path="missing.png"),
        Question(index=17, text="a text"),
    ]
    picture(folder / "items" / "20.png", 20)
    client = client_of(asking_run(folder, questions))
    found = {index: client.get(f"items/{index}").status_code for index in (0, *range(10, 18), 20, 999)}
    served = [0, 10, 14, 15]  # a neighbor, an item, one by its own path, and one by a link in its own dataset
    assert found == {index: 200 if index in served else 404 for index in found}
    assert client.get("items/10").content == (folder / "items" / "10.png").read_bytes()
    assert client.get("items/10").headers["Content-Type"] == "image/png"
    for path in ("items/..%2f..%2fsecret.txt", "items/../rounds.jsonl", "static/..%2fapp.py", "static/%2e%2e/app.py",
                 "static//etc/passwd", "items/-1", "static/../../../rounds.jsonl"):  # fmt: skip
        assert client.get(path).status_code in (403, 404), path


def test_formats_that_browsers_do_not_show_become_png(tmp_path):
    path = picture(tmp_path / "items" / "1.tiff", 50)
    client = client_of(asking_run(tmp_path / "run", [Question(index=5, path=str(path))]))
    assert client.get("items/5").content.startswith(b"\x89PNG")


def test_a_text_file_is_shown_as_text(tmp_path):
    (tmp_path / "letter.txt").write_text("Dear <b>reader</b>", encoding="utf-8")
    client = client_of(asking_run(tmp_path / "run", [Question(index=5, path=str(tmp_path / "letter.txt"))]))
    (item,) = post(client, "api/take", count=1).json()["items"]
    assert (item["image"], item["text"]) == (False, "Dear <b>reader</b>")


def test_two_pages_get_different_items_and_a_closed_one_gives_its_own_back(folder):
    client = client_of(folder)
    taken = [[item["index"] for item in post(client, "api/take", page, count=2).json()["items"]] for page in (ONE, TWO)]
    assert taken == [[10, 11], [12]]
    assert post(client, "api/take", "third page", count=2).json()["items"] == []
    post(client, "api/release", ONE)
    assert [item["index"] for item in post(client, "api/take", TWO, count=9).json()["items"]] == [10, 11, 12]


def test_a_silent_page_loses_its_items_and_one_that_renews_them_does_not():
    now = [0.0]
    leases = Leases(seconds=100.0, clock=lambda: now[0])
    assert leases.take(ONE, [1, 2, 3], 2) == [1, 2]
    now[0] = 90.0
    leases.renew(ONE)
    now[0] = 150.0
    assert leases.take(TWO, [1, 2, 3], 2) == [3]
    now[0] = 191.0
    assert leases.take(TWO, [1, 2, 3], 2) == [1, 3]


def test_an_answer_that_somebody_else_gave_meanwhile_is_kept(folder):
    client = client_of(folder)
    assert store(client, 10, label("ant"))["saved"] == [{"index": 10, "answer": label("ant")}]
    assert store(client, 10, label("ant"), page=TWO)["saved"], "the same answer twice is one answer"
    refused = store(client, 10, label("bee"), page=TWO)["refused"]
    assert (refused[0]["answer"], open_query(folder).answers[10].label) == (label("ant"), "ant")
    assert store(client, 10, label("bee"), was=label("ant"), page=TWO)["saved"], "who has seen it may correct it"
    store_answers(folder, [Answer(index=11, label="cow")], "eve")  # by another way
    assert store(client, 11, label("ant"))["refused"][0]["answer"] == label("cow")
    assert store(client, 10, None, was=label("bee"))["saved"] == [{"index": 10, "answer": None}]
    assert [question.index for question in open_query(folder).remaining] == [10, 12]


@pytest.mark.parametrize(
    "content",
    [
        {"answers": "all"},
        {"answers": [{"index": 10, "answer": label("ant")}]},
        {"answers": [{"index": "10", "answer": label("ant"), "was": None}]},
        {"answers": [{"index": True, "answer": label("ant"), "was": None}]},
        {"answers": [{"index": 10, "answer": {"verdict": "undo"}, "was": None}]},
        {"answers": [{"index": 10, "answer": {"verdict": "label", "label": 3}, "was": None}]},
        {"answers": [], "who": 3},
        {"answers": [], "client": 3},
    ],
)
def test_a_malformed_request_is_refused_and_changes_nothing(folder, content):
    client = client_of(folder)
    assert client.post("api/answers", json={"client": ONE, **content}).status_code == 400
    assert client.post("api/answers", content=b'{"client": [').status_code == 400
    assert not open_query(folder).answers


def test_classes_and_points_that_were_not_asked_are_refused_with_a_reason(folder):
    client = client_of(folder)
    assert "not a class" in store(client, 10, label("unicorn"))["refused"][0]["reason"]
    assert "not asked" in store(client, 50, label("ant"))["refused"][0]["reason"]
    assert not open_query(folder).answers


def test_a_disk_that_takes_no_answer_is_told_and_nothing_is_said_to_be_saved(folder):
    client = client_of(folder)
    (folder / "annotations.lock").mkdir()
    reply = post(client, "api/answers", answers=[{"index": 10, "answer": label("ant"), "was": None}])
    assert reply.status_code == 507
    assert "Not saved" in reply.json()["error"]


def test_the_time_left_ignores_pauses():
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    for seconds in (2, 4, 1000, 3):
        now[0] += seconds
        pace.add(1)
    assert pace.seconds_left(10) == pytest.approx(30)


def test_the_next_questions_appear_without_a_restart(folder):
    client = client_of(folder)
    store(client, 10, label("ant"))
    before = post(client, "api/take", count=9).json()
    assert (before["progress"]["answered"], before["progress"]["total"]) == (1, 3)
    for path in folder.iterdir():
        path.unlink()
    asking_run(folder, texts(20, 21))
    after = post(client, "api/take", count=9).json()
    assert [item["index"] for item in after["items"]] == [20, 21]


@pytest.mark.parametrize("theme", [0, 1])
def test_texts_and_edges_stand_out_in_light_and_dark(theme):
    css = (STATIC / "page.css").read_text()
    colors = dict(re.findall(r"--([\w-]+): (#\w{6});", re.findall(r":root \{(.*?)\}", css, re.DOTALL)[theme]))
    for text in ("text", "soft", "accent"):
        assert contrast(colors[text], colors["paper"]) >= 4.5, text
        assert contrast(colors[text], colors["raised"]) >= 4.5, text
    assert contrast(colors["text"], colors["tint"]) >= 4.5
    for fill in ("accent", "alert"):
        assert contrast(colors[f"on-{fill}"], colors[fill]) >= 4.5, fill
    for edge in ("edge", "mark"):
        assert contrast(colors[edge], colors["paper"]) >= 3, edge


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["."], "not the folder of a run"),
        (["run", "--audit"], "there is no audit here"),
        (["run", "--port", "99999"], "--port 99999: a number from 0 to 65535"),
        (["run", "--host", "no.such.host.invalid"], "no.such.host.invalid"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(folder, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(folder.parent)
    assert main(["label", *arguments, "--no-browser"]) == 2
    assert message in capsys.readouterr().err


def test_without_the_extra_the_message_names_it(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["label", str(folder), "--no-browser"]) == 2
    assert "pip install lightning-diffal[label]" in capsys.readouterr().err


def test_the_static_files_need_nothing_beside_themselves():
    files = list(STATIC.iterdir())
    assert {path.suffix for path in files} == {".html", ".css", ".js", ".svg"}
    for path in files:
        text = path.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?:|innerHTML|document\.write|\bstyle=|url\(|@import|\son\w+=", text), path
