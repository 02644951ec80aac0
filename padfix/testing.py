"""Guards for tests: padfix in one mode for a block of code, and every error that it raises there on record.

The pytest plugin (`_padfix_pytest`) puts one around each test that asks for it. In a suite without pytest:

    with guarded("strict") as guard:
        server.reply(prompts)
    assert not guard.findings
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import MissingPadTokenError
from .notices import call_site, tell, watched_by
from .patch import installed
from .prompts import Prompt
from .settings import VARIABLES, Settings, effective, is_off_in_environment

if TYPE_CHECKING:
    from .generation.call import GenerateCall

__all__ = ["Finding", "Guard", "assert_batch_matches_single", "guarded", "read_mode"]


class Finding(NamedTuple):
    """An error that padfix raised in place of a call.

    Attributes:
        file: The file of the call, relative to the guard's root where it is beneath it.
        line: The line of the call.
        message: What padfix says of the call.
    """

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class Guard:
    """Records each error that padfix raises while it watches, in every thread, also one that the code catches.

    In the mode `strict` it also refuses a batch of several prompts in a call that has no pad token.

    Attributes:
        mode: The mode that padfix is in; `off` where the environment says `PADFIX=off`, which wins.
        root: The folder that the files of findings are named from.
    """

    def __init__(self, mode: str, root: Path) -> None:
        self.mode = mode
        self.root = root
        self._findings: list[Finding] = []
        self._expected: list[list[Finding]] = []  # one for each `expected` block that is open, the innermost last
        self._told = 0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The errors so far, without those that were expected."""
        return tuple(self._findings)

    @contextmanager
    def expected(self) -> Iterator[list[Finding]]:
        """A block in which padfix has to raise an error; those that come are no findings, and the block gives them.

        It catches nothing: where the error reaches the test, `pytest.raises` stands beside it.

        Raises:
            AssertionError: padfix raised no error in the block.
        """
        came: list[Finding] = []
        self._expected.append(came)
        try:
            yield came
        finally:
            self._expected.pop()
        if not came:
            raise AssertionError(f"padfix raised no error in this block; it is in the mode {self.mode!r}.")

    def untold(self) -> tuple[Finding, ...]:
        """The findings since this was last called."""
        start, self._told = self._told, len(self._findings)
        return tuple(self._findings[start : self._told])

    def called(self, call: GenerateCall) -> None:
        """Refuses a batch without a pad token in the mode `strict`.

        Raises:
            MissingPadTokenError: The call has more than one prompt, and no pad token from anywhere.
        """
        if call.batch == 1 or effective(Settings(mode=self.mode)).mode != "strict":
            return
        from .generation.compat import resolved_config

        config = resolved_config(call)
        if config is None or config.pad_token_id is not None:
            return
        error = MissingPadTokenError(
            f"{call.prompt_name} (shape {call.prompt_shape}) holds {call.batch} prompts, and there is no pad token: "
            "generate would pad with EOS, which also ends a row. Set tokenizer.pad_token and pass "
            "pad_token_id=tokenizer.pad_token_id to generate, or set it in model.generation_config."
        )
        tell(error)
        raise error

    def refused(self, error: Exception) -> None:
        """Records an error that padfix raises, with the file and line of the call."""
        file, line = call_site()
        if Path(file).is_relative_to(self.root):
            file = str(Path(file).relative_to(self.root))
        records = self._expected[-1] if self._expected else self._findings
        records.append(Finding(file, line, str(error)))


@contextmanager
def guarded(mode: str, root: Path | None = None) -> Iterator[Guard]:
    """A block in which padfix is installed in this mode, for every thread, with a guard; afterwards as before.

    `root` is the folder to name files from; None for the current one.

    Raises:
        SettingsError: The mode is not in its list.
        UnsupportedVersionError: transformers cannot be patched.
    """
    off = is_off_in_environment()
    guard = Guard("off" if off else read_mode(mode, "mode="), root or Path.cwd())
    with nullcontext() if off else installed(guard.mode), watched_by(guard):
        yield guard


def read_mode(value: object, shown_as: str) -> str:
    """The mode that `value` stands for, whatever its case.

    Raises:
        SettingsError: `value` is not listed; the message begins with `shown_as`.
    """
    return VARIABLES["mode"].parse(value, shown_as)


def assert_batch_matches_single(
    model: Any, tokenizer: Any, prompts: Prompt | Sequence[Prompt], **generate_kwargs: Any
) -> None:
    """Fails where a batch of the prompts does not give each what it gets alone, by the verdicts of `padfix.verify`.

    The batch is padded on the tokenizer's own side and runs as this process runs it, padfix installed or not: it is
    your set-up that is tested. `max_new_tokens` is 32 unless it is given; greedy search is the default.

    Raises:
        AssertionError: A row has a padding fault; the message has the rows, both replies, and how far they are apart.
        ValueError: As `padfix.verify`.
        PadfixError: In strict mode, what padfix raises in place of the call.
    """
    from .equivalence.trial import AS_IT_IS
    from .equivalence.verify import compared

    arguments = {"max_new_tokens": 32, **generate_kwargs}
    side = tokenizer.padding_side
    report = compared(model, tokenizer, prompts, way=AS_IT_IS, side=side, arguments=arguments)
    if not report.ok:
        raise AssertionError(str(report))
