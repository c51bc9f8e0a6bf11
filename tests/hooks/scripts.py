"""Trains in one of several ways, and prints the true loss of each step. Argument: the name of the way."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tputui.hooks.entry import torch_imported

torch_imported()
torch.manual_seed(0)
torch.set_num_threads(1)
STEPS = 12
EXAMPLES = torch.randn(STEPS * 4, 8, 4)
network = nn.Linear(4, 1)


def error_of(step: int) -> torch.Tensor:
    """The loss of an example."""
    error: torch.Tensor = (network(EXAMPLES[step]) - 1).square().mean()
    return error


def tell(loss: float) -> None:
    """Prints a true loss."""
    sys.stdout.write(f"true loss {loss!r}\n")


def plain() -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(STEPS):
        loss = error_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss.item())


def accumulated() -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = []
        for part in range(4):
            loss = error_of(4 * step + part)
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        tell(sum(losses) / 4)


def shares() -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = []
        for part in range(4):
            loss = error_of(4 * step + part) / 4
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        tell(sum(losses))


def remainders() -> None:
    """Divides by 4 also where a step has fewer batches, or those that were left in the epoch before."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = []
        for part in range({3: 3, 7: 1, 11: 6}.get(step, 4)):
            loss = error_of((4 * step + part) % len(EXAMPLES)) / 4
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        tell(4 * sum(losses) / len(losses))


def scaled() -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    scaler = torch.amp.grad_scaler.GradScaler("cpu")
    for step in range(STEPS):
        # The third step overflows, so the scaler skips it.
        loss = error_of(step) * (float("inf") if step == 2 else 1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        tell(loss.item())


def closure() -> None:
    optimizer = torch.optim.LBFGS(network.parameters(), lr=0.1, max_iter=4)
    for step in range(STEPS):
        first: list[float] = []

        def evaluated(step: int = step, first: list[float] = first) -> torch.Tensor:
            optimizer.zero_grad()
            loss = error_of(step)
            loss.backward()
            first.append(loss.item())
            return loss

        optimizer.step(evaluated)
        tell(first[0])


def by_hand() -> None:
    weights = torch.zeros(4, requires_grad=True)
    for epoch in range(1, 4):
        for _ in range(STEPS // 3):
            loss = (weights - epoch).square().sum()
            loss.backward()
            with torch.no_grad():
                assert weights.grad is not None
                weights -= 0.1 * weights.grad
            weights.grad = None
            tell(loss.item())
            # Longer epochs than the shortest that are told exactly.
            threading.Event().wait(0.02)


def thread() -> None:
    trains = threading.Thread(target=plain)
    trains.start()
    trains.join()


def adversaries() -> None:
    other = nn.Linear(4, 1)
    first, second = torch.optim.SGD(network.parameters(), lr=0.01), torch.optim.SGD(other.parameters(), lr=0.02)
    for step in range(STEPS):
        first.zero_grad()
        errD = error_of(step)
        errD.backward()
        first.step()
        second.zero_grad()
        errG = (other(EXAMPLES[step]) + 1).square().mean()
        errG.backward()
        second.step()
        sys.stdout.write(f"true errD {errD.item()!r}\n")
        tell(errG.item())


def checkpointed() -> None:
    from torch.utils.checkpoint import checkpoint

    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(STEPS):
        # Its backward pass runs another one.
        hidden = checkpoint(network, EXAMPLES[step].requires_grad_(), use_reentrant=True)
        loss = (hidden - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss.item())


def failing() -> None:
    plain()
    raise ValueError("no more examples")


def asked() -> None:
    import tputui

    run = tputui.start(total_steps=STEPS)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(STEPS):
        loss = error_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # Not what was differentiated, so that the source of a value shows.
        run.step(loss.item() + 100)
        tell(loss.item() + 100)


def epochs() -> None:
    train = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)[:60]), batch_size=16)
    test = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)[60:100]), batch_size=20)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    # Batches before the training are no examples of it.
    mean = sum(batch.mean().item() for (batch,) in test) / len(test)
    sys.stdout.write(f"mean of the examples {mean}\n")
    for epoch in range(3):
        network.train()
        for (batch,) in train:
            loss = (network(batch) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())
        schedule.step()
        losses = []
        for (batch,) in test:
            # As skorch and ignite do, after the batch was fetched.
            network.eval()
            with torch.no_grad():
                losses.append((network(batch) - 1).square().mean().item())
        network.train()
        sys.stdout.write(f"epoch {epoch}: validation loss {sum(losses) / len(losses)}\n")


