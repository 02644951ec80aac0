"""What `padfix run` has Python import at its start: padfix for whoever imports transformers, then the user's own.

This folder is put in front of PYTHONPATH, so the children of the program pass here too, of any Python 3: the syntax is
kept old, and no module is loaded that the program might want to be another one. When this has run, neither the folder
nor the module is left where the program could see it.
"""

import os
import sys

__all__ = ["Activation", "explain"]


class Activation:
    """A finder that finds nothing: it imports padfix, which follows `PADFIX`, when transformers is first looked for."""

    waiting = True

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        """None, whatever the name; never raises."""
        if cls.waiting and name.partition(".")[0] == "transformers":
            cls.waiting = False
            try:
                import padfix  # noqa: F401
            except Exception as error:
                explain(error)


def explain(error: Exception) -> None:
    """Says on standard error that this Python runs without padfix, and why; in strict mode with the traceback."""
    if getattr(error, "name", None) == "padfix":
        why = "padfix is not installed there. Install it, or set PADFIX=off"
    else:
        why = f"{type(error).__name__}: {error}"
    if os.environ.get("PADFIX", "").strip().lower() == "strict":
        import traceback

        traceback.print_exc()
        why += ". PADFIX=strict guards nothing"
    if sys.stderr is not None:
        sys.stderr.write(f"padfix: batches run without it in {sys.executable} ({why}).\n")


if __name__ == "sitecustomize":  # not where a tool imports it by another name
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(__file__)]
    sys.meta_path.insert(0, Activation)
    del sys.modules["sitecustomize"]
    # The next on the path. Where there is none, or it raises, the module site knows what to do.
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
