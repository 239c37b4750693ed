"""A diffusion model: it learns to draw points on two half moons out of noise, on two workers.

    python examples/diffusion.py

Denoising diffusion (Ho et al. 2020, "DDPM", algorithms 1 and 2): a network predicts the noise in a noised point. The
noise of a task's batches comes from torch's random numbers, which the task seeds: a task that is repeated
draws the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import barnraise

STEPS = 50
"""Steps from a point to noise."""

KEPT = torch.cumprod(1.0 - torch.linspace(1e-3, 0.2, STEPS), 0)
"""Share of a point's square that is left after each step (alpha bar)."""


def moons(count: int, chance: np.random.Generator) -> Mapping[str, np.ndarray[Any, Any]]:
    """Draw points [count, 2] on two half moons."""
    angle, upper = chance.uniform(0.0, np.pi, count), chance.random(count) < 0.5
    x = np.where(upper, np.cos(angle), 1.0 - np.cos(angle)) - 0.5
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle)) - 0.25
    points = np.stack([x, y], 1) + chance.normal(0.0, 0.05, (count, 2))
    return {"point": points.astype(np.float32)}


class Denoiser(nn.Module):
    """Predicts the noise in points [n, 2] after `step` [n] steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.time = nn.Embedding(STEPS, width)
        self.enter = nn.Linear(2, width)
        self.layers = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, points: Tensor, step: Tensor) -> Tensor:
        found: Tensor = self.layers(self.enter(points) + self.time(step))
        return found


@dataclass
class Moons(barnraise.Problem):
    """Draws points on two half moons out of noise."""

    width: int = 128

    columns = (barnraise.RowColumn(name="point", dtype="float32", shape=(2,)),)

    def rows(self, seed: int) -> tuple[Any, Any]:
        chance = np.random.default_rng(seed)
        return moons(8000, chance), moons(1000, chance)

    def build(self) -> nn.Module:
        return Denoiser(self.width)

    def loss(self, module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
        points = batch["point"]
        step = torch.randint(STEPS, (len(points),), device=points.device)
        noise, kept = torch.randn_like(points), KEPT.to(points.device)[step, None]
        found = module(kept.sqrt() * points + (1.0 - kept).sqrt() * noise, step)
        return ((found - noise) ** 2).sum(), points.numel()

    def drawn(self, module: nn.Module, count: int) -> Tensor:
        """Draw points [count, 2] out of noise."""
        points = torch.randn(count, 2)
        for step in reversed(range(STEPS)):
            before = KEPT[step - 1] if step else torch.tensor(1.0)
            alpha, kept = KEPT[step] / before, KEPT[step]
            noise = module(points, torch.full((count,), step))
            points = (points - (1.0 - alpha) / (1.0 - kept).sqrt() * noise) / alpha.sqrt()
            if step:
                points += (1.0 - alpha).sqrt() * torch.randn_like(points)
        return points

    def evaluate(self, module: nn.Module, batches: Iterable[dict[str, Tensor]]) -> Mapping[str, float]:
        """Measure how far drawn points are from the closest held-out point, and points of plain noise."""
        held_out = torch.cat([batch["point"] for batch in batches])
        return {
            "distance": float(torch.cdist(self.drawn(module, 500), held_out).amin(1).mean()),
            "distance_of_noise": float(torch.cdist(torch.randn(500, 2), held_out).amin(1).mean()),
        }

    def sample(self, module: nn.Module, folder: Path) -> str:
        np.savetxt(folder / "points.txt", self.drawn(module, 500).numpy(), fmt="%.4f")
        return "500 points in points.txt"


RUN = {
    "run": {"name": "moons"},
    "workers": [{"name": "ann", "speed": 2}, {"name": "bob"}],
    "training": {"tokens": 200_000, "batch_size": 200, "local_steps": 20, "learning_rate": 0.003},
}

if __name__ == "__main__":
    ending = barnraise.train(RUN, problem=Moons(), say=print)
    assert ending.model_dir is not None
    print("loss", ending.first_loss, "->", ending.final_loss)
    print((ending.model_dir / "evaluation.json").read_text())
