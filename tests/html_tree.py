"""A page as a tree, refused where its tags do not close in order."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "img"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list["Node"] = field(default_factory=list)
    words: str = ""

    def all(self, tag=None, **attributes):
        """Every node below with this tag and these attributes, in the order of the page."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        for child in self.children:
            if tag in (None, child.tag) and wanted.items() <= child.attributes.items():
                yield child
            yield from child.all(tag, **attributes)

    @property
    def text(self):
        return self.words + "".join(child.text for child in self.children)

    def classed(self, name):
        return [node for node in self.all() if name in (node.attributes.get("class") or "").split()]


class TreeParser(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = [Node("page")]

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), f"<{tag}> has an attribute twice"
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag):
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data):
        if data.strip():
            self.open[-1].children.append(Node("text", words=data))


def parse(html):
    parser = TreeParser()
    parser.feed(html)
    parser.close()
    assert len(parser.open) == 1, f"<{parser.open[-1].tag}> is never closed"
    return parser.open[0]


def table_of(page, words):
    """The table whose caption has these words, as {row: {column: cell}}."""
    (found,) = [table for table in page.all("table") if words in next(table.all("caption")).text]
    head, *rows = [[cell.text for cell in row.children if cell.tag in {"th", "td"}] for row in found.all("tr")]
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}
