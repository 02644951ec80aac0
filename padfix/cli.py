"""The command `padfix`: parses, calls, prints. Exit status: 0 right, 1 not right, 2 a mistake in the command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .errors import PadfixError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status of the command that `arguments` (`sys.argv` without them) name."""
    parsed = _parser().parse_args(arguments)
    try:
        from .demo.run import main as demo

        return demo(parsed.model, parsed.prompts, parsed.max_new_tokens)
    except PadfixError as error:
        print(f"padfix: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="padfix",
        description="Batched generate in which every prompt gets exactly what it gets alone.",
        epilog="Exit status: 0 right, 1 not right, 2 a mistake in the command.",
    )
    parser.add_argument("--version", action="version", version=f"padfix {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="show what right padding does to a batch, and the repair",
        description="Runs prompts alone and in one padded batch, with and without padfix, and shows the replies side "
        "by side. Without --model, on a small model that comes with padfix: no network, a few seconds.",
        epilog="Exit status: 0 if every padfix reply equals the prompt's reply alone, 1 if not, 2 for a mistake.",
    )
    demo.add_argument("--model", metavar="PATH_OR_ID", help="any causal LM that transformers loads")
    demo.add_argument("--prompts", metavar="FILE", type=Path, help="a UTF-8 file with one prompt a line")
    demo.add_argument("--max-new-tokens", metavar="N", type=int, default=16, help="length of a reply (default: 16)")
    return parser
