"""The documentation as text: links and anchors lead somewhere, blocks say what they are, the site has every page."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pages
import pytest
from pages import DOCS, PAGES, RUN

import padfix
import padfix.testing

ROOT = Path(__file__).parents[2]
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
LANGUAGES = {"python", "sh", "text", "toml", "yaml", "dockerfile", "ini", "diff", "json"}

every_page = pytest.mark.parametrize("page", PAGES, ids=pages.name)


def test_a_page_is_read_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# A `name`, and 中文:\n\n[one](a.md#b) ![two](p.svg) `[no](x.md)`\n\n<!-- not run: a reason -->\n```sh\n"
        "# [no](y.md)\nls  # all\n```\n\nno note\n```python\nx = 1  # one\n```\n"
    )
    assert pages.anchors(page) == ["a-name-and-中文"]
    assert [(one.target, one.is_picture) for one in pages.links(page)] == [("a.md#b", False), ("p.svg", True)]
    first, second = pages.blocks(page)
    assert (first.where, first.language, first.note) == ("page.md:7", "sh", ("not run", "a reason"))
    assert (second.where, second.language, second.note) == ("page.md:13", "python", ("", ""))
    assert pages.without_comments(first) == "# [no](y.md)\nls"
    assert "one" not in pages.without_comments(second)
    page.write_text("```python\n")
    with pytest.raises(ValueError, match=r"page.md has a block that does not end, from line 2"):
        pages.blocks(page)


@every_page
def test_links_lead_to_what_is_there(page: Path) -> None:
    broken = []
    for link in pages.links(page):
        target, _, anchor = link.target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        at = (page.parent / unquote(target)).resolve() if target else page
        if not at.is_relative_to(ROOT) or not at.exists() or not target + anchor:
            broken.append(f"{link.where}: {link.target}")
        elif anchor and (at.suffix != ".md" or unquote(anchor) not in pages.anchors(at)):
            broken.append(f"{link.where}: {link.target} (no such heading)")
    assert broken == []


def test_links_go_to_no_page_of_the_network_but_the_named() -> None:
    away = {link.target for page in PAGES for link in pages.links(page) if link.target.startswith("http")}
    assert away <= {"https://semver.org"}


@every_page
def test_headings_are_told_apart(page: Path) -> None:
    if page.name == "CHANGELOG.md":  # its releases repeat their headings
        return
    assert len(set(pages.anchors(page))) == len(pages.anchors(page))


@every_page
def test_pictures_say_what_they_show(page: Path) -> None:
    assert [one.where for one in pages.links(page) if one.is_picture and len(one.words) < 20] == []


@every_page
def test_blocks_say_their_language(page: Path) -> None:
    assert [one.where for one in pages.blocks(page) if one.language not in LANGUAGES] == []


@every_page
def test_notes_stand_above_what_they_are_for(page: Path) -> None:
    kinds = {"not run": {"python", "sh"}, "file": LANGUAGES, "raises": {"python"}, "message": {"text"}}
    for block in pages.blocks(page):
        kind, what = block.note
        assert not kind or block.language in kinds[kind], block.where
        assert kind != "not run" or len(what.split()) > 1, block.where
    text = page.read_text(encoding="utf-8")
    noted = sum(bool(block.note[0]) for block in pages.blocks(page))
    assert len(re.findall(r"^<!-- (?:not run|file|raises|message): ", text, re.M)) == noted


# The site


def test_site_lists_every_page() -> None:
    listed = re.findall(r"^ +- [^:]+: ([\w/-]+\.md)$", CONFIG, re.M)
    there = [page.relative_to(DOCS).as_posix() for page in RUN if page.is_relative_to(DOCS)]
    assert sorted(listed) == sorted([*there, "changelog.md", "contributing.md"])


def test_site_asks_nothing_of_the_network() -> None:
    assert "font: false" in CONFIG
    assert not re.findall(r"https?://", re.sub(r"^#.*$", "", CONFIG, flags=re.M))
    drawn = "".join(path.read_text(encoding="utf-8") for path in (*DOCS.rglob("*.svg"), *DOCS.rglob("*.css")))
    assert not re.search(r"@import|url\((?!#)|(?:href|src)=[\"'](?!#)", drawn)  # other addresses name formats


def test_links_are_changed_for_the_site_alone() -> None:
    sys.path.append(str(ROOT))
    from mkdocs_hooks import relinked

    assert relinked("[a](docs/chats.md#x)", "CHANGELOG.md", "changelog.md") == "[a](chats.md#x)"
    assert relinked("[a](../limits.md)", "docs/zh/a.md", "zh/a.md") == "[a](../limits.md)"
    assert relinked("[a](../CHANGELOG.md)", "docs/a.md", "a.md") == "[a](changelog.md)"
    assert relinked("[a](../../CHANGELOG.md)", "docs/zh/a.md", "zh/a.md") == "[a](../changelog.md)"
    assert relinked("[a `b`](../tests/README.md) c", "docs/a.md", "a.md") == "a `b` c"
    assert relinked("[a](https://b) [c](#d)", "docs/a.md", "a.md") == "[a](https://b) [c](#d)"
    assert relinked("![a](p/b.svg)", "docs/a.md", "a.md") == "![a](p/b.svg)"
    assert relinked("```text\n[a](../x.md)\n```\n", "docs/a.md", "a.md") == "```text\n[a](../x.md)\n```\n"


def test_api_page_has_every_public_name() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: (padfix[\w.]*)$", page, re.M))
    public = {f"padfix.{one}" for one in padfix.__all__ if one not in ("__version__", "LlamaBatchPolicy")}
    assert shown == public | {f"padfix.testing.{one}" for one in padfix.testing.__all__}
    assert "LlamaBatchPolicy" in page


def test_pictures_are_what_the_script_draws() -> None:
    sys.path.append(str(DOCS / "pictures"))
    import draw

    there = {path.name for path in (DOCS / "pictures").glob("*.svg")}
    assert there == set(draw.PICTURES)
    for name, picture in draw.PICTURES.items():
        assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == draw.svg(picture)
    used = {Path(link.target).name for page in PAGES for link in pages.links(page) if link.is_picture}
    assert there <= used


# Translations


@pytest.mark.parametrize("page", sorted((DOCS / "zh").glob("*.md")), ids=lambda page: page.name)
def test_translation_has_the_code_of_the_original(page: Path) -> None:
    translated, original = pages.blocks(page), pages.blocks(DOCS / page.name)
    assert [one.note[0] for one in translated] == [one.note[0] for one in original]
    assert [one.language for one in translated] == [one.language for one in original]
    for one, other in zip(translated, original, strict=True):
        assert pages.without_comments(one) == pages.without_comments(other), one.where
        assert one.note[0] == "not run" or one.note == other.note, one.where


@pytest.mark.parametrize("page", sorted((DOCS / "zh").glob("*.md")), ids=lambda page: page.name)
def test_translation_has_as_many_headings_and_rows(page: Path) -> None:
    def shape(text: str) -> list[str]:
        return re.findall(r"^(#+ |\| )", text, re.M)

    assert shape(page.read_text(encoding="utf-8")) == shape((DOCS / page.name).read_text(encoding="utf-8"))


def test_translation_and_original_know_each_other() -> None:
    for page in (DOCS / "zh").glob("*.md"):
        assert f"../{page.name}" in [link.target for link in pages.links(page)]
        assert f"zh/{page.name}" in [link.target for link in pages.links(DOCS / page.name)]


def test_python_of_the_pages_is_python() -> None:
    for page in RUN:
        for block in pages.blocks(page):
            if block.language == "python":
                ast.parse(block.code, block.where)
