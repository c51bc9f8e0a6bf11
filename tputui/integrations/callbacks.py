"""Base of callbacks of frameworks: their errors are reported once and never reach the training."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tputui.integrations.run import Run

_log = logging.getLogger("tputui")
_Hook = TypeVar("_Hook", bound=Callable[..., None])


class Harmless:
    """Base of callbacks whose errors are reported once and never reach the training."""

    _run: Run | None = None
    _error_reported = False

    def _report_once(self, error: Exception, where: str) -> None:
        if self._error_reported:
            return
        self._error_reported = True
        if self._run is not None and self._run.is_active:
            self._run.warn_of(error, f"{type(self).__name__}.{where}")
        else:
            what = f"{type(error).__name__}: {error}"
            _log.warning("%s.%s failed: %s; training continues", type(self).__name__, where, what, exc_info=error)


def harmless(hook: _Hook) -> _Hook:
    """Catches every error of a hook, so that it does not end a training that it only reports."""

    @functools.wraps(hook)
    def guarded(self: Harmless, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001, RUF100 - reported once; an error of a callback would kill every rank
            self._report_once(error, hook.__name__)

    return cast(_Hook, guarded)


def made_class(module: dict[str, Any], wanted: str, name: str, base: Callable[[], type]) -> type:
    """The class `name` of a module of a framework: its `_Hooks` as a subclass of what the framework calls.

    For `__getattr__` of the module with these globals, so that importing the module does not import the framework.
    `wanted`: the attribute that was accessed; raises `AttributeError` if it is another. `base` imports the framework.
    """
    if wanted != name:
        raise AttributeError(f"module {module['__name__']!r} has no attribute {wanted!r}")
    hooks: type = module["_Hooks"]
    made = module[name] = type(name, (hooks, base()), {"__doc__": hooks.__doc__, "__module__": module["__name__"]})
    return made


def length_of(sized: Any) -> int | None:
    """The length of a loader or data set; None if it has none."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None
