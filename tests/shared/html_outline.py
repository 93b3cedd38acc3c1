"""HTML as tests read it: tags closed in order, with their attributes and texts."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Checks that tags are closed in order, and collects what tests ask for.

    Attributes:
        tags: every tag with its attributes.
        text: the texts that stand in each tag itself.
        spans: the attributes of every span, and its text.
        whole_text: all texts, one behind the other.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.whole_text = ""
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: dict[str, list[str]] = {}
        self.spans: list[tuple[dict[str, str], str]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "span":
            self.spans.append((self.tags[-1][1], ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)
        self.whole_text += data
        if "span" in self.open:
            attributes, before = self.spans[-1]
            self.spans[-1] = (attributes, before + data)

    def count(self, tag: str) -> int:
        return len(self.all(tag))

    def all(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [
            attributes_of_tag
            for name, attributes_of_tag in self.tags
            if name == tag and wanted.items() <= attributes_of_tag.items()
        ]
