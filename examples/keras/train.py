"""A Keras network for the digits on several devices at once. It knows of no tuner.

Alone: python train.py --replicas 2 --lr 0.003
"""

import argparse
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--replicas", type=int, default=1)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()


def find_devices(n_replicas: int) -> list[str]:
    """The first GPUs, or parts of the CPU where there is none."""
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if kind == "CPU":
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * n_replicas
        tf.config.set_logical_device_configuration(cpu, parts)
    return [f"{kind}:{index}" for index in range(n_replicas)]


class PrintJson(keras.callbacks.Callback):
    """One line per epoch, as the tuner reads it."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        metrics = {"step": epoch + 1, "accuracy": logs["val_accuracy"], "loss": logs["loss"]}
        print(json.dumps(metrics), flush=True)


pixels, digits = load_digits(return_X_y=True)
train_x, valid_x, train_y, valid_y = train_test_split(
    pixels / 16, digits, test_size=0.25, stratify=digits, random_state=0
)
keras.utils.set_random_seed(int(os.environ.get("TUNER_SEED", "0")))
strategy = tf.distribute.MirroredStrategy(find_devices(args.replicas))
print(f"{strategy.num_replicas_in_sync} replicas")
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(args.width, activation="relu"),
            keras.layers.Dropout(args.dropout),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.AdamW(args.lr),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
model.fit(
    train_x,
    train_y,
    batch_size=64,
    epochs=args.epochs,
    validation_data=(valid_x, valid_y),
    callbacks=[PrintJson()],
    verbose=0,
)
