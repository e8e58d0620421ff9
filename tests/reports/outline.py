"""What a test wants to know of an HTML page, read with the standard library's parser."""

from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Ids, headings, links, and elements with their attributes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.links: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.last = ""
        self.texts: list[tuple[str, str]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name in ("href", "src") and value]
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.headings.append(int(tag[1]))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self.texts and self.open and "sub" in (self.open[-1], self.last):
            tag, before = self.texts[-1]
            self.texts[-1] = (tag, f"{before}_{data}" if self.open[-1] == "sub" else f"{before}{data.rstrip()}")
            self.last = self.open[-1]
        elif data.strip() and self.open:
            self.last = self.open[-1]
            self.texts.append((self.open[-1], data.strip()))

    def within(self, tag: str) -> list[str]:
        """The texts that stand directly in elements of that name."""
        return [text for name, text in self.texts if name == tag]
