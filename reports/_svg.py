"""A figure as SVG that can stand inside a page: no id twice, an accessible name, the page's own fonts."""

import io
import re
from typing import Final

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from normlab.plots import style

_PROLOGUE: Final = re.compile(r"^.*?(?=<svg)", re.DOTALL)
#: matplotlib's own style rule would apply to the whole page; the page's style sheet has it for figures.
_REMOVED: Final = re.compile(r"\s*<metadata>.*?</metadata>|\s*<style[^>]*>.*?</style>|<!--.*?-->", re.DOTALL)
_ID: Final = re.compile(r'\sid="([^"]+)"')
_REFERENCE: Final = re.compile(r'(url\(#|href="#)([^)"]+)')
_FONTS: Final = re.compile(r"\s*font-family:[^;\"]*;?")
_NO_TURN: Final = re.compile(r' transform="rotate\(-?0 [^)]*\)"')
_ROOT: Final = re.compile(r"<svg[^>]*?viewBox=\"([^\"]+)\"[^>]*>")


def inline_svg(figure: Figure, prefix: str, title: str, finding: str) -> Markup:
    """Return ``figure`` as an ``<svg>`` element whose ids start with ``prefix`` and whose text says ``finding``."""
    text = io.StringIO()
    with style():
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = _REMOVED.sub("", _PROLOGUE.sub("", text.getvalue()))
    svg = _NO_TURN.sub("", _FONTS.sub("", svg.replace("xlink:href=", "href=")))
    root = _ROOT.match(svg)
    assert root is not None
    view = root.group(1)
    head = (
        f'<svg id="{prefix}" viewBox="{view}" role="img" aria-labelledby="{prefix}-title {prefix}-desc" '
        f'style="--natural: {float(view.split()[2]) * 4 / 3:.0f}px">'
        f'<title id="{prefix}-title">{escape(title)}</title><desc id="{prefix}-desc">{escape(finding)}</desc>'
    )
    return Markup(head + _own_ids(svg[root.end() :], prefix))  # noqa: S704 - matplotlib escapes what it writes


def _own_ids(svg: str, prefix: str) -> str:
    """Prefix the ids that something refers to, and drop the others."""
    used = {match.group(2) for match in _REFERENCE.finditer(svg)}
    kept = _ID.sub(lambda match: f' id="{prefix}-{match.group(1)}"' if match.group(1) in used else "", svg)
    return _REFERENCE.sub(lambda match: f"{match.group(1)}{prefix}-{match.group(2)}", kept)
