"""Hooks of the documentation site: README, CONTRIBUTING and CHANGELOG are pages of it, written once."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that work on GitHub, made to work on the site, where all pages are in one folder."""
    markdown = re.sub(r"(?<=\]\()(docs/|\.\./)", "", markdown)
    for source, page in PAGES.items():
        markdown = markdown.replace(f"]({source}", f"]({page}")
    return markdown
