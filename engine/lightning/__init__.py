"""A LightningModule, trained by Lightning's own Trainer and told of as every run is."""