def branches() -> None:
    """Computes its loss in one of two branches, each with a backward pass of its own."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        if step % 3:
            loss = error_of(step)
            loss.backward()
        else:
            loss = error_of(step).sqrt()
            loss.backward()
        optimizer.step()
        tell(loss.item())


def sums() -> None:
    """Two losses of the same name in every second step, the first alone in the others."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = error_of(step)
        loss.backward()
        if step % 2 == 0:
            first, loss = loss, error_of(step).sqrt()
            loss.backward()
            sys.stdout.write(f"true beside {loss.item()!r}\n")
            loss = first
        optimizer.step()
        tell(loss.item())


def parts() -> None:
    """Steps after every second batch, in epochs that are called otherwise."""
    train = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)[:64]), batch_size=4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    num_epochs = 2
    for _turn in range(num_epochs):
        for number, (batch,) in enumerate(train):
            loss = (network(batch) - 1).square().mean() / 2
            loss.backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
            tell(loss.item())


def sequences() -> None:
    """Has time in the first dimension of its batches, and counts its epochs beside an index."""
    sentences = [torch.randn(3 + number % 4, 4) for number in range(16)]
    train = DataLoader(sentences, batch_size=8, collate_fn=torch.nn.utils.rnn.pad_sequence)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _number, _epoch in enumerate(range(1, 3 + 1)):
        for batch in train:
            loss = (network(batch) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())
        sys.stdout.write(f"batches {len(list(train))}\n")


def previewed() -> None:
    """Evaluates on a batch of another loader in the first epoch, and fetches it with gradients."""
    train = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)), batch_size=64)
    test = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)[:40]), batch_size=32)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for epoch in range(2):
        for number, (batch,) in enumerate(train):
            loss = (network(batch) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())
            if epoch == 0 and number == 2:
                (shown,) = next(iter(test))
                network.eval()
                sys.stdout.write(f"mean of {len(shown)} examples {network(shown).mean().item()}\n")
                network.train()
                # The plan is reported within a second.
                threading.Event().wait(1.5)


def sliced() -> None:
    """Takes the first batches of its loader in each epoch."""
    train = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)), batch_size=2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    num_steps = 6
    for _epoch in range(2):
        batches = itertools.islice(train, num_steps)
        for _number, (batch,) in enumerate(batches):
            loss = (network(batch) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())


def often() -> None:
    """Evaluates after every step."""
    test = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)[60:100]), batch_size=20)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step in range(STEPS):
        loss = error_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss.item())
        network.eval()
        with torch.no_grad():
            losses = [(network(batch) - 1).square().mean().item() for (batch,) in test]
        network.train()
        sys.stdout.write(f"validation loss {sum(losses) / len(losses)}\n")


def briefly() -> None:
    """Evaluates without a loader in each of many short epochs, and prints the result of every fourth."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for epoch in range(STEPS):
        network.train()
        loss = error_of(0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss.item())
        network.eval()
        with torch.no_grad():
            held_out = error_of(1)
        if epoch % 4 == 3:
            sys.stdout.write(f"epoch {epoch + 1}: validation loss {held_out.item()}\n")


def swiftly() -> None:
    """Goes through epochs of one step each in less time than a look at the loop takes, and ends before the last."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for epoch in range(10 * STEPS):
        loss = error_of(epoch % STEPS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss.item())
        if epoch == 9 * STEPS - 1:
            break


def ahead() -> None:
    """Fetches a batch before it trains on the one before, as accelerate and timm do."""
    train = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)[:60]), batch_size=16)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for _epoch in range(3):
        batches = iter(train)
        following = next(batches, None)
        while following is not None:
            (batch,) = following
            following = next(batches, None)
            loss = (network(batch) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())


def ahead_and_left() -> None:
    """Fetches a batch before it trains on the one before, and leaves each epoch early."""
    train = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)[:64]), batch_size=8)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for _epoch in range(3):
        batches = iter(train)
        following = next(batches)
        for _step in range(4):
            (batch,), following = following, next(batches)
            loss = (network(batch) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())


