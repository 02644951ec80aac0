"""What the site needs beyond docs/: pages made of files outside of it, and links to those files.

Links are written for the repository, where they work as they stand. On the site a link to a file that has a page goes
to that page, and one to a file that has none is its text alone: the site says nothing of where the repository is.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]+)(#[^()\s]*)?\)")

# Files outside of docs/ that have a page, and the page.
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def on_files(files: Any, config: Any) -> Any:
    """The files of docs/, and a page for each of `PAGES`."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = relinked((ROOT / source).read_text(encoding="utf-8"), source, page)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A page of docs/ with its links as the site needs them."""
    name = page.file.src_uri
    return markdown if name in PAGES.values() else relinked(markdown, f"docs/{name}", name)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """A page of docs/zh says its language: browsers choose glyphs and hyphens by it."""
    return output.replace('<html lang="en"', '<html lang="zh-CN"', 1) if page.file.src_uri.startswith("zh/") else output


def relinked(text: str, source: str, page: str) -> str:
    """The text of the file `source`, with its links as they have to be on the site's page `page`.

    Both are named by their path, from the repository's root and from the root of the site.
    """

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in PAGES:
            where = PAGES[path]
        elif path.startswith("docs/"):
            where = path.removeprefix("docs/")
        else:
            return words
        return f"[{words}]({posixpath.relpath(where, posixpath.dirname(page) or '.')}{anchor})"

    return "".join(
        part if part.startswith("```") else LINK.sub(link, part)
        for part in re.split(r"(^```.*?^```)", text, flags=re.M | re.S)
    )
