"""Answers in a table: the CSV of a query with its label column filled in, by hand or by a spreadsheet."""

import csv
import io
from collections.abc import Iterator, Sequence

from lightning_diffal.labeling.question import Answer, Refusal
from lightning_diffal.labeling.store import WHOLE_NUMBER

DELIMITERS = ",;\t|"
NEEDED = ("index", "label")


def read_table(text: str) -> Iterator[Answer | Refusal]:
    """The answers of a table, and the lines that are none.

    The columns `index` and `label` may stand anywhere among others, between commas, semicolons, tabs or bars, quoted as
    spreadsheets do. Bytes that were not UTF-8 are expected as surrogates.
    """
    lines = list(io.StringIO(text, newline=""))
    start = 0
    if lines and lines[0].lower().startswith("sep="):  # what Excel reads and does not show
        start = 1
    header = find_header(lines[start]) if len(lines) > start else None
    if header is None:
        yield Refusal(line=start + 1, reason="a header with the columns index and label, each once, is needed.")
        return
    delimiter, names = header
    widest = 0
    for number, row in rows_of(lines, start + 1, delimiter):
        if isinstance(row, str):
            yield Refusal(line=number, reason=row)
        elif any(cell.strip() for cell in row):
            widest = max(widest, len(row))
            yield read_row(number, row, names)
    if 0 < widest < len(names):
        reason = f"the header has {len(names)} cells and no row as many: a line may have been lost in it."
        yield Refusal(line=start + 1, reason=reason)


def find_header(line: str) -> tuple[str, list[str]] | None:
    """The delimiter, and the names of the columns."""
    for delimiter in DELIMITERS:
        try:
            names = [cell.strip().lower() for cell in next(csv.reader([line], delimiter=delimiter))]
        except (csv.Error, StopIteration):
            continue
        if all(names.count(name) == 1 for name in NEEDED):
            return delimiter, names
    return None


def rows_of(lines: Sequence[str], start: int, delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    """Each row with its first line, or what is wrong with it.

    After a quote that is not closed nothing more is read: what follows may be inside of a cell.
    """
    while start < len(lines):
        reader = csv.reader(iter(lines[start:]), delimiter=delimiter, strict=True)
        try:
            row = next(reader)
        except csv.Error as error:
            if reader.line_num > 1 or "end of data" in str(error):
                rest = len(lines) - start - 1
                yield start + 1, f"a quote is not closed: this line and the {rest} after it are not read."
                return
            yield start + 1, f"this line cannot be read ({error})."
        except StopIteration:
            return
        else:
            yield start + 1, row
        start += max(1, reader.line_num)


def read_row(number: int, row: list[str], names: list[str]) -> Answer | Refusal:
    if any(cell.strip() for cell in row[len(names) :]):
        return Refusal(line=number, reason=f"{len(row)} cells, where the header has {len(names)}.")
    cells = dict(zip(names, (cell.strip() for cell in row), strict=False))
    index, label = cells.get("index", ""), cells.get("label", "")
    whole = WHOLE_NUMBER.fullmatch(index)
    if whole is None:
        return Refusal(line=number, reason=f"{index!r:.80} is not an index: a whole number from 0 is needed.")
    point = int(whole[1])
    if any("\udc80" <= character <= "\udcff" for character in label):
        return Refusal(line=number, index=point, reason="the label is not UTF-8: save the table in this encoding.")
    return Answer(index=point, label=label, who=cells.get("who", ""), line=number)
