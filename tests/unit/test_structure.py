"""Structure: who imports whom, what is public, and that all of it is documented. Read from the sources, not run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import padfix

ROOT = Path(padfix.__file__).parents[1]

# Each part of padfix and the parts that it may import. `padfix` is what `import padfix` gives: the public names.
PARTS: dict[str, set[str]] = {
    "errors": set(),
    "releases": set(),
    "settings": {"errors"},
    "registry": {"errors"},
    "forks": set(),
    "nesting": set(),
    "notices": {"errors", "forks"},
    "wrapped": set(),
    "layout": set(),
    "generation": {"layout", "errors", "registry", "releases", "wrapped"},
    "strategies": {"forks", "generation", "layout", "errors", "notices"},
    "wording": {"generation", "layout"},
    "refusals": {"settings", "layout", "errors", "notices", "wording"},
    "pipeline": {
        "settings",
        "strategies",
        "generation",
        "layout",
        "errors",
        "nesting",
        "notices",
        "refusals",
        "wording",
    },
    "layers": {"notices", "wrapped"},
    "record": {"errors", "forks", "layers", "settings"},
    "patch": {"settings", "errors", "releases", "nesting", "notices", "layers", "record", "pipeline", "generation"},
    "once": {"settings", "nesting", "notices", "generation", "pipeline", "patch", "record"},
    "prompts": {"errors"},
    "special": {"errors", "generation", "notices"},
    "policy": {"errors", "generation", "layout", "notices", "prompts", "special"},
    "equivalence": {
        "padfix",
        "console",
        "errors",
        "generation",
        "layout",
        "once",
        "policy",
        "prompts",
        "settings",
        "special",
    },
    "checklist": {"generation", "layout", "patch", "releases", "settings", "special", "strategies", "wrapped"},
    "testing": {"equivalence", "errors", "generation", "notices", "patch", "prompts", "settings"},
    "padfix": {
        "checklist",
        "equivalence",
        "errors",
        "generation",
        "notices",
        "once",
        "patch",
        "picture",
        "policy",
        "registry",
        "settings",
    },
    "loading": {"errors", "generation"},
    "console": {"errors"},
    "demo": {"padfix", "console", "errors", "layout", "loading", "policy", "prompts", "special"},
    "picture": {"console", "demo", "errors", "layout", "loading", "prompts"},
    "run": {"errors", "settings"},
    "startup": {"padfix"},
    "cli": {"padfix", "checklist", "console", "demo", "equivalence", "errors", "loading", "picture", "prompts", "run"},
    "__main__": {"cli"},
}
# What the children of a program import, of whatever Python they are.
OLD_SYNTAX = "padfix.startup.sitecustomize"

# The edges: who may import `patch`.
EDGES = {"padfix", "once", "cli", "checklist", "testing", "run"}

# The packages beside the standard library that a part may import, anywhere.
PACKAGES: dict[str, set[str]] = {
    "layout": {"torch"},
    "generation": {"torch", "transformers"},
    "strategies": {"torch", "transformers"},
    "pipeline": {"torch", "transformers"},
    "layers": {"wrapt"},
    "patch": {"wrapt", "transformers"},
    "policy": {"torch", "transformers"},
    "equivalence": {"matplotlib", "rich", "torch", "transformers"},
    "checklist": {"torch", "transformers"},
    "loading": {"torch", "transformers"},
    "console": {"rich"},
    "picture": {"rich", "torch"},
    "demo": {"torch", "transformers", "tokenizers", "rich"},
    "startup": {"sitecustomize"},
}

# Who may ask for the version of something: one to tell releases apart, one to refuse them, one to show it.
VERSIONS = {
    "padfix.generation.compat",
    "padfix.patch",
    "padfix.demo.run",
    "padfix.checklist.environment",
    "padfix.equivalence.verify",
}


@dataclass(frozen=True)
class Import:
    """One name that a module imports.

    Attributes:
        target: The module, dotted; for `from x import y` the submodule x.y where there is one.
        name: The name that is taken from it, if one is.
        at_start: Whether it runs when the module is imported.
    """

    target: str
    name: str | None
    at_start: bool


@dataclass(frozen=True)
class Module:
    """One source file of padfix."""

    path: Path

    @property
    def name(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def part(self) -> str:
        return part_of(self.name)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree, at_start=True))

    def _imports(self, tree: ast.AST, *, at_start: bool) -> Iterator[Import]:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, None, at_start) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from self._imports_from(node, at_start)
            else:
                later = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (
                    isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
                )
                yield from self._imports(node, at_start=at_start and not later)

    def _imports_from(self, node: ast.ImportFrom, at_start: bool) -> Iterator[Import]:
        base = node.module or ""
        if node.level:
            package = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
            base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield Import(inner, None, at_start) if inner in NAMES else Import(base, alias.name, at_start)

    @cached_property
    def defined(self) -> set[str]:
        """The functions, classes and values that the module itself defines, outside of any function."""
        names: set[str] = set()
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        return names

    @cached_property
    def exported(self) -> list[str] | None:
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names: list[str] = ast.literal_eval(node.value)
                return names
        return None

    @cached_property
    def documented(self) -> list[tuple[str, str | None]]:
        """Each public function, class and method, and its docstring."""
        return list(self._documented(self.tree, ""))

    def _documented(self, tree: Any, prefix: str) -> Iterator[tuple[str, str | None]]:
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                yield prefix + node.name, ast.get_docstring(node)
                if isinstance(node, ast.ClassDef):
                    yield from self._documented(node, f"{prefix}{node.name}.")


def part_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "padfix"


FILES = sorted((ROOT / "padfix").rglob("*.py"))
MODULES = [Module(path) for path in FILES]
NAMES = {module.name for module in MODULES}
BY_NAME = {module.name: module for module in MODULES}

every_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)


# Who imports whom


def test_sources_are_found_and_read() -> None:
    assert {"padfix", "padfix.patch", "padfix.layout.plan", "padfix.generation.compat"} <= NAMES
    patch = BY_NAME["padfix.patch"].imports
    assert Import("padfix.settings", None, True) in patch
    assert Import("padfix.errors", "UnsupportedVersionError", True) in patch
    assert Import("padfix.pipeline", "run", False) in patch
    assert Import("padfix.once", "generate", False) in BY_NAME["padfix"].imports
    assert Import("padfix.layout.plan", "LayoutPlan", True) in BY_NAME["padfix.strategies.left_pad"].imports


def test_every_part_has_its_row() -> None:
    assert {module.part for module in MODULES} == set(PARTS)


@every_module
def test_part_imports_only_the_parts_below_it(module: Module) -> None:
    imported = {part_of(one.target) for one in module.imports if one.target.split(".")[0] == "padfix"}
    assert imported - {module.part} <= PARTS[module.part]


@every_module
def test_part_imports_only_its_packages(module: Module) -> None:
    packages = {one.target.split(".")[0] for one in module.imports} - {"padfix", *sys.stdlib_module_names}
    assert packages <= PACKAGES.get(module.part, set())


def test_rows_hold_the_directions_of_the_design() -> None:
    order = ["errors", "layout", "generation", "strategies", "pipeline", "patch", "cli"]
    for lower, upper in ((low, up) for index, low in enumerate(order) for up in order[index + 1 :]):
        assert upper not in PARTS[lower], f"{lower} may import {upper}"
    assert {part for part, below in PARTS.items() if "patch" in below} <= EDGES
    assert {part for part, packages in PACKAGES.items() if "wrapt" in packages} == {"layers", "patch"}
    reads = {"pipeline", "refusals", "once", "patch", "record", "padfix", "equivalence", "checklist", "testing", "run"}
    assert {part for part, below in PARTS.items() if "settings" in below} == reads


def test_patch_imports_the_pipeline_and_every_package_lazily() -> None:
    patch = BY_NAME["padfix.patch"].imports
    packages = {"pipeline", "wrapt", "transformers"}
    later = {part_of(one.target) if one.target.startswith("padfix") else one.target.split(".")[0] for one in patch}
    assert packages <= later
    now = {one.target for one in patch if one.at_start}
    assert not {one for one in now if part_of(one) == "pipeline" or one.split(".")[0] in packages}


def test_importing_padfix_runs_the_standard_library_alone() -> None:
    reached, waiting = set[str](), ["padfix"]
    packages = set[str]()
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        targets = {one.target for one in BY_NAME[name].imports if one.at_start}
        waiting += [one for one in targets if one in NAMES]
        packages |= {one.split(".")[0] for one in targets}
    expected = {"errors", "forks", "layers", "nesting", "notices", "patch", "record", "registry", "releases"}
    expected |= {"settings", "wrapped"}
    assert reached == {"padfix"} | {f"padfix.{name}" for name in expected}
    assert packages <= {"padfix", *sys.stdlib_module_names}


@every_module
def test_version_numbers_are_looked_at_in_one_place(module: Module) -> None:
    asked = {one.target for one in module.imports if one.name == "version" or "packaging" in one.target}
    read = {
        ast.unparse(node)
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Attribute) and node.attr == "__version__")
        or (isinstance(node, ast.Constant) and node.value == "__version__" and module.part != "padfix")
    }
    assert bool(asked | read) is (module.name in VERSIONS)


# What is run, read and sent

# Modules and functions that run code from data, start programs or reach a network.
DANGEROUS_MODULES = {
    *("cloudpickle", "code", "ctypes", "dill", "ftplib", "http", "httpx", "joblib", "marshal", "pickle", "pty"),
    *("huggingface_hub", "requests", "runpy", "shelve", "smtplib", "socket", "subprocess", "urllib", "xmlrpc"),
}
DANGEROUS_CALLS = {"eval", "exec", "compile", "__import__"}
DANGEROUS_ATTRIBUTES = {"os.system", "os.popen", "torch.load", "torch.save", "torch.hub"}
DANGEROUS_STARTS = ("os.exec", "os.spawn", "os.posix_spawn")
# `padfix run` is there to start the program that it is given, in the same Python.
ALLOWED = {"padfix.run": {"os.execve", "subprocess"}}


def _dangers(module: Module) -> set[str]:
    found = {one.target.split(".")[0] for one in module.imports} & DANGEROUS_MODULES
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DANGEROUS_CALLS:
            found.add(node.func.id)
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            found |= {name} if name in DANGEROUS_ATTRIBUTES or name.startswith(DANGEROUS_STARTS) else set()
    return found


@every_module
def test_no_code_is_made_from_data_and_nothing_is_sent(module: Module) -> None:
    assert _dangers(module) == ALLOWED.get(module.name, set())


def test_files_beside_the_sources_are_json_and_safetensors() -> None:
    files = [one for one in (ROOT / "padfix").rglob("*") if one.is_file() and "__pycache__" not in one.parts]
    assert {one.suffix for one in files if one.name != "py.typed"} == {".py", ".json", ".safetensors"}


# What is public


@every_module
def test_exported_names_are_there(module: Module) -> None:
    if module.name == "padfix":
        assert module.exported is not None
        for name in module.exported:
            assert getattr(padfix, name) is not None
    elif module.exported is not None:
        assert set(module.exported) <= module.defined
        assert len(set(module.exported)) == len(module.exported)


@every_module
def test_module_with_definitions_says_what_is_public(module: Module) -> None:
    if module.defined and module.part != "demo":
        assert module.exported is not None


@pytest.mark.parametrize("module", [one for one in MODULES if one.part != "demo"], ids=lambda module: module.name)
def test_public_functions_and_classes_are_exported(module: Module) -> None:
    public = {
        node.name
        for node in module.tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    }
    assert public <= set(module.exported or ())


@every_module
def test_names_that_others_import_are_exported(module: Module) -> None:
    for one in module.imports:
        source = BY_NAME.get(one.target)
        if source is None or one.name is None or source.exported is None:
            continue
        assert one.name in source.exported, f"{module.name} imports {one.name} from {one.target}"


def test_public_names_are_resolved_and_listed() -> None:
    assert set(padfix.__all__) <= set(dir(padfix))
    assert dir(padfix) == sorted(dir(padfix))
    assert all(getattr(padfix, name) is not None for name in dir(padfix))
    assert callable(padfix.generate)
    assert padfix.generate.__module__ == "padfix.once"


def test_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'padfix' has no attribute 'nothing'"):
        padfix.nothing  # noqa: B018


def test_errors_have_one_ancestor() -> None:
    errors = [getattr(padfix, name) for name in padfix.__all__ if name.endswith("Error")]
    assert len(errors) == 9
    assert all(issubclass(one, padfix.PadfixError) for one in errors)
    assert issubclass(padfix.PadfixWarning, UserWarning)
    assert all(one.__module__ == "padfix.errors" for one in errors)


# Documentation and size


@every_module
def test_module_is_documented_and_of_a_size_to_read(module: Module) -> None:
    assert module.name == "padfix.__main__" or _is_closed(ast.get_docstring(module.tree))
    assert ast.get_docstring(module.tree)
    assert len(module.text.splitlines()) <= 300


@every_module
def test_public_definitions_are_documented(module: Module) -> None:
    undocumented = [name for name, docstring in module.documented if not _is_closed(docstring)]
    assert undocumented == []


def _is_closed(docstring: str | None) -> bool:
    """Whether the first paragraph is there and ends in a full stop or a colon."""
    return docstring is not None and docstring.strip().split("\n\n")[0].rstrip().endswith((".", ":"))


@every_module
def test_annotations_are_not_evaluated(module: Module) -> None:
    if module.name != OLD_SYNTAX and any(
        isinstance(node, (ast.FunctionDef, ast.AnnAssign)) for node in ast.walk(module.tree)
    ):
        assert Import("__future__", "annotations", True) in module.imports


def test_what_any_python_imports_can_be_read_by_old_ones() -> None:
    ast.parse(BY_NAME[OLD_SYNTAX].text, feature_version=(3, 6))
    assert not [one for one in BY_NAME[OLD_SYNTAX].imports if one.target == "__future__"]


@pytest.mark.parametrize("word", ["utils", "helper", "manager", "handler", "engine"])
def test_house_words_are_avoided_in_names(word: str) -> None:
    names = {name for module in MODULES for name in (*module.name.split("."), *module.defined)}
    assert not {name for name in names if word in name.lower()}


@pytest.mark.parametrize("name", ["README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "constraints.txt"])
def test_file_of_the_project_is_there(name: str) -> None:
    assert (Path(__file__).parents[2] / name).is_file()


def test_package_says_that_it_is_typed() -> None:
    assert (ROOT / "padfix" / "py.typed").is_file()
