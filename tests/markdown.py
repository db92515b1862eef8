"""The Markdown files of the repository, and what is in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(language):
    """The fenced blocks in a language, of all pages; "" are those of the shell."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 1
            found.append(Block(page.name, line, *match.groups()))
    return [block for block in found if block.language == language]


def inline_code():
    """What stands between single backticks, of all pages, with the page; line breaks are spaces."""
    found = []
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        found += [(page.name, " ".join(code.split())) for code in re.findall(r"`([^`]+)`", prose)]
    return found


def commands():
    """What a user would type in a shell, of all pages, without comments and settings of the environment."""
    lines = [(block.page, line) for block in blocks("") for line in block.text.splitlines()]
    parts = [(page, part) for page, line in lines + inline_code() for part in re.split(r" && |\s+#", line)]
    programs = r"(lightning-diffal|python|make|\.venv/bin/python) "
    stripped = [(page, re.sub(r"^([A-Z_]+=\S+ )+", "", part.strip())) for page, part in parts]
    return [(page, command) for page, command in stripped if re.match(programs, command)]


def tables(path):
    """The tables of a page, each a list of rows, each a list of cells."""
    found = re.findall(r"(?:^\|.*\|\n)+", path.read_text(), re.MULTILINE)
    rows = [[re.split(r"(?<!\\)\|", line.strip("|")) for line in table.splitlines()] for table in found]
    return [[[cell.strip() for cell in row] for row in table] for table in rows]
