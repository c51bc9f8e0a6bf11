"""The batches that data loaders give: how long the training waits for them, their examples, and where epochs begin.

The loader of the newest batch fetched with gradients before a backward pass is that of the training; batches fetched
without them are of an evaluation. A loader of torch_xla hands batches on from another thread, and steps the device
while it does so: the wait for data is the wait for the queue between them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from time import perf_counter
from types import FrameType
from typing import Any

from tputui.batch_rows import length_of, shapes_of
from tputui.hooks import evaluation, notes
from tputui.hooks.notes import ENDLESS, LoaderNotes
from tputui.hooks.steps import BatchesDropped
from tputui.observers.loader_batches import MadeAt, of_loader

ENDLESS_FROM = 10**9
"""Examples of an epoch from which a sampler counts as endless."""
_made_at: weakref.WeakKeyDictionary[Any, MadeAt | None] = weakref.WeakKeyDictionary()
_loaders: weakref.WeakKeyDictionary[Any, LoaderNotes] = weakref.WeakKeyDictionary()
_iterators: weakref.WeakKeyDictionary[Any, LoaderNotes] = weakref.WeakKeyDictionary()
_fed: dict[tuple[int, int], LoaderNotes] = {}
"""Of torch_xla, by loader and thread."""


def hook(module: Any) -> None:
    """Notes the batches of `torch.utils.data.DataLoader`; `module` is `torch.utils.data.dataloader`."""
    loader_class, iterator_class = module.DataLoader, module._BaseDataLoaderIter
    real_init, real_iter, real_next = loader_class.__init__, loader_class.__iter__, iterator_class.__next__
    real_get = loader_class._get_iterator

    @functools.wraps(real_init)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        real_init(self, *args, **options)
        with contextlib.suppress(Exception):
            _made_at[self] = MadeAt.of(sys._getframe(1))

    @functools.wraps(real_get)
    def _get_iterator(self: Any) -> Any:
        # A loader that goes on for all epochs may call it itself.
        iterator = real_get(self)
        with contextlib.suppress(Exception):
            _loader_of(iterator, self, sys._getframe(1))
        return iterator

    @functools.wraps(real_iter)
    def __iter__(self: Any) -> Any:
        iterator = real_iter(self)
        with contextlib.suppress(Exception):
            _begin_epoch(_loader_of(iterator, self, sys._getframe(1)))
        return iterator

    @functools.wraps(real_next)
    def __next__(self: Any) -> Any:
        began = perf_counter()
        try:
            batch = real_next(self)
        except StopIteration:
            with contextlib.suppress(Exception):
                ended = _iterators[self]
                ended.has_ended = True
                evaluation.look_at_modules(notes.of_thread(), ended)
            raise
        with contextlib.suppress(Exception):
            if (loader := _iterators.get(self)) is not None:
                _took(loader, batch, perf_counter() - began)
        return batch

    loader_class.__init__, loader_class.__iter__, iterator_class.__next__ = __init__, __iter__, __next__
    loader_class._get_iterator = _get_iterator


def hook_xla(module: Any) -> None:
    """Notes the batches that torch_xla puts on devices; `module` is `torch_xla.distributed.parallel_loader`."""
    device_class, feeder_class = module.PerDeviceLoader, module.ParallelLoader
    real_next, real_item = device_class.__next__, feeder_class.next_item
    waited = threading.local()

    @functools.wraps(real_next)
    def __next__(self: Any) -> Any:
        loader = self.__dict__.get("_tputui_notes")
        if loader is None:
            loader = self._tputui_notes = _fed_loader(getattr(self._loader, "_cpu_loader", self._loader))
            _begin_epoch(loader)
        waited.s = 0.0
        batch = real_next(self)
        with contextlib.suppress(Exception):
            _took(loader, batch, waited.s)
        return batch

    @functools.wraps(real_item)
    def next_item(self: Any, *args: Any, **options: Any) -> Any:
        began = perf_counter()
        item = real_item(self, *args, **options)
        waited.s = perf_counter() - began
        return item

    device_class.__next__, feeder_class.next_item = __next__, next_item


def _loader_of(iterator: Any, loader: Any, caller: FrameType) -> LoaderNotes:
    """The notes of a loader, which are those of its iterators."""
    loader_notes = _iterators.get(iterator) or _loaders.get(loader)
    if loader_notes is None:
        _made_at.setdefault(loader, MadeAt.of(caller))
        loader_notes = _notes_of(loader)
    _iterators[iterator] = _loaders[loader] = loader_notes
    return loader_notes


def _fed_loader(loader: Any) -> LoaderNotes:
    key = id(loader), threading.get_ident()
    return _fed.get(key) or _fed.setdefault(key, _notes_of(loader))


def _notes_of(loader: Any) -> LoaderNotes:
    try:
        made_at = _made_at.get(loader)
    except TypeError:  # of a type without weak references
        made_at = None
    batch_size = getattr(loader, "batch_size", None)
    # Without a batch size, an item of the data set may be a batch.
    num_in_set = length_of(getattr(loader, "dataset", None)) if batch_size else None
    return LoaderNotes(_length(loader), of_loader(loader, made_at), batch_size, num_in_set)


def _length(loader: Any) -> int | None:
    length = length_of(loader)
    is_endless = length is not None and length * (getattr(loader, "batch_size", None) or 1) >= ENDLESS_FROM
    return ENDLESS if is_endless else length


def _begin_epoch(loader: LoaderNotes) -> None:
    if loader.trains and not evaluation.has_gradients():
        return  # It evaluates on what it trains on.
    thread = notes.of_thread()
    training = thread.training
    if loader.trains and loader.has_ended and thread.num_steps == loader.num_steps_before:
        thread.records.append(BatchesDropped())
    loader.num_steps_before = thread.num_steps
    if loader.trains and loader.num_batches and training is not None:
        training.begin_epoch()
    loader.was_left = not loader.has_ended and 0 < loader.num_batches != loader.length
    loader.num_batches, loader.has_ended, loader.evals_at_first = 0, False, None


def _took(loader: LoaderNotes, batch: Any, waited_s: float) -> None:
    thread = notes.of_thread()
    shapes = shapes_of(batch)
    loader.shapes.take(shapes)
    if not evaluation.has_gradients():
        evaluation.begin(thread, has_batch=True)
        evaluation.look_at_modules(thread, loader)
        return
    if loader.length and loader.num_batches == loader.length:
        # A loader that keeps its iterator for all epochs.
        _begin_epoch(loader)
    loader.num_batches += 1
    thread.took_batch(loader, loader.num_examples(shapes), waited_s)
