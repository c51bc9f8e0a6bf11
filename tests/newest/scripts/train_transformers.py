"""The Trainer of transformers, with the callback of tputui in the script, or without."""

import json
import sys

import torch
from transformers import Trainer, TrainingArguments


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        predicted = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(predicted, labels), "logits": predicted}


losses = {}


class Noting(Trainer):
    def training_step(self, *given):
        loss = super().training_step(*given)
        losses[self.state.global_step + 1] = loss.item()
        return loss


callbacks = []
if "callback" in sys.argv:
    from tputui.integrations.huggingface import TputuiCallback

    callbacks = [TputuiCallback()]
torch.manual_seed(0)
x = torch.randn(256, 8)
dataset = [{"x": row, "labels": row.sum(0, keepdim=True)} for row in x]
arguments = TrainingArguments(
    "checkpoints",
    num_train_epochs=3,
    per_device_train_batch_size=32,
    learning_rate=0.1,
    optim="sgd",
    logging_steps=2,
    eval_strategy="epoch",
    save_strategy="no",
    report_to=[],
)
trainer = Noting(Line(), arguments, train_dataset=dataset, eval_dataset=dataset, callbacks=callbacks)
trainer.train()
if callbacks:
    losses = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
with open("losses.json", "w") as file:
    json.dump(losses, file)
