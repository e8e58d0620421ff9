import re
from xml.etree import ElementTree

from matplotlib.figure import Figure

from normlab.plots import style
from normlab.reports._svg import inline_svg


def drawn() -> Figure:
    with style():
        figure = Figure(figsize=(4, 3))
        figure.subplots().plot([1, 2, 3], label="a < b", marker="o")
        figure.axes[0].legend()
    return figure


def test_two_figures_share_no_id_and_refer_to_their_own() -> None:
    first, second = (inline_svg(drawn(), prefix, "title", "finding") for prefix in ("one", "two"))
    ids = [re.findall(r'\sid="([^"]+)"', svg) for svg in (first, second)]
    assert not set(ids[0]) & set(ids[1]) and all(name.startswith("one") for name in ids[0])
    referred = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', first))
    assert referred and referred <= set(ids[0])


def test_it_is_named_and_described_and_brings_no_style_of_its_own() -> None:
    svg = inline_svg(drawn(), "one", "A < B", 'says "so" & more')
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-labelledby") == "one-title one-desc"
    assert [(child.tag, child.text) for child in list(root)[:2]] == [("title", "A < B"), ("desc", 'says "so" & more')]
    assert "<style" not in svg and "<metadata" not in svg and "font-family" not in svg
    assert "a &lt; b" in svg
