"""The documentation as text: README.md, CHANGELOG.md, CONTRIBUTING.md and docs/, their blocks of code, links, headings.

A comment right above a block of code says what a test makes of it:

    <!-- not run: needs a GPU -->          the reason for which no test runs it
    <!-- file: app.py -->                  it is a file, for the commands of the page
    <!-- raises: RightPaddingError -->     it ends in this error
    <!-- message: stock warning -->        it quotes a message, which is compared with the real one
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DOCS", "PAGES", "RUN", "Block", "Link", "anchors", "blocks", "links", "name", "without_comments"]

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RUN = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
PAGES = (*RUN, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md")

_FENCE = re.compile(r"^( *)```(.*)$")
_NOTE = re.compile(r"^<!-- (not run|file|raises|message): (.+) -->$")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*)\)")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        page: The file that it is in.
        line: The line of its first line of code.
        language: The word after the fence; empty where there is none.
        note: What the comment above it says, `not run`, `file`, `raises` or `message`, and of what; empty without one.
        code: Its lines.
    """

    page: Path
    line: int
    language: str
    note: tuple[str, str]
    code: str

    @property
    def where(self) -> str:
        return f"{name(self.page)}:{self.line}"


@dataclass(frozen=True)
class Link:
    """A link or a picture: where it stands, its words and its target."""

    page: Path
    line: int
    words: str
    target: str
    is_picture: bool

    @property
    def where(self) -> str:
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    """The page as it is named from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The blocks of code of a page, in order."""
    return [one for one in _parts(page) if isinstance(one, Block)]


def links(page: Path) -> list[Link]:
    """The links of a page, outside of code."""
    found = []
    for line, text in _prose(page):
        for one in _LINK.finditer(re.sub(r"`[^`]*`", lambda code: "x" * len(code[0]), text)):
            found.append(Link(page, line, text[one.start(2) : one.end(2)], one[3], one[1] == "!"))
    return found


def anchors(page: Path) -> list[str]:
    """The anchors of a page's headings, as both GitHub and the site make them."""
    made: list[str] = []
    for _, text in _prose(page):
        if heading := re.match(r"^#{1,6} (.+)$", text):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").strip().lower()
            made.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return made


def without_comments(block: Block) -> str:
    """The code of a block without what a translation changes: comments and blank lines."""
    if block.language == "python":
        kept = [
            (one.type, one.string)
            for one in tokenize.generate_tokens(io.StringIO(block.code).readline)
            if one.type not in (tokenize.COMMENT, tokenize.NL)
        ]
        return repr(kept)
    if block.language == "sh":
        return "\n".join(line.split(" #")[0].rstrip() for line in block.code.splitlines() if line.strip())
    return block.code


def _prose(page: Path) -> Iterator[tuple[int, str]]:
    return (one for one in _parts(page) if isinstance(one, tuple))


def _parts(page: Path) -> Iterator[Block | tuple[int, str]]:
    """The lines of a page with their numbers, and its blocks of code in place of theirs."""
    inside: tuple[str, str, int] | None = None
    note, code = ("", ""), list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            inside, code = (fence[1], fence[2].strip(), number + 1), []
        elif inside is not None and fence and not fence[2]:
            indent, language, start = inside
            text = "".join(one.removeprefix(indent) + "\n" for one in code)
            yield Block(page, start, language, note, text)
            inside, note = None, ("", "")
        elif inside is not None:
            code.append(line)
        else:
            said = _NOTE.match(line.strip())
            note = (said[1], said[2]) if said else ("", "")
            yield number, line
    if inside is not None:
        raise ValueError(f"{name(page)} has a block that does not end, from line {inside[2]} on.")
