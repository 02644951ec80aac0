"""The table of classes, from what tests/models has found: each row of a padded batch against its prompt alone.

In the environment of each release that is to have a column, and then once::

    pytest tests/models/test_{text,media}.py -m "" -o junit_family=xunit1 --junitxml results-5.24.0.xml
    python benchmarks/architectures_table.py results-*.xml --write

Prints the table, or writes it into docs/architectures.md.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import transformers
import transformers.models
from models import media, text
from transformers import PreTrainedModel

from padfix.generation.reach import reach_of_class

PAGE = Path(__file__).resolve().parents[1] / "docs" / "architectures.md"
BEGIN, END = "<!-- architectures_table.py -->", "<!-- end -->"
GROUPS = {
    "text": "Text, decoder-only",
    "encoder-decoder": "Encoder-decoder, with a prompt for the decoder",
    "picture": "Pictures",
    "sound": "Sound",
}
# In this test rows are made to run apart, whether they have to or not.
FORCED = "test_items_follow_rows_that_run_apart_or_are_named"


@dataclass
class Found:
    """What the tests of one case found in one release."""

    outcomes: set[str] = field(default_factory=set)
    strategies: set[str] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)

    @property
    def cell(self) -> str:
        """One word: how the rows run where they are exact, or why that is not known."""
        if "stock" in self.outcomes:
            return "raises"
        if "failed" in self.outcomes:
            return "fails"
        if self.outcomes == {"skipped"}:
            return "?"
        apart, left = "equal_length" in self.strategies, "left_pad" in self.strategies
        return "left, apart" if apart and left else "apart" if apart else "left"


Results = Mapping[tuple[str, str], Mapping[str, Found]]


def read(files: Iterable[Path]) -> Results:
    """What was found, by group and name of the case, then by release."""
    results: dict[tuple[str, str], dict[str, Found]] = {}
    for file in files:
        for test in ElementTree.parse(file).iter("testcase"):
            said = [(one.get("name"), one.get("value") or "") for one in test.iter("property")]
            named = dict(said)
            if "case" not in named or (test.get("name") or "").startswith(FORCED):
                continue
            key = named["group"], named["case"]
            found = results.setdefault(key, {}).setdefault(named["release"], Found())
            found.outcomes.add(_outcome(test))
            found.strategies |= {value for name, value in said if name == "strategy"}
            found.reasons += [_reason(value) for name, value in said if name == "reason"]
    return results


def _outcome(test: ElementTree.Element) -> str:
    skipped = test.find("skipped")
    if skipped is not None:
        return "stock" if skipped.get("type") == "pytest.xfail" else "skipped"
    return "failed" if test.find("failure") is not None or test.find("error") is not None else "passed"


def _reason(obstacle: str) -> str:
    """What stands in brackets behind the name of a class, or the whole phrase."""
    inside = re.fullmatch(r"\w+ \((.*)\)", obstacle)
    return inside[1] if inside else obstacle


def tables(results: Results) -> str:
    """The tables in Markdown: one for each group, then what is refused, what is not covered, and what is not seen."""
    releases = sorted({release for by_release in results.values() for release in by_release}, key=_number)
    groups = [_group(group, title, results, releases) for group, title in GROUPS.items()]
    return "\n\n".join((*groups, _refused(), _not_here(), _own_generate()))


def _refused() -> str:
    """The classes whose rows cannot run apart."""
    rows = [f"| `{name}` | `{argument}` |" for name, argument in sorted(media.NAMED_APART.items())]
    return "\n".join(
        (
            "## Refused by name where rows would have to run apart",
            "",
            "Left-padded they are exact. Under `PADFIX_STRATEGY=equal_length` and the flags that only rows apart make",
            "exact, nothing tells what of this argument belongs to which row.",
            "",
            "| class | argument |",
            "|---|---|",
            *rows,
        )
    )


def _not_here() -> str:
    """The classes that the tests leave out."""
    elsewhere = {text.SOUND, text.RETIRED}
    found = {**{name: why for name, why in text.NOT_HERE.items() if why not in elsewhere}, **media.NOT_HERE}
    rows = [f"| `{name}` | {why} |" for name, why in sorted(found.items())]
    return "\n".join(("## Not in these tables", "", "| class | why |", "|---|---|", *rows))


def _own_generate() -> str:
    """The classes of the installed release whose `generate` is not the library's, and whether it comes to padfix."""
    found = {}
    for package in pkgutil.iter_modules(transformers.models.__path__):
        for name in (f"modeling_{package.name}", f"generation_{package.name}"):
            try:
                module = importlib.import_module(f"transformers.models.{package.name}.{name}")
            except ImportError:  # there is none, or it needs a package that is not here
                continue
            for one in vars(module).values():
                is_own = isinstance(one, type) and one.__module__ == module.__name__
                if is_own and issubclass(one, PreTrainedModel):
                    reach = reach_of_class(one)
                    if reach.owner not in ("", "GenerationMixin"):
                        found[one.__name__] = reach
    rows = [f"| `{name}` | {reach.kind} |" for name, reach in sorted(found.items())]
    return "\n".join(
        (
            f"## A `generate` of their own, in {transformers.__version__}",
            "",
            "padfix sees the calls that such a method makes of the library's; `never`: the class is left as it is.",
            "",
            "| class | comes to the library's |",
            "|---|---|",
            *rows,
        )
    )


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _group(group: str, title: str, results: Results, releases: Sequence[str]) -> str:
    rows = []
    for (of, name), by_release in sorted(results.items()):
        if of != group:
            continue
        cells = [by_release[release].cell if release in by_release else "" for release in releases]
        reasons = [reason for release in reversed(releases) for reason in by_release.get(release, Found()).reasons]
        why = reasons[0] if reasons and any("apart" in cell for cell in cells) else ""
        class_name, _, case = name.partition(", ")
        rows.append(f"| `{class_name}`{', ' + case if case else ''} | {' | '.join(cells)} | {why} |")
    heading = [f"| class | {' | '.join(releases)} | why apart |", "|---" * (len(releases) + 2) + "|"]
    return "\n".join([f"## {title}", "", *heading, *rows])


def main() -> None:
    """Prints the tables or writes them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="results, as pytest writes them with --junitxml")
    parser.add_argument("--write", action="store_true", help=f"write them into {PAGE.name}")
    asked = parser.parse_args()
    made = tables(read(asked.files))
    if not asked.write:
        print(made)
        return
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}")


if __name__ == "__main__":
    main()
