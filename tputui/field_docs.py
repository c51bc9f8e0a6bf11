"""Reads the documentation of the fields of a class from the docstrings under the fields.

Generated documentation, the launcher and error messages use it.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from functools import cache


@cache
def field_docs(cls: type) -> dict[str, str]:
    """Docstring by field name, base classes included, in the order of definition; white space is folded."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):
            continue
        body = ast.parse(source).body
        if body and isinstance(body[0], ast.ClassDef):
            docs.update(_docs_in(body[0].body))
    return docs


def class_doc(cls: type) -> str:
    """Docstring of a class, from its source where the interpreter dropped it (`PYTHONOPTIMIZE=2`); "" without one."""
    if cls.__doc__ is not None:
        return inspect.cleandoc(cls.__doc__)
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):
        return ""
    return ast.get_docstring(body[0]) or "" if body and isinstance(body[0], ast.ClassDef) else ""


def _docs_in(body: list[ast.stmt]) -> dict[str, str]:
    """Pairs every annotated field with the string expression that follows it."""
    docs: dict[str, str] = {}
    for statement, following in itertools.pairwise(body):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            docs[statement.target.id] = " ".join(str(following.value.value).split())
    return docs
