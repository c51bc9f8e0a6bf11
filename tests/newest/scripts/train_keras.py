"""Keras' fit, which prints a progress bar for each epoch. Second argument: seconds of each of two steps in an epoch."""

import json
import os
import sys
import time

os.environ["KERAS_BACKEND"] = sys.argv[1]
import keras
import numpy as np

SLEEP_S, BATCH_SIZE = (float(sys.argv[2]), 96) if sys.argv[2:] else (0, 32)
of_steps = []


class Model(keras.Sequential):
    def compute_loss(self, *args, training=True, **given):
        loss = super().compute_loss(*args, training=training, **given)
        if training and sys.argv[1] == "torch" and not loss.is_meta:
            of_steps.append(loss.item())
            time.sleep(SLEEP_S)
        return loss


class Slow(keras.callbacks.Callback):
    """In a thread of Keras, so that the next batch begins before it ends."""

    async_safe = True

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(SLEEP_S / 4)


keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
model = Model([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
y = x.sum(1, keepdims=True)
history = model.fit(x, y, epochs=4, batch_size=BATCH_SIZE, validation_split=0.25, callbacks=[Slow()])
model.evaluate(x, y)
steps_per_epoch = 256 * 3 // 4 // BATCH_SIZE
means = {(epoch + 1) * steps_per_epoch: loss for epoch, loss in enumerate(history.history["loss"])}
with open("losses.json", "w") as file:
    json.dump(dict(enumerate(of_steps, 1)) or means, file)
