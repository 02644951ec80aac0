"""The command `padfix`: parses, calls, prints. Exit status: 0 right, 1 not right, 2 a mistake in the command."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import __version__
from .errors import LoadingError, PadfixError, PadfixWarning

__all__ = ["main"]

EMBEDDED = "Without MODEL, on a small model that comes with padfix: no network, a few seconds."


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status of the command that `arguments` (`sys.argv` without them) name."""
    parsed = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = parsed.command
    with _warnings_in_a_line():
        try:
            status = command(parsed)
            sys.stdout.flush()
            return status
        except PadfixError as error:
            print(f"padfix: {error}", file=sys.stderr)
            return 2
        except BrokenPipeError:  # whoever reads, such as head, has seen enough
            _drop_output()
            return 2
        except OSError as error:
            _drop_output()
            print(f"padfix: {error.strerror or error}.", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130


def _drop_output() -> None:
    """Lets nothing more be written to standard output, which cannot take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """A block in which padfix's own warnings come as the line of a command, not as a line of its source."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if issubclass(category, PadfixWarning):
                print(f"padfix: {message}", file=sys.stderr)
            else:
                shown(message, category, *where)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _demo(parsed: argparse.Namespace) -> int:
    from .demo.run import main as demo

    return demo(parsed.model, parsed.prompts, parsed.max_new_tokens)


def _verify(parsed: argparse.Namespace) -> int:
    from .console import console, progress
    from .demo.prompts import SENTENCES, embedded_prompts
    from .equivalence.plot import check_plot, plot
    from .equivalence.table import table
    from .equivalence.verify import verify
    from .loading import embedded, load, one_line, quiet
    from .prompts import read

    screen = None if parsed.json else console()
    if parsed.plot is not None:
        check_plot(parsed.plot)
    prompts = read(parsed.prompts) if parsed.prompts else embedded_prompts() if parsed.model is None else SENTENCES
    if parsed.model is None:
        model, tokenizer = embedded(parsed.dtype, parsed.device)
    else:
        model, tokenizer = load(parsed.model, parsed.dtype, parsed.device, trust_remote_code=parsed.trust_remote_code)
    try:
        with quiet(), progress() as step:
            report = verify(
                model, tokenizer, prompts, max_new_tokens=parsed.max_new_tokens, stock=parsed.stock, progress=step
            )
    except (PadfixError, OSError):
        raise
    except Exception as error:  # whatever a model raises: exit status 1 would say that it is faulty
        raise LoadingError(f"{parsed.model or 'The embedded model'} does not run ({one_line(error)}).") from error
    if parsed.plot is not None:
        plot(report, parsed.plot)
    if screen is None:
        print(json.dumps(report.as_dict(), indent=2, allow_nan=False))
    else:
        screen.print(table(report, width=screen.width))
        screen.print(str(report), highlight=False, markup=False, soft_wrap=True)
    return 0 if report.ok else 1


def _doctor(parsed: argparse.Namespace) -> int:
    from .checklist import doctor
    from .loading import quiet, skeleton

    with quiet():
        subject = (None, None)
        if parsed.model is not None:
            subject = skeleton(parsed.model, trust_remote_code=parsed.trust_remote_code)
        diagnosis = doctor(*subject)
    print(json.dumps(diagnosis.as_dict(), indent=2, allow_nan=False) if parsed.json else diagnosis)
    return 1 if diagnosis.problems else 0


def _run(parsed: argparse.Namespace) -> int:
    from .run import run

    option = next((flag for flag in ("m", "c") if getattr(parsed, flag) is not None), None)
    program = parsed.program if option is None else [f"-{option}", *getattr(parsed, option)]
    if not program[option is not None :]:
        parsed.parser.error("nothing to run: give a SCRIPT, -m MODULE or -c CODE")
    return run(program, mode=parsed.mode, strategy=parsed.strategy)


def _show(parsed: argparse.Namespace) -> int:
    from .picture.command import main as show

    return show(
        parsed.given,
        tokenizer_name=parsed.tokenizer,
        prompts=parsed.prompts,
        side=parsed.padding_side,
        pad_token_id=parsed.pad_token_id,
        eos_token_id=parsed.eos_token_id,
        max_rows=parsed.rows,
        svg=parsed.svg,
        trust_remote_code=parsed.trust_remote_code,
    )


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
    demo.set_defaults(command=_demo)
    demo.add_argument("--model", metavar="PATH_OR_ID", help="any decoder-only model that transformers loads")
    _add_prompts(demo)
    demo.add_argument("--max-new-tokens", metavar="N", type=_positive, default=16, help=NEW_TOKENS)

    verify = commands.add_parser(
        "verify",
        help="compare a padded batch with each of its prompts alone, on any model",
        description="Runs prompts alone and in one right-padded batch through padfix, and judges each row: equal, "
        f"rounding (as without any padding, and gone in a wider dtype), or padding fault. {EMBEDDED}",
        epilog="Exit status: 0 without padding faults, 1 with, 2 for a mistake.",
    )
    verify.set_defaults(command=_verify)
    _add_model(verify, "a folder or hub id of a decoder-only model")
    _add_prompts(verify)
    verify.add_argument("--stock", action="store_true", help="run the batch in transformers as it is, without padfix")
    verify.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16", "auto"),
        default="float32",
        help="the dtype of the weights; auto is the checkpoint's (default: float32)",
    )
    verify.add_argument("--device", default="cpu", help="where the model runs, as torch names it (default: cpu)")
    verify.add_argument("--max-new-tokens", metavar="N", type=_positive, default=32, help=NEW_TOKENS)
    verify.add_argument("--plot", metavar="FILE", type=Path, help="draw the differences by row and step (.png, .svg)")
    _add_json(verify)

    doctor = commands.add_parser(
        "doctor",
        help="check versions, settings, tokenizer and model, each finding with its remedy",
        description="Goes through the checklist for padded batches and says what it sees and what to do about it. Of "
        "MODEL only configuration and tokenizer are read, no weights; without it, the environment alone.",
        epilog="Exit status: 0 without problems, 1 with, 2 for a mistake. The text can go into a bug report as it is.",
    )
    doctor.set_defaults(command=_doctor)
    _add_model(doctor, "a folder or hub id of a decoder-only model")
    _add_json(doctor)

    run = commands.add_parser(
        "run",
        usage="padfix run [--mode MODE] [--strategy STRATEGY] (SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]",
        help="run an unmodified program with padfix on",
        description="Runs a Python program as python itself would, with padfix on in it and in the Python processes "
        "that it starts: PADFIX counts where it is set, else it is fix.",
        epilog="Exit status: that of the program; 2 for a mistake.",
    )
    run.set_defaults(command=_run, parser=run)
    run.add_argument("--mode", help="as PADFIX: fix, warn or strict")
    run.add_argument("--strategy", help="as PADFIX_STRATEGY: auto, left_pad, equal_length or packed_prefill")
    run.add_argument("-m", metavar="MODULE", nargs=argparse.REMAINDER, help="a module, and its arguments")
    run.add_argument("-c", metavar="CODE", nargs=argparse.REMAINDER, help="code, and its arguments")
    run.add_argument("program", metavar="SCRIPT", nargs=argparse.REMAINDER, help="a script, and its arguments")

    show = commands.add_parser(
        "show",
        help="draw a batch before and after padfix: tokens, pads, and where each reply starts",
        description="Draws a padded batch as you pass it and as the model gets it. The batch is a JSON file with "
        'input_ids and attention_mask ("-": standard input), or the prompts as the tokenizer pads them; without '
        "arguments, prompts and tokenizer that come with padfix. Nothing is generated.",
        epilog="Exit status: 0 for a picture, 2 for a mistake.",
    )
    show.set_defaults(command=_show)
    show.add_argument("given", metavar="BATCH.json | PROMPT", nargs="*", help="one JSON file, or prompts")
    show.add_argument("--tokenizer", metavar="PATH_OR_ID", help="whose tokens the prompts or ids are")
    show.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the tokenizer")
    _add_prompts(show)
    show.add_argument(
        "--padding-side", choices=("left", "right"), help="where prompts are padded (default: as it does)"
    )
    show.add_argument("--pad-token-id", metavar="ID", type=int, help="tells the pads of a batch without attention_mask")
    show.add_argument("--eos-token-id", metavar="ID", type=int, help="where it is the pad id too, pads are a guess")
    show.add_argument("--rows", metavar="N", type=_positive, default=24, help="rows to draw (default: %(default)s)")
    show.add_argument("--svg", metavar="FILE", type=Path, help="write the picture to a file too")
    return parser


NEW_TOKENS = "length of a reply (default: %(default)s)"


def _add_model(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", help=what)
    parser.add_argument("--trust-remote-code", action="store_true", help="run code that comes with MODEL")


def _add_prompts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompts",
        metavar="FILE",
        type=Path,
        help="a UTF-8 file with one prompt a line; .jsonl: a JSON string or list of messages a line",
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else, on standard output")


def _positive(text: str) -> int:
    """A whole number from 1 on, as argparse reads it."""
    number = int(text) if text.strip().lstrip("+-").isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number
