"""The size of the product in named things: lines, files, classes, record types, functions, and how they repeat.

    python -m benchmarks.code_size [--json] [--pairs] [ROOT]

Counts `tputui` and `engine` of a checkout, read from the syntax tree; nothing is imported. A record is a class that
only holds fields: a dataclass, a NamedTuple, a TypedDict, a struct of msgspec, an event or a part of the reducer's
state, or one that extends such a class. Two records are a similar pair if they share three of the fields that their
bodies declare, or more, and 75 % of those of the smaller one. A cycle is a set of modules that import each other,
imports inside functions included and imports for annotations left out.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("tputui", "engine")
SIMILAR_SHARE = 0.75
SHARED_FIELDS_MIN = 3
RECORD_BASES = frozenset({"NamedTuple", "TypedDict", "Struct", "Event", "Record", "StateStruct"})


class ClassFields(NamedTuple):
    """A class, and the names of the fields that its body declares."""

    module: str
    name: str
    bases: tuple[str, ...]
    is_dataclass: bool
    fields: frozenset[str]


class Module(NamedTuple):
    """What is counted of one file."""

    name: str
    num_lines: int
    num_functions: int
    classes: list[ClassFields]
    imports: frozenset[str]
    """Names of modules, or of things in modules, that are imported when the module runs."""


def main(argv: list[str]) -> None:
    """Prints the counts of a checkout."""
    parser = argparse.ArgumentParser(description="Size of the product in named things.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1], help="checkout to count")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--pairs", action="store_true", help="list similar records, cycles and class names")
    args = parser.parse_args(argv)
    modules = [read(path, args.root) for path in files_of(args.root)]
    records = records_of(modules)
    pairs, cycles = similar_pairs(records), cycles_of(modules)
    repeated = {name: count for name, count in class_names(modules).items() if count > 1}
    counts = {
        "lines": sum(module.num_lines for module in modules),
        "files": len(modules),
        "classes": sum(len(module.classes) for module in modules),
        "records": len(records),
        "functions": sum(module.num_functions for module in modules),
        "similar_pairs": len(pairs),
        "cycles": len(cycles),
        "engine_imports": len(engine_imports(modules)),
        "repeated_class_names": len(repeated),
    }
    print(json.dumps(counts) if args.json else "\n".join(f"{name:22} {count:9,}" for name, count in counts.items()))
    if args.pairs:
        for one, other, shared in pairs:
            print(f"{shared:.0%} {one.module}.{one.name} = {other.module}.{other.name}")
        for cycle in cycles:
            print("cycle:", ", ".join(cycle))
        print("engine imports:", ", ".join(sorted(engine_imports(modules))))
        for name, count in sorted(repeated.items(), key=lambda item: -item[1]):
            print(f"{count} classes are named {name}")


def files_of(root: Path) -> list[Path]:
    """The Python files of the product."""
    return sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))


def read(path: Path, root: Path) -> Module:
    """Counts one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    classes = [class_fields(node, name) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return Module(name, len(text.splitlines()), len(functions), classes, frozenset(imports_of(tree)))


def class_fields(node: ast.ClassDef, module: str) -> ClassFields:
    """The fields of a class."""
    annotated = [entry.target for entry in node.body if isinstance(entry, ast.AnnAssign)]
    declared = [target.id for target in annotated if isinstance(target, ast.Name)]
    bases = tuple(ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    is_dataclass = any("dataclass" in decorator for decorator in decorators)
    return ClassFields(module, node.name, bases, is_dataclass, frozenset(declared))


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Everything that is imported, without what `if TYPE_CHECKING` imports for annotations."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imports_of(node)


def records_of(modules: list[Module]) -> list[ClassFields]:
    """The classes that only hold fields."""
    classes = [entry for module in modules for entry in module.classes]
    names, num_names = set(RECORD_BASES), 0
    while len(names) > num_names:
        num_names = len(names)
        names.update(entry.name for entry in classes if entry.is_dataclass or names & set(entry.bases))
    return [entry for entry in classes if entry.is_dataclass or names & set(entry.bases)]


def similar_pairs(records: list[ClassFields]) -> list[tuple[ClassFields, ClassFields, float]]:
    """Pairs of records that share most of their fields, with the share."""
    pairs = []
    for one, other in itertools.combinations(records, 2):
        num_shared = len(one.fields & other.fields)
        share = num_shared / max(1, min(len(one.fields), len(other.fields)))
        if num_shared >= SHARED_FIELDS_MIN and share >= SIMILAR_SHARE:
            pairs.append((one, other, share))
    return pairs


def cycles_of(modules: list[Module]) -> list[list[str]]:
    """Sets of modules that import each other."""
    names = {module.name for module in modules}
    graph = {module.name: targets_of(module, names) for module in modules}
    reached = {name: reachable(name, graph) for name in graph}
    together = {name: frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted(sorted(group) for group in set(together.values()) if len(group) > 1)


def targets_of(module: Module, names: set[str]) -> set[str]:
    """The modules of the product that a module imports."""
    found = {name if name in names else name.rpartition(".")[0] for name in module.imports}
    return (found & names) - {module.name}


def reachable(name: str, graph: dict[str, set[str]]) -> set[str]:
    """The modules that a module imports, directly or not."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        for target in graph[waiting.pop()] - reached:
            reached.add(target)
            waiting.append(target)
    return reached


def engine_imports(modules: list[Module]) -> set[str]:
    """The modules of tputui that the engine imports."""
    names = {module.name for module in modules}
    targets = {target for module in modules if module.name.startswith("engine") for target in targets_of(module, names)}
    return {target for target in targets if target.startswith("tputui")}


def class_names(modules: list[Module]) -> Counter[str]:
    """How many classes have each name."""
    return Counter(entry.name for module in modules for entry in module.classes)


if __name__ == "__main__":
    main(sys.argv[1:])
