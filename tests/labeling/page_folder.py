"""Folders of runs that ask about pictures and texts, and a server for them."""

import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from PIL import Image

from lightning_diffal.labeling.page.app import make_app
from lightning_diffal.labeling.page.serve import listening
from lightning_diffal.labeling.page.session import Session
from lightning_diffal.labeling.query_files import query_name, write_questions
from lightning_diffal.labeling.question import Neighbor, Question
from lightning_diffal.pool.label_pool import LabelPool
from lightning_diffal.pool.ledger import Ledger
from lightning_diffal.pool.record import Answered
from tests.labeling.run_folder import SIZE, question_of

CLASSES = ["ant", "bee", "cow", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kiwi"]


def picture(path, shade):
    path.parent.mkdir(exist_ok=True)
    Image.new("L", (16, 16), shade).save(path)
    return path


def asking_run(folder, questions, classes=CLASSES, new_classes=False):
    """A run that has the label "ant" of points 0 to 2 and waits for answers to these questions."""
    ledger, pool = Ledger(folder), LabelPool(SIZE)
    ledger.append(replace(question_of(0, [0, 1, 2]), classes=classes), pool)
    said = {"labels": [0] * 3, "who": ["ada"] * 3, "when": ["2026"] * 3}
    ledger.append(Answered(round=0, indices=[0, 1, 2], **said), pool)
    if questions:
        indices = [question.index for question in questions]
        ledger.append(replace(question_of(1, indices, 3, new_classes=new_classes), classes=classes), pool)
        write_questions(folder, query_name(1), questions)
    return folder


def picture_questions(folder, indices):
    """Pictures in the folder, whose brightness is twice the index; the model takes all of them for bees."""
    near = Neighbor(index=0, path=str(picture(folder / "items" / "0.png", 0).relative_to(folder)), label="ant")
    return [
        Question(
            index=index,
            path=str(picture(folder / "items" / f"{index}.png", 2 * index).relative_to(folder)),
            prediction="bee",
            probability=0.8,
            reason="refine",
            neighbors=[near],
        )
        for index in indices
    ]


@contextmanager
def page_server(folder, **options):
    """The same server in a thread, and its address."""
    with listening("127.0.0.1", 0) as made:
        config = uvicorn.Config(make_app(Session(folder, "ada", **options), "token", "127.0.0.1"), lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([made],))
        thread.start()
        yield f"http://127.0.0.1:{made.getsockname()[1]}/token/"
        server.should_exit = True
        thread.join()


@contextmanager
def label_server(folder, *options):
    """`lightning-diffal label` as a process, and the address it prints."""
    command = [sys.executable, "-m", "lightning_diffal.studies.cli", "label", str(folder), "--no-browser", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        printed = ""
        while not (found := re.search(r"^http://\S+", printed, re.MULTILINE)):
            line = process.stdout.readline()
            assert line, f"{printed}{process.stderr.read()}"
            printed += line
        yield process, found.group()
    finally:
        process.kill()
        process.communicate()
