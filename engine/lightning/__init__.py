"""The task `lightning`: a LightningModule, trained by Lightning's own Trainer and reported like any run."""
