"""How `model.generate` reaches `GenerationMixin.generate`, read from the source of the class; nothing is run."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from transformers import PreTrainedModel
from transformers.generation.utils import GenerationMixin

from ..wrapped import wrapped_by

__all__ = ["Kind", "Reach", "reach_of", "reach_of_class", "reached_models", "reaches_generation_mixin"]

Kind = Literal["directly", "through super", "through an inner model", "never", "unknown"]

# The library's own classes: their methods are not looked into.
_LIBRARY = frozenset({*PreTrainedModel.__mro__, GenerationMixin})


@dataclass(frozen=True)
class Reach:
    """How calls of `model.generate` come to the library's method, which is the one that padfix stands in for.

    Attributes:
        kind: `directly` (the class has the library's method), `through super` (its own method calls it), `through an
            inner model` (its own calls that of a model inside it), `never`, or `unknown` (it cannot be read).
        model: The name of the model's class.
        owner: The name of the class whose `generate` the model has; empty where there is none.
        through: The attributes that hold the inner models, such as `language_model`.
    """

    kind: Kind
    model: str
    owner: str = ""
    through: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        if not self.owner:
            return f"{self.model} has no method generate."
        own = f"{self.model}.generate" if self.owner == self.model else f"{self.model}.generate (of {self.owner})"
        inner = " and ".join(f"self.{name}.generate" for name in self.through)
        return {
            "directly": f"{self.model}.generate is the library's own method.",
            "through super": f"{own} calls GenerationMixin.generate through super().",
            "through an inner model": f"{own} calls {inner}.",
            "never": f"{own} has a loop of its own and never calls GenerationMixin.generate.",
            "unknown": f"{own} cannot be read: whether it calls GenerationMixin.generate is not known.",
        }[self.kind]


def reach_of(model: Any) -> Reach:
    """How a model's `generate` reaches the library's; an inner model counts only where its own does.

    A PEFT or compiled model is what the model in it is. A `generate` that was put on the instance is not looked at.
    """
    base = _beneath(model)
    found = reach_of_class(type(base))
    if found.kind != "through an inner model":
        return found
    kinds = {name: _inner_kind(base, name) for name in found.through}
    reaching = tuple(name for name, kind in kinds.items() if kind not in ("never", "unknown"))
    if reaching:
        return Reach(found.kind, found.model, found.owner, reaching)
    return Reach("unknown" if "unknown" in kinds.values() else "never", found.model, found.owner)


def reach_of_class(model_class: type) -> Reach:
    """How the class's `generate` reaches the library's, inner models taken to have the library's."""
    name, owner = model_class.__name__, _owner(model_class.__mro__, "generate")
    if owner is None:
        return Reach("never", name)
    calls = set(_calls(model_class, owner, "generate", set()))
    through = tuple(sorted(call.removeprefix("self.") for call in calls if call.startswith("self.")))
    kind: Kind = "never"
    if owner is GenerationMixin or _WRAPPED in calls:
        kind = "directly"
    elif _SUPER in calls:
        kind = "through super"
    elif through:
        kind = "through an inner model"
    elif _UNCLEAR in calls:
        kind = "unknown"
    return Reach(kind, name, owner.__name__, through if kind == "through an inner model" else ())


def reached_models(model: Any) -> tuple[Any, ...]:
    """The models that the library's method gets as `self` when `model.generate` is called; none where it is not."""
    base, found = _beneath(model), reach_of(model)
    if found.kind in ("directly", "through super"):
        return (model if hasattr(model, "get_base_model") else base,)  # PEFT's own has traits too
    return tuple(one for name in found.through for one in reached_models(attrgetter(name)(base)))


def reaches_generation_mixin(model: Any) -> bool:
    """Whether `model.generate` is the library's method, or PEFT's or a compiled module's, which hand on to it."""
    return _owner(type(_beneath(model)).__mro__, "generate") in (GenerationMixin, None)


# What a method's text shows of its calls, beside `self.` and the attribute that holds an inner model.
_WRAPPED, _SUPER, _UNCLEAR = "the library's method, wrapped", "super", "unclear"


def _beneath(model: Any) -> Any:
    """The model whose class has the `generate` that counts: the one in a PEFT, a compiled or another such module."""
    while True:
        if hasattr(model, "get_base_model"):
            inner = model.get_base_model()
        elif _owner(type(model).__mro__, "generate") is None:
            inner = getattr(getattr(model, "generate", None), "__self__", None)
        else:
            return model
        if inner is None or inner is model:
            return model
        model = inner


def _inner_kind(model: Any, name: str) -> Kind:
    try:
        inner = attrgetter(name)(model)
    except AttributeError:  # a call such as get_decoder(), or a model that is not there yet
        return "unknown"
    return "unknown" if inner is None or inner is model else reach_of(inner).kind


def _owner(classes: tuple[type, ...], name: str) -> type | None:
    return next((one for one in classes if name in vars(one)), None)


def _calls(model_class: type, owner: type, name: str, seen: set[tuple[type, str]]) -> Iterator[str]:
    """What `owner.name` and the methods of the model's own classes that it calls do with `generate`."""
    if (owner, name) in seen:
        return
    seen.add((owner, name))
    method = vars(owner)[name]
    if name == "generate":
        layers = list(wrapped_by(method))
        if any(one is vars(GenerationMixin)["generate"] for one in layers):
            yield _WRAPPED
            return
    tree = _tree(owner, method)
    if tree is None:
        if name == "generate":
            yield _UNCLEAR
        return
    names = _names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        receiver = _spelled(node.value, names)
        if receiver.startswith("super("):
            rest = model_class.__mro__[model_class.__mro__.index(owner) + 1 :]
        elif receiver in ("self", "type(self)"):
            rest = () if node.attr == "generate" else model_class.__mro__  # its own: this one, or the loop's start
        elif node.attr != "generate":
            continue
        elif receiver.startswith("self."):
            yield receiver
            continue
        else:
            rest = _named_class(method, receiver)
            if not rest:
                yield _UNCLEAR
        above = _owner(rest, node.attr)
        if above is GenerationMixin and node.attr == "generate":
            yield _SUPER
        elif above is not None and above not in _LIBRARY:
            yield from _calls(model_class, above, node.attr, seen)


def _tree(owner: type, method: Any) -> ast.FunctionDef | None:
    """The text of a method that was written in the class itself; None where there is none, or another was put there."""
    method = getattr(method, "__func__", method)
    try:
        function = inspect.unwrap(method)
        if not function.__qualname__.startswith(f"{owner.__qualname__}.") or function.__module__ != owner.__module__:
            return None
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (AttributeError, OSError, SyntaxError, TypeError, ValueError, IndexError):
        return None
    return tree if isinstance(tree, ast.FunctionDef) else None


def _names(tree: ast.FunctionDef) -> dict[str, str]:
    """The names in a method that stand for `self`, `super()` or what `self` holds, and what they stand for."""
    names = {tree.args.args[0].arg: "self"} if tree.args.args else {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            value = _spelled(node.value, names)
            if isinstance(target, ast.Name) and (
                value == "super()" or (value.startswith("self.") and "(" not in value)
            ):
                names[target.id] = value
    return names


def _spelled(node: ast.expr, names: dict[str, str]) -> str:
    head, dot, rest = ast.unparse(node).partition(".")
    return names.get(head, head) + dot + rest


def _named_class(method: Any, name: str) -> tuple[type, ...]:
    """The class of this name that a method sees, and those that it derives from; nothing where it is no class."""
    seen = getattr(inspect.unwrap(getattr(method, "__func__", method)), "__globals__", {}).get(name)
    return seen.__mro__ if isinstance(seen, type) else ()
