"""The page in a real browser: labeling by keys, and what must not happen to an answer."""

import itertools
import shutil
import signal
import threading
from contextlib import contextmanager

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from lightning_diffal.labeling.query_files import AUDIT, write_questions
from lightning_diffal.labeling.question import Question
from lightning_diffal.labeling.store import open_query
from lightning_diffal.studies.cli import main
from tests.labeling.page_folder import CLASSES, asking_run, label_server, page_server, picture, picture_questions

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs a browser: `apt-get install chromium chromium-driver`"
)
EVIL = "<img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1200,800",
    ):
        options.add_argument(argument)
    with webdriver.Chrome(options=options, service=Service(DRIVER)) as driver:
        yield Browser(driver)


class Browser:
    def __init__(self, driver):
        self.driver = driver

    def open(self, address):
        self.driver.get(address)
        self.idle()

    def wait(self, condition):
        WebDriverWait(self.driver, 20, poll_frequency=0.02).until(lambda _: condition())

    def find(self, place):
        return self.driver.find_element(By.ID, place)

    def text(self, place):
        return self.driver.execute_script("return document.getElementById(arguments[0]).textContent", place)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def press(self, *keys):
        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def answer(self, *keys, status):
        """Press keys and wait until the page says so."""
        self.press(*keys)
        self.wait(lambda: status in self.text("status"))
        self.idle()

    def idle(self):
        """Until the page takes keys again."""
        self.wait(lambda: self.find("main").get_attribute("aria-busy") == "false")

    @property
    def item(self):
        return self.text("item-name")


@contextmanager
def second_tab(browser, address):
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    browser.open(address)
    yield
    browser.driver.close()
    browser.driver.switch_to.window(first)


def said(folder, **options):
    """The answers on the disk."""
    answers = open_query(folder, **options).answers
    return {index: answer.label or answer.verdict for index, answer in answers.items()}


