"""The page can be read by everyone, everywhere: without eyes, without colors, in the dark, offline."""

import itertools
import re

import pytest

from lightning_diffal.report.style import DARK, HUES, LIGHT, STYLES, style_of
from lightning_diffal.studies.report.page import page
from lightning_diffal.studies.report.sections import sections_of
from tests.contrast import contrast
from tests.html_tree import parse
from tests.studies.synthetic_results import results_of


@pytest.fixture(scope="module")
def html():
    return page(sections_of(results_of()))


@pytest.fixture(scope="module")
def whole(html):
    return parse(html)


def test_names_are_escaped_everywhere(html, whole):
    name = "entropy <b>&\"'"
    assert name not in html
    assert not list(whole.all("b"))
    assert name in {cell.text for cell in whole.all("th")}
    assert any(name in node.attributes["aria-label"] for node in whole.all("svg") if "aria-label" in node.attributes)


def test_the_page_reads_well_without_eyes(whole):
    ids = [node.attributes["id"] for node in whole.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    targets = {node.attributes["href"].removeprefix("#") for node in whole.all("a")}
    assert targets <= set(ids)
    levels = [int(node.tag[1]) for node in whole.all() if re.fullmatch("h[1-6]", node.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for node in [*whole.all("svg"), *whole.all("img")]:
        hidden = node.attributes.get("aria-hidden") == "true"
        assert hidden or (node.attributes["role"] == "img" and len(node.attributes["aria-label"]) > 20)
    for cell in whole.all("th"):
        assert cell.attributes["scope"] in {"row", "col"}
    for control in [*whole.all("input"), *whole.all("button")]:
        assert control.attributes.get("aria-label") or control.text
    assert next(whole.all("html")).attributes["lang"] == "en"
    assert "width=device-width" in next(whole.all("meta", name="viewport")).attributes["content"]
    for figure in whole.all("figure"):
        assert figure.children[0].tag == "figcaption"
        assert list(figure.all("table")) or "paired by seed" in figure.text


def test_the_page_needs_nothing_beside_itself(html, whole):
    assert not re.search(r"https?://|url\(|@import", html)
    assert not [node for node in whole.all() if {"src", "srcset"} & node.attributes.keys() or node.tag == "link"]


def test_light_and_dark_each_have_every_color(html):
    light, dark = re.search(r":root\{(.*?)\}@media \(prefers-color-scheme: dark\)\{:root\{(.*?)\}\}", html).groups()
    names = [set(re.findall(r"--([\w-]+):", theme)) for theme in (light, dark)]
    assert names[0] == names[1]
    assert set(re.findall(r"var\(--([\w-]+)\)", html)) <= names[0]
    assert "prefers-reduced-motion" in html


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_every_line_stands_out_from_the_paper(theme):
    for hue in HUES:
        assert contrast(theme[hue], theme["paper"]) >= 3, hue


def test_no_two_selectors_look_alike():
    assert len(set(STYLES.values())) == len(STYLES)
    assert len({(look.dash, look.marker) for look in STYLES.values() if look.hue == "blue"}) == 3
    assert style_of("mine", "mine") == style_of("mine", "mine")
