"""The last stage: the parameters move, and get a new digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from barnraise.compression.base import Array
from barnraise.controller.tensors.stages.base import Making, Stage
from barnraise.core.ranges import pieces
from barnraise.core.threads import SERIAL, Crew, spans
from barnraise.models.vectors import Leaves

_NAME = "its parameters"


class Publish(Stage):
    """Owns the parameters (float32 [size]), their digest, and the average of the versions.

    `average` is for evaluation and export: a_v = a_{v-1} + (theta_v - a_{v-1}) / (1 + s v), which weights the versions
    by a power of their number (Shamir and Zhang, 2013) and so looks back over about the share s of all of them, however
    long the run. s = 0 is the newest version alone. Workers never see it.
    """

    def __init__(self, parameters: Tensor, share: float, keep: Callable[[int, int], None], crew: Crew) -> None:
        self.parameters, self._share, self._crew = parameters, share, crew
        self._keep = keep  # called before elements of the average change
        self.average = parameters.clone() if share else parameters
        self._leaves = Leaves(crew)
        self.digest = self._leaves.digest(parameters)

    @property
    def leaves(self) -> bytes:
        """Return the digests of the leaves of the parameters' digest."""
        return self._leaves.listed

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        after[_NAME] = before[_NAME] + largest
        return after[_NAME]

    def step(self, making: Making, span: slice, values: Array) -> Array:
        for here, there in making.parts(span):
            array: Array = self.parameters.numpy()[here]
            array += values[there]
        return values

    def end(self, making: Making) -> None:
        self.digest = self._leaves.digest(self.parameters, pieces(making.moving))
        if self._share:
            weight = 1.0 / (1.0 + self._share * making.version)

            def move(span: slice) -> None:
                self._keep(span.start, span.stop)
                self.average[span].lerp_(self.parameters[span], weight)

            self._crew.each(move, spans(len(self.average), SERIAL))

    def vectors(self) -> dict[str, Tensor]:
        return {_NAME: self.parameters}

    def state(self) -> dict[str, Tensor]:
        return {"parameters": self.parameters} | ({"average": self.average} if self._share else {})

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.parameters = self.average = tensors["parameters"]
        if self._share:
            self.average = tensors["average"] if "average" in tensors else self.parameters.clone()
        self.digest = self._leaves.digest(self.parameters)
