"""Healthy: the collate function pads texts to one of two lengths, and the loader drops the smaller last batch."""

import random

import torch
import torch_xla
from small import CLASSES, Net
from torch import nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

net = Net()
net.model = nn.Sequential(nn.Embedding(100, 16, padding_idx=0), nn.Linear(16, CLASSES)).to(net.device)
net.optimizer = torch.optim.SGD(net.model.parameters(), lr=0.1)
random.seed(0)
texts = [(torch.randint(1, 100, (random.randint(5, 20),)), torch.randint(CLASSES, ())) for _ in range(60)]


def pad_to_bucket(batch):
    tokens, labels = zip(*batch, strict=True)
    tokens = pad_sequence(tokens, batch_first=True)
    length = 12 if tokens.shape[1] <= 12 else 20
    return pad(tokens, (0, length - tokens.shape[1])), torch.stack(labels)


def loss_of(batch):
    tokens, labels = (part.to(net.device) for part in batch)
    return cross_entropy(net.model(tokens).mean(1), labels)


def validate():
    losses = []
    with torch.no_grad():
        for batch in DataLoader(texts, batch_size=4, collate_fn=pad_to_bucket, drop_last=True):
            losses.append(loss_of(batch))
            torch_xla.sync()
    return losses


for batch in DataLoader(texts, batch_size=4, collate_fn=pad_to_bucket, drop_last=True):
    net.update(loss_of(batch))
    torch_xla.sync()
validate()
