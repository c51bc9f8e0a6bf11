"""Replaces functions of numpy for a while, so that no program notices: one that stores or pickles them still works."""

from __future__ import annotations

import copyreg
import importlib
import sys
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

_originals: dict[int, tuple[Any, str]] = {}
"""Functions that are replaced, with their names, by their identity."""


class NumpyHook:
    """Stands in for a function of numpy. Like that it is no method if it is stored in a class."""

    def __init__(self, name: str, observe: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replaces `numpy.NAME`; `observe` returns the function to call in place of the one that it gets."""
        numpy = sys.modules["numpy"]
        self._name = name
        self._original = original = getattr(numpy, name)
        self._observed = observe(original)
        self.__name__ = self.__qualname__ = name
        self.__module__ = "numpy"
        self.__doc__ = original.__doc__
        self.__wrapped__ = original
        _originals[id(original)] = original, name
        copyreg.pickle(BuiltinFunctionType, _reduced)
        setattr(numpy, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self._observed(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_name(self._name)

    def remove(self) -> None:
        """Restores the function; the hook still calls it for those who stored the hook."""
        numpy = sys.modules["numpy"]
        if getattr(numpy, self._name, None) is self:
            setattr(numpy, self._name, self._original)
        self._observed = self._original
        _originals.pop(id(self._original), None)
        if not _originals and copyreg.dispatch_table.get(BuiltinFunctionType) is _reduced:
            del copyreg.dispatch_table[BuiltinFunctionType]


class _Numpy:
    """Is numpy when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("numpy",)


def _by_name(name: str) -> tuple[Any, ...]:
    # Unpickled in a process that need not have tputui.
    return getattr, (_Numpy(), name)


def _reduced(function: Any) -> Any:
    """How pickle stores a builtin function. It refuses those that are not found under their names."""
    original, name = _originals.get(id(function), (None, ""))
    return _by_name(name) if original is function else function.__reduce__()