def cycled() -> None:
    """Trains a number of steps on the batches of a loader, which begins again and again."""
    train = DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)[:60]), batch_size=16)

    def batches() -> Iterator[torch.Tensor]:
        while True:
            for (batch,) in train:
                yield batch

    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    state, endless_batches = SimpleNamespace(step=0, num_steps=STEPS - 2), batches()
    while state.step < state.num_steps:
        loss = (network(next(endless_batches)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss.item())
        state.step += 1


def counted() -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    iter_num, max_iters = 0, STEPS - 1
    while True:
        loss = error_of(iter_num)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss.item())
        threading.Event().wait(0.02)
        iter_num += 1
        if iter_num > max_iters:
            break


def left() -> None:
    """Goes through more examples than it trains on."""
    optimizer, max_steps = torch.optim.SGD(network.parameters(), lr=0.01), STEPS
    for step, _ in enumerate(EXAMPLES):
        if step >= max_steps + 1:
            break
        loss = error_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss.item())
        threading.Event().wait(0.02)
        if step >= max_steps - 1:
            break


def rounds() -> None:
    """As in reinforcement learning: the outermost loop collects experience, of which each pass makes several steps."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for iteration in range(1, 3 + 1):
        for epoch in range(2):
            for part in range(2):
                loss = error_of(4 * iteration + 2 * epoch + part)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                tell(loss.item())


def varied() -> None:
    """As `rounds`, with passes of one step at first, and of several later."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for _episode in range(1_000):
        for part in range(1 if _episode < 10 else 4):
            loss = error_of(part)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())
            # The plan is reported about two seconds after the first step.
            threading.Event().wait(0.35 if _episode < 10 else 0.02)
        if _episode > 18:
            break


def critics() -> None:
    """Trains three networks in each step, whose losses have one name."""
    others = [nn.Linear(4, 1), nn.Linear(4, 1)]
    first, second = (torch.optim.SGD(other.parameters(), lr=0.01) for other in others)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(STEPS):
        loss = others[0](EXAMPLES[step]).square().mean()
        loss.backward()
        sys.stdout.write(f"true first {loss.item()!r}\n")
        first.step()
        loss = others[1](EXAMPLES[step]).abs().mean()
        loss.backward()
        sys.stdout.write(f"true second {loss.item()!r}\n")
        second.step()
        loss = error_of(step)
        loss.backward()
        optimizer.step()
        tell(loss.item())


def train_on(examples: torch.Tensor, lr: float) -> None:
    """Two epochs with a loader, a model and an optimizer of their own."""
    train = DataLoader(TensorDataset(examples), batch_size=4)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for epoch in range(2):
        for (batch,) in train:
            loss = (model(batch) - epoch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())


def folds() -> None:
    examples = EXAMPLES.reshape(-1, 4)[:18]
    for fold in range(3):
        train_on(torch.cat([examples[: 6 * fold], examples[6 * fold + 6 :]]), lr=0.1 * (fold + 1))


def search() -> None:
    for lr in (0.1, 0.2, 0.3):
        train_on(EXAMPLES.reshape(-1, 4)[:12], lr)


def renewed() -> None:
    """Makes a loader for each epoch, which is not called so."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for turn in range(3):
        for (batch,) in DataLoader(TensorDataset(EXAMPLES.reshape(-1, 4)[turn : turn + 16]), batch_size=4):
            loss = (network(batch) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())


class _Repeated:
    """Gives the batches of a sampler again and again."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


class _KeepsWorkers(DataLoader[Any]):
    """Has one iterator for all epochs, which it makes at the first one."""

    iterator: Any = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", _Repeated(self.batch_sampler))

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)  # type: ignore[union-attr]  # replaced above

    def __iter__(self) -> Any:
        if self.iterator is None:
            self.iterator = self._get_iterator()
        for _ in range(len(self)):
            yield next(self.iterator)


def lasting() -> None:
    """Trains in a loop without an end, and leaves it after three epochs."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    train, epoch = _KeepsWorkers(TensorDataset(EXAMPLES.reshape(-1, 4)[:16]), batch_size=4), 0
    while True:
        for (batch,) in train:
            loss = (network(batch) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())
        epoch += 1
        if epoch + 1 > 3:
            break


def both() -> None:
    """Trains on two loaders in each epoch, the second of which is made anew."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for _epoch in range(2):
        for part in range(3):
            for (batch,) in DataLoader(TensorDataset(EXAMPLES[part]), batch_size=4):
                loss = (network(batch) - 1).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                tell(loss.item())


