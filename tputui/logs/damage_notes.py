"""Sentences about damaged parts of logs: equal ones are folded, and each is reported once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

NOTES_MAX = 100
"""Kinds of damage that are named; further ones are only counted."""
PLACES_MAX = 1_000
"""Places of one kind whose sentences are stored; further ones are only counted."""
_NO_PATH = Path()
_NUMBER = re.compile(r"\d[\d,]*")
_MORE = re.compile(r" \([\d,]+ more like this\)$")


class Region(NamedTuple):
    """A damaged part of a file, in bytes."""

    path: Path
    start: int
    end: int


class _SameDamage:
    """Places with the same damage."""

    def __init__(self) -> None:
        self.sentences: dict[Region, str] = {}
        self.num_more = 0

    @property
    def folded(self) -> str:
        """The first sentence, with the number of others."""
        num_more = len(self.sentences) + self.num_more - 1
        first = self.sentences[min(self.sentences)] if self.sentences else "unreadable parts"
        return f"{first} ({num_more:,} more like this)" if num_more else first


class DamageNotes:
    """Sentences about unreadable parts, bounded in number. Those that differ only in numbers are one, with a count."""

    def __init__(self) -> None:
        self._kinds: dict[str, _SameDamage] = {}
        self._kind_of: dict[Region, str] = {}
        self._num_more = 0

    def add(self, sentence: str, region: Region | None = None) -> None:
        name = _kind_of(sentence)
        kind = self._kinds.get(name)
        if kind is None:
            if len(self._kinds) >= NOTES_MAX:
                self._num_more += 1
                return
            kind = self._kinds[name] = _SameDamage()
        if len(kind.sentences) >= PLACES_MAX:
            kind.num_more += 1
            return
        if region is None:
            region = Region(_NO_PATH, len(kind.sentences), 0)
        else:
            self._kind_of[region] = name
        kind.sentences[region] = sentence

    def forget(self, region: Region) -> None:
        """Removes the sentence about a part that is read again."""
        name = self._kind_of.pop(region, None)
        if name is not None:
            kind = self._kinds[name]
            del kind.sentences[region]
            if not kind.sentences and not kind.num_more:
                del self._kinds[name]

    @property
    def sentences(self) -> list[str]:
        """The first sentence of each kind, with the number of others of this kind."""
        sentences = [kind.folded for kind in self._kinds.values()]
        return [*sentences, f"{self._num_more:,} more unreadable parts"] if self._num_more else sentences


class ReportedDamage:
    """Which sentences about damage were reported, so that each kind is reported once, and its number at the end."""

    def __init__(self, sentences: Iterable[str] = ()) -> None:
        """`sentences` were reported before."""
        self._by_kind = {_kind_of(sentence): sentence for sentence in sentences}

    @property
    def sentences(self) -> list[str]:
        """The newest reported sentence of each kind."""
        return list(self._by_kind.values())

    def new(self, sentences: Iterable[str], *, final: bool = False) -> Iterator[str]:
        """The sentences of kinds that were not reported. `final`: also those whose number has changed."""
        for sentence in sentences:
            reported = self._by_kind.get(kind := _kind_of(sentence))
            if reported is None or (final and reported != sentence):
                self._by_kind[kind] = sentence
                yield sentence


def _kind_of(sentence: str) -> str:
    """The sentence without its numbers."""
    return _NUMBER.sub("#", _MORE.sub("", sentence))
