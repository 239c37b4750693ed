"""Adam outside (Reddi et al., 2021, "Adaptive Federated Optimization", FedAdam; with Adam's bias correction)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from barnraise.core.errors import OptionError

from .base import Array, OuterOptimizer


class Adam(OuterOptimizer):
    """Applies m <- b1 m + (1-b1) g; v <- b2 v + (1-b2) g^2; update = lr m / (1-b1^t) / (sqrt(v / (1-b2^t)) + epsilon).

    Kingma and Ba, 2015, algorithm 1. Each element moves by about lr a version, whatever the size of g.
    """

    moment_names = ("first", "second")

    def __init__(self, learning_rate: float, beta1: float, beta2: float, epsilon: float) -> None:
        super().__init__(learning_rate)
        if max(beta1, beta2) >= 1:
            raise OptionError(f"outer optimizer 'adam': beta1={beta1}, beta2={beta2}, but both must be below 1")
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def update(self, gradient: Array, moments: Mapping[str, Array], learning_rate: float) -> None:
        first, second = moments["first"], moments["second"]
        first *= self.beta1
        first += gradient * (1 - self.beta1)
        gradient *= gradient
        gradient *= 1 - self.beta2
        second *= self.beta2
        second += gradient
        root = second / (1 - self.beta2**self.steps)
        np.sqrt(root, out=root)
        root += self.epsilon
        np.divide(first, 1 - self.beta1**self.steps, out=gradient)
        gradient /= root
        gradient *= learning_rate

    def growth(self, gradient: float, moments: Mapping[str, float], rate: float) -> tuple[float, dict[str, float]]:
        first = self.beta1 * moments["first"] + (1 - self.beta1) * gradient
        second = moments["second"] + gradient * gradient
        steps = self.steps + 1
        corrected = max(first / (1 - self.beta1**steps), second / (1 - self.beta2**steps))
        update = max(1.0, self.learning_rate * rate) * max(corrected, corrected / self.epsilon)
        return update, {"first": first, "second": second}
