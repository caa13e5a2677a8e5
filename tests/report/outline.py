"""A page of HTML as text and structure: one line per block, indented by sections, without styles and pictures."""

from __future__ import annotations

from html.parser import HTMLParser

#: Each starts a line of its own, with its name before its words.
BLOCKS = frozenset(["h1", "h2", "h3", "h4", "h5", "p", "li", "dt", "dd", "tr", "summary", "figcaption"])
#: Each is a line, and what it holds is indented.
ROOMS = frozenset(
    ["header", "nav", "main", "section", "article", "details", "figure", "table", "ul", "ol", "dl", "footer"]
)
#: Their words are no part of a page's text.
MUTE = frozenset(["style", "script", "title", "svg", "caption"])


class _Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.words: list[str] = []
        self.block, self.depth, self.mute = "", 0, 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "svg" and given.get("class") == "data":
            self._line("plot", given["aria-label"] or "")
        if tag in MUTE:
            self.mute += 1
        if tag in ROOMS | BLOCKS:
            self._flush()
        if tag in ROOMS:
            name = ".".join([tag, *(given.get("class") or "").split()])
            self._line(name, "(open)" if "open" in given else "")
            self.depth += 1
        if tag in BLOCKS:
            self.block = tag

    def handle_endtag(self, tag: str) -> None:
        if tag in MUTE:
            self.mute -= 1
        if tag in ("td", "th"):
            self.words.append(" | ")
        if tag in ROOMS | BLOCKS:
            self._flush()
        if tag in ROOMS:
            self.depth -= 1

    def handle_data(self, data: str) -> None:
        if not self.mute:
            self.words.append(data)

    def _flush(self) -> None:
        words = " ".join("".join(self.words).split())
        if words:
            self._line(self.block, words)
        self.words, self.block = [], ""

    def _line(self, name: str, words: str) -> None:
        self.lines.append(f"{'  ' * self.depth}{name}{': ' if name and words else ''}{words}")


def outline(source: str) -> str:
    """Return what stands between <main> and its end, as lines."""
    reader = _Outline()
    start, end = source.index("<main"), source.index("</main>") + len("</main>")
    reader.feed(source[start:end])
    reader.close()
    return "\n".join(reader.lines) + "\n"