def turns() -> None:
    """One optimizer makes several steps, then the other does."""
    other = nn.Linear(4, 1)
    first, second = torch.optim.SGD(network.parameters(), lr=0.01), torch.optim.SGD(other.parameters(), lr=0.02)
    epochs = 3
    for t in range(epochs):
        for _ in range(4):
            first.zero_grad()
            loss = error_of(t)
            loss.backward()
            first.step()
            tell(loss.item())
        for _ in range(3):
            second.zero_grad()
            loss_v = (other(EXAMPLES[t]) + 1).square().mean()
            loss_v.backward()
            second.step()
            sys.stdout.write(f"true loss_v {loss_v.item()!r}\n")
        # Longer epochs than the shortest that are told exactly.
        threading.Event().wait(0.1)


def shifts() -> None:
    """A model and an optimizer for each part of the examples; they take turns in each epoch, in one function."""
    models = [nn.Linear(4, 1) for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]

    def train_part(part: int) -> None:
        for (batch,) in DataLoader(TensorDataset(EXAMPLES[part]), batch_size=3):
            loss = (models[part](batch) - 1).square().mean()
            optimizers[part].zero_grad()
            loss.backward()
            optimizers[part].step()
            tell(loss.item())

    for _epoch in range(2):
        for part in range(3):
            train_part(part)


def team() -> None:
    """Two models learn from each batch, in one function; the second only every other time."""
    other = nn.Linear(4, 1)
    optimizers = {model: torch.optim.SGD(model.parameters(), lr=0.01) for model in (network, other)}

    def improve(model: nn.Module, part: int) -> None:
        loss = (model(EXAMPLES[part]) - 1).square().mean()
        optimizers[model].zero_grad()
        loss.backward()
        optimizers[model].step()

    for step in range(1, STEPS + 1):
        improve(network, step)
        tell(step)
        if step % 2 == 0:
            improve(other, step)


def endless() -> None:
    examples = TensorDataset(EXAMPLES.reshape(-1, 4))
    sampler = torch.utils.data.RandomSampler(examples, replacement=True, num_samples=10**10)
    batches = iter(DataLoader(examples, sampler=sampler, batch_size=4))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    options, state = SimpleNamespace(max_steps=STEPS), SimpleNamespace(step=0)
    while True:
        (batch,) = next(batches)
        loss = (network(batch) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss.item())
        state.step += 1
        if options.max_steps >= 0 and state.step >= options.max_steps:
            break


class Dropping(nn.Module):
    """A network with dropout, and one without that it calls by a loop of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, batch: torch.Tensor) -> Any:
        return self.body(batch)

    @torch.no_grad()
    def error_on(self, loader: DataLoader[Any]) -> float:
        losses = []
        for (batch,) in loader:
            losses.append((self.body(batch) - 1).square().mean().item())
        return sum(losses)


def with_mode(mode: str) -> None:
    """Trains a network with dropout and evaluates it: in training mode, or in the right one."""
    examples = TensorDataset(EXAMPLES.reshape(-1, 4)[:60])
    train, test = DataLoader(examples, batch_size=20), DataLoader(examples, batch_size=60 if mode == "one" else 20)
    model = Dropping()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _epoch in range(3):
        for (batch,) in train:
            loss = (model(batch) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss.item())
        if mode == "inner":
            model.error_on(test)
            continue
        if mode == "right":
            model.eval()
        with torch.no_grad():
            for (batch,) in train if mode == "statistics" else test:
                if mode == "each":
                    model.eval()
                model(batch)
                if mode == "each":
                    model.train()
        model.train()


WAYS: dict[str, Callable[[], Any]] = {
    way.__name__: way
    for way in (
        plain, accumulated, shares, scaled, closure, by_hand, thread, adversaries, checkpointed, failing, asked,
        ahead_and_left,
        epochs, parts, sequences, sliced, often, briefly, swiftly, ahead, cycled, counted, rounds, varied, endless,
        previewed, folds, search, renewed, both, lasting, turns, shifts, critics, team, left, branches, sums,
        remainders,
    )
}  # fmt: skip

WAYS |= {f"mode_{mode}": partial(with_mode, mode) for mode in ("left", "one", "inner", "right", "each", "statistics")}

if __name__ == "__main__":
    # As console scripts do: `exit` is looked up before the training starts.
    sys.exit(WAYS[sys.argv[1]]())
