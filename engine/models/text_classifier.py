"""A text classifier: embedding, LSTM, pooling over the words, logits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn

from engine.models.scan_lstm import LSTM

Pool = Literal["mean", "last"]
PADDING = 0
"""The padding token; its embedding is 0."""


class LstmClassifier(nn.Module):
    """Tokens [n, time] with lengths [n] -> float32 logits [n, num_logits].

    Padding follows the text and has no effect: the LSTM is unidirectional, and its states at padding are ignored.
    """

    def __init__(
        self,
        vocabulary: int,
        embedding: int = 64,
        hidden: int = 64,
        *,
        layers: int = 1,
        dropout: float = 0.3,
        num_logits: int = 1,
        pool: Pool = "mean",
    ) -> None:
        """`vocabulary` counts all tokens, including padding (0); `dropout` acts between layers and before the logits.

        `pool` takes the mean of the states over all words, which learns long texts faster, or the state of the last
        word.
        """
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=PADDING)
        between = dropout if layers > 1 else 0.0
        self.lstm = LSTM(embedding, hidden, num_layers=layers, batch_first=True, dropout=between)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, num_logits)
        self.pool: Pool = pool

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """float32 logits [n, num_logits] of tokens [n, time] with lengths [n]. An empty text has states of 0."""
        states, _ = self.lstm(self.embedding(tokens))
        pooled = mean_state(states, lengths) if self.pool == "mean" else last_state(states, lengths)
        logits: torch.Tensor = self.head(self.dropout(pooled))
        return logits.float()


class WordList(nn.Module):
    """The words of a vocabulary, stored in the network's state as UTF-8 bytes, one word per line."""

    def __init__(self, words: Iterable[str]) -> None:
        super().__init__()
        self.words = tuple(words)

    def get_extra_state(self) -> torch.Tensor:
        """The words as uint8 [bytes]."""
        return torch.frombuffer(bytearray("\n".join(self.words).encode() + b"\n"), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Loads the words of a saved network, uint8 [bytes]."""
        text = bytes(state.cpu().tolist()).decode()
        self.words = tuple(text.splitlines()) if text.strip() else ()


def mean_state(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The mean of each row's first `lengths` states: [n, time, features] -> [n, features]."""
    return (states * (_places(states) < lengths[:, None]).unsqueeze(2)).sum(dim=1) / lengths.clamp(min=1)[:, None]


def last_state(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The state of each row at its last valid step: [n, time, features] with lengths [n] -> [n, features].

    Uses a mask: the gradient of a gather would be a scatter over all states, which cannot be sharded over the cores.
    """
    return (states * (_places(states) == lengths[:, None] - 1).unsqueeze(2)).sum(dim=1)


def _places(states: torch.Tensor) -> torch.Tensor:
    return torch.arange(states.shape[1], device=states.device)[None]