def test_labels_are_given_by_keys_alone_and_nothing_acknowledged_is_lost(browser, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    asking_run(folder, picture_questions(folder, range(10, 60)))
    with label_server(folder) as (server, address):
        assert main(["label", str(folder), "--no-browser"]) == 2, "two servers would hand out the same items"
        browser.open(address)
        one_at_a_time(browser, folder)
        many_at_once(browser, folder)
        two_tabs(browser, folder, address)
        killed(browser, folder, server, address)


def one_at_a_time(browser, folder):
    place = browser.find("stage").rect
    browser.answer("2", status="Saved “bee”")
    assert said(folder) == {10: "bee"}, "on the disk when the page says so"
    browser.answer("s", status="Saved “skipped”")
    browser.answer("c", status="Saved “can’t tell”")
    browser.answer("/", "kiw", Keys.ENTER, status="Saved “kiwi”")
    assert said(folder) == {10: "bee", 11: "skip", 12: "cannot_tell", 13: "kiwi"}
    assert browser.text("answered") == "4 of 50"
    browser.answer("u", status="Taken back: “kiwi”")
    assert (browser.item, 13 in said(folder)) == ("13.png", False)
    browser.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert (browser.item, browser.text("about")) == ("11.png", "Answered: skipped")
    browser.answer("3", status="Saved “cow”")
    assert (said(folder)[11], browser.item) == ("cow", "12.png")
    browser.answer("u", status="Taken back: “cow”")
    assert said(folder)[11] == "skip", "undo of a correction brings back what was said before"
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert browser.item == "13.png"
    shown = "return document.querySelector('#stage img').naturalWidth"
    browser.wait(lambda: browser.driver.execute_script(shown) == 16)
    assert "bee" not in browser.text("about"), "guesses are hidden at first"
    browser.press("g", "/", "kiw")
    assert "Model: bee 80%" in browser.text("about")
    assert browser.find("stage").rect == place, "the item stays where it is"
    browser.press(Keys.ESCAPE)
    browser.press("n")
    browser.wait(lambda: [one.text for one in browser.all("#neighbors figcaption")] == ["ant"])
    browser.press("n", "g")


def many_at_once(browser, folder):
    browser.press("v")
    browser.wait(lambda: len(browser.all("#cards li")) == 24)
    browser.press("1", Keys.ARROW_DOWN, " ", Keys.ARROW_RIGHT, " ", "4")  # one marked, then two selected and marked
    assert browser.text("confirm-words") == "Save 3"
    assert not set(said(folder)) - {10, 11, 12}, "marks are not saved"
    browser.answer(Keys.ENTER, status="Saved 3 answers")
    assert sorted(set(said(folder).values())) == ["ant", "bee", "cannot_tell", "dog", "skip"]
    browser.press("g")
    browser.wait(lambda: browser.text("confirm-words") == "Save 24")
    browser.press("5")  # corrects the guess of the first
    browser.answer(Keys.ENTER, status="Saved 24 answers")
    assert browser.text("answered") == "30 of 50"
    assert sorted(said(folder).values()).count("bee") == 24
    assert "eel" in said(folder).values()
    browser.answer("u", status="Taken back: 24 answers")
    assert browser.text("answered") == "6 of 50"
    browser.press("g", "v")
    browser.wait(lambda: browser.item == "14.png")
    browser.idle()


def two_tabs(browser, folder, address):
    here = browser.item
    with second_tab(browser, f"{address}?who=eve"):
        assert browser.item != here
        browser.answer("1", status="Saved “ant”")
        assert {answer.who for answer in open_query(folder).answers.values()} >= {"eve"}
        assert browser.item != here


def killed(browser, folder, server, address):
    """Answers and corrections as fast as the server takes them, until it is killed while it writes."""
    acknowledged = said(folder)
    indices = [question.index for question in open_query(folder).remaining[2:]]
    threading.Timer(0.3, server.kill).start()
    with httpx.Client(base_url=address, headers={"Origin": address[: address.index("/", 8)]}) as client:
        for index, name in itertools.cycle(itertools.product(indices, CLASSES)):
            was = {"verdict": "label", "label": acknowledged[index]} if index in acknowledged else None
            answers = [{"index": index, "answer": {"verdict": "label", "label": name}, "was": was}]
            try:
                client.post("api/answers", json={"client": "a script", "answers": answers}).raise_for_status()
            except httpx.TransportError:
                break
            acknowledged[index] = name
    assert server.wait(10) == -signal.SIGKILL
    stored = said(folder)
    different = {point: label for point, label in stored.items() if acknowledged.get(point) != label}
    assert different in ({}, {index: name}), "the one whose reply was lost"
    assert set(acknowledged) <= set(stored)
    browser.press("1")
    browser.wait(lambda: "the server does not answer" in browser.text("alert"))
    assert said(folder) == stored


def test_names_and_texts_of_the_user_are_text_and_keys_are_for_classes_called_so(browser, tmp_path):
    folder = tmp_path / "run"
    evil = picture(tmp_path / f"{EVIL}.png", 9)
    questions = [
        Question(index=10, text=f"{EVIL}</p><script>window.hacked=1</script>"),
        Question(index=11, path=str(evil)),
    ]
    questions.append(Question(index=12, text="a text", prediction=EVIL))
    asking_run(folder, questions, classes=[EVIL, "7", "</script>"], new_classes=True)
    browser.driver.get_log("browser")  # what was logged before
    with page_server(folder) as address:
        browser.open(address)
        assert "<script>window.hacked=1</script>" in browser.text("stage")
        assert browser.all("#classes button")[0].text.startswith(EVIL)
        browser.answer("1", status=f"Saved “{EVIL}”")
        assert browser.item == f"{EVIL}.png"
        browser.answer("7", status="Saved “7”")
        browser.press("g")
        browser.answer("/", "<b>", Keys.ENTER, status="Saved “<b>”")
        browser.wait(lambda: browser.text("finished-title") == "All answered")
        assert said(folder) == {10: EVIL, 11: "7", 12: "<b>"}
        assert not browser.all("main script, #classes img, #classes b, #status img")
        assert browser.driver.execute_script("return window.hacked") is None
        assert list(browser.driver.get_log("browser")) == []


def test_an_audit_is_confirmed_or_corrected_on_the_same_page(browser, tmp_path):
    asking_run(tmp_path, [])
    labeled = [
        Question(index=index, text=f"item {index}", label="ant", diffused="bee", reason="audit") for index in (2, 1)
    ]
    write_questions(tmp_path, AUDIT, labeled)
    with page_server(tmp_path, audit=True) as address:
        browser.open(address)
        assert "Its label is “ant”" in browser.text("about")
        assert not browser.find("skip").is_displayed()
        browser.answer(Keys.ENTER, status="Saved “ant”")
        assert browser.item == "Point 1"
        browser.answer("2", status="Saved “bee”")
        browser.wait(lambda: browser.text("finished-title") == "All answered")
    assert said(tmp_path, audit=True) == {2: "ant", 1: "bee"}
