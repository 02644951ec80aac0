"""The caller's own code inside `generate`: it sees the caller's layout, whatever the model sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from .history import History

__all__ = ["CallersStreamer", "InCallersLayout", "prefix_function"]


class InCallersLayout:
    """A logits processor or stopping criterion of the caller's that is shown ids in the caller's layout.

    Everything else about it is its own: attributes, state, the parameters it asks for, what it raises.
    """

    def __init__(self, callback: Any, history: History) -> None:
        self._callback, self._history = callback, history
        # LogitsProcessorList reads here which further arguments a processor wants.
        self.__dict__["__call__"] = callback.__call__

    def __call__(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        return self._callback(self._history.to_caller(input_ids), *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_callback", "_history"):  # not there yet while being copied
            raise AttributeError(name)
        return getattr(self._callback, name)


def prefix_function(function: Callable[[int, Tensor], Sequence[int]], history: History) -> Callable[..., Sequence[int]]:
    """A `prefix_allowed_tokens_fn` that is shown each row in the caller's layout."""

    def allowed(prompt: int, ids: Tensor) -> Sequence[int]:
        return function(prompt, history.row_to_caller(prompt, ids))

    return allowed


class CallersStreamer:
    """A streamer of the caller's to which the prompt goes in the caller's layout; new tokens go as they are."""

    def __init__(self, streamer: Any, history: History) -> None:
        self._streamer, self._history = streamer, history
        self._prompt_is_next = True  # generate puts the prompt first, in every release from 4.46 to 5.24

    def put(self, value: Tensor) -> None:
        """Hands on the prompt, in the caller's layout, or the next tokens."""
        if self._prompt_is_next:
            self._prompt_is_next = False
            value = self._history.to_caller(value)
        self._streamer.put(value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_streamer", "_history"):
            raise AttributeError(name)
        return getattr(self._streamer, name)
