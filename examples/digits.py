"""An image classifier: a small convolutional network that tells drawn digits from each other, on two workers.

    python examples/digits.py

The digits are drawn here: a font of 5x7 pixels, moved, thickened and dimmed at random, in noise. A worker on another
machine needs a copy of this file, and its place: BARNRAISE_PROBLEMS=digits=PATH/digits.py:Digits barnraise join INVITE
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

import barnraise

SIDE = 16
FONT = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)


def drawn(count: int, chance: np.random.Generator) -> Mapping[str, np.ndarray[Any, Any]]:
    """Draw digits: images [count, 16, 16] with pixels 0 to 255, and their labels [count]."""
    font = np.array([[list(map(int, line)) for line in digit.split()] for digit in FONT], np.float32)
    labels = chance.integers(0, 10, count)
    images = np.zeros((count, SIDE, SIDE), np.float32)
    for image, label in zip(images, labels, strict=True):
        glyph = font[label].repeat(2, axis=0) if chance.random() < 0.5 else font[label]
        top, left = chance.integers(0, SIDE - glyph.shape[0] + 1), chance.integers(0, SIDE - glyph.shape[1] + 1)
        image[top : top + glyph.shape[0], left : left + glyph.shape[1]] = glyph * chance.uniform(0.4, 1.0)
    images += chance.normal(0.0, 0.15, images.shape)
    return {"image": (images.clip(0.0, 1.0) * 255).astype(np.uint8), "label": labels}


@dataclass
class Digits(barnraise.Problem):
    """Tells the ten digits from each other."""

    width: int = 16

    columns = (
        barnraise.RowColumn(name="image", dtype="uint8", shape=(SIDE, SIDE)),
        barnraise.RowColumn(name="label", dtype="uint8", below=10),
    )

    def rows(self, seed: int) -> tuple[Any, Any]:
        chance = np.random.default_rng(seed)
        return drawn(4000, chance), drawn(500, chance)

    def build(self) -> nn.Module:
        width = self.width
        return nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(4),
            nn.Flatten(),
            nn.Linear(32 * width, 10),
        )

    def loss(self, module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
        logits = module(batch["image"][:, None].float() / 255)
        return nn.functional.cross_entropy(logits, batch["label"], reduction="sum"), len(logits)

    def evaluate(self, module: nn.Module, batches: Iterable[dict[str, Tensor]]) -> Mapping[str, float]:
        right, count = 0, 0
        for batch in batches:
            answers = module(batch["image"][:, None].float() / 255).argmax(1)
            right, count = right + int((answers == batch["label"]).sum()), count + len(answers)
        return {"accuracy": right / count}


RUN = {
    "run": {"name": "digits"},
    "workers": [{"name": "ann", "speed": 2}, {"name": "bob"}],
    "training": {"tokens": 16_000, "batch_size": 32, "local_steps": 10, "learning_rate": 0.003},
}

if __name__ == "__main__":
    ending = barnraise.train(RUN, problem=Digits(), say=print)
    assert ending.model_dir is not None
    print("loss", ending.first_loss, "->", ending.final_loss)
    print((ending.model_dir / "evaluation.json").read_text())
