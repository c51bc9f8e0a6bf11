"""Lightning's Trainer, with the callback of tputui in the script, or without."""

import json
import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger


class Line(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.losses = {}

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("train_loss", loss)
        self.losses[self.global_step + 1] = loss.item()
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


callbacks, logger = [], CSVLogger("logs")
if sys.argv[1] == "callback":
    from tputui.integrations.lightning import TputuiCallback

    callbacks, logger = [TputuiCallback()], False
torch.manual_seed(0)
x = torch.randn(256, 8)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32)
trainer = Trainer(
    max_epochs=3, accelerator="cpu", logger=logger, callbacks=callbacks, log_every_n_steps=1, enable_checkpointing=False
)
model = Line()
trainer.fit(model, loader)
with open("losses.json", "w") as file:
    json.dump(model.losses, file)
