"""A file is there whole or not at all."""

import os
import signal

import pytest

from lightning_diffal.pool.folder.files import replace_durably, write_atomically


def test_the_new_content_replaces_the_old(tmp_path):
    path = tmp_path / "file"
    for content in ("old and long", "new"):
        write_atomically(path, lambda temporary, content=content: temporary.write_text(content))
        assert path.read_text() == content
    assert [file.name for file in tmp_path.iterdir()] == ["file"], "nothing else is left"


def test_a_write_that_fails_keeps_the_old_content(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fails(temporary):
        assert temporary.parent == tmp_path, "a rename is atomic within one disk only"
        temporary.write_text("half of the n")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fails)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def in_another_process(function):
    child = os.fork()
    if child == 0:
        function()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_two_processes_that_write_one_file_never_mix(tmp_path):
    path = tmp_path / "file"

    def slowly(temporary):
        temporary.write_text("first half, ")
        assert in_another_process(lambda: write_atomically(path, lambda other: other.write_text("other"))) == 0
        assert path.read_text() == "other"
        with temporary.open("a") as file:
            file.write("second half")

    write_atomically(path, slowly)
    assert path.read_text() == "first half, second half"


def test_a_process_killed_while_writing_leaves_the_old_content(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def is_killed(temporary):
        temporary.write_text("half of the n")
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_another_process(lambda: write_atomically(path, is_killed)) == -signal.SIGKILL
    assert path.read_text() == "old"


def test_a_folder_of_files_gets_its_name_at_once(tmp_path):
    temporary = tmp_path / "folder.tmp"
    (temporary / "inside").mkdir(parents=True)
    (temporary / "inside" / "file").write_text("content")
    replace_durably(temporary, tmp_path / "folder")
    assert (tmp_path / "folder" / "inside" / "file").read_text() == "content"
    assert not temporary.exists()
