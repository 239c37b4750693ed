"""Inner optimizers: they equal torch's own or the loop of their paper, and follow the fleet."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from barnraise.core.errors import UnknownNameError
from barnraise.models.flat import FlatParameters
from barnraise.training import inner
from barnraise.training.inner import muon
from barnraise.training.inner.adamw_8bit import AdamW8Bit
from barnraise.training.inner.base import InnerOptimizer
from barnraise.training.inner.muon import Muon, orthogonalised

OPTIONS: dict[str, dict[str, float]] = {
    "adamw": {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1},
    "adamw_8bit": {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1},
    "lion": {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1},
    "muon": {"momentum": 0.95, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1},
    "sgd": {"momentum": 0.9, "weight_decay": 0.1},
}
NAMES = inner.CATALOG.names()


class Blocks(nn.Module):
    """Two numbered layers between an embedding and an output layer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width))
            for _ in range(2)
        )
        self.output = nn.Linear(width, 11, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.embedding(tokens)
        for layer in self.layers:
            found = found + torch.tanh(layer(found))
        return self.output(found)  # type: ignore[no-any-return]


def made(name: str, decays: str = "all", module: nn.Module | None = None) -> tuple[FlatParameters, InnerOptimizer]:
    torch.manual_seed(0)
    flat = FlatParameters(Blocks() if module is None else module)
    optimizer = inner.create(name, OPTIONS[name])
    optimizer.bind(flat, decays)
    return flat, optimizer


def twin() -> dict[str, nn.Parameter]:
    torch.manual_seed(0)
    return dict(Blocks().named_parameters())


def gradients(flat: FlatParameters, seed: int) -> Tensor:
    return torch.randn(flat.layout.size, generator=torch.Generator().manual_seed(seed))


def compare(
    name: str, decays: str, step: Callable[[dict[str, nn.Parameter]], Callable[[], Any]], close: dict[str, float]
) -> None:
    """Take six steps beside those that `step` makes of separate parameters with gradients."""
    (flat, optimizer), parameters = made(name, decays), twin()
    take = step(parameters)
    for number in range(6):
        flat.gradient.copy_(gradients(flat, number))
        for leaf in flat.layout.leaves:
            parameters[leaf.name].grad = flat.gradient[leaf.place].view(leaf.shape).clone()
        optimizer.step(0.01)
        take()
        for leaf in flat.layout.leaves:
            torch.testing.assert_close(
                flat.vector[leaf.place].view(leaf.shape), parameters[leaf.name].data, **close, msg=leaf.name
            )


def grouped(parameters: dict[str, nn.Parameter], decays: str, decay: float) -> list[dict[str, Any]]:
    """Return the groups that people write by hand: biases and norms do not decay."""
    small = [parameter for parameter in parameters.values() if decays == "matrices" and parameter.ndim < 2]
    large = [parameter for parameter in parameters.values() if decays == "all" or parameter.ndim > 1]
    return [{"params": large, "weight_decay": decay}, {"params": small, "weight_decay": 0.0}][: 1 + bool(small)]


@pytest.mark.parametrize("decays", ["all", "matrices"])
def test_adamw_is_that_of_torch_with_groups_of_parameters(decays: str) -> None:
    def step(parameters: dict[str, nn.Parameter]) -> Callable[[], Any]:
        return torch.optim.AdamW(grouped(parameters, decays, 0.1), lr=0.01, betas=(0.9, 0.95), fused=True).step

    compare("adamw", decays, step, {"rtol": 1e-6, "atol": 1e-8})


@pytest.mark.parametrize("decays", ["all", "matrices"])
def test_sgd_is_that_of_torch_with_groups_of_parameters(decays: str) -> None:
    def step(parameters: dict[str, nn.Parameter]) -> Callable[[], Any]:
        return torch.optim.SGD(grouped(parameters, decays, 0.1), lr=0.01, momentum=0.9).step

    compare("sgd", decays, step, {"rtol": 0.0, "atol": 0.0})


@pytest.mark.parametrize("decays", ["all", "matrices"])
def test_lion_is_the_loop_of_its_paper(decays: str) -> None:
    def step(parameters: dict[str, nn.Parameter]) -> Callable[[], Any]:
        momenta = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}

        def take() -> None:
            for name, parameter in parameters.items():
                gradient = parameter.grad
                assert gradient is not None
                update = (0.9 * momenta[name] + (1 - 0.9) * gradient).sign()
                decay = 0.1 if decays == "all" or parameter.ndim > 1 else 0.0
                parameter.data -= 0.01 * (update + decay * parameter.data)
                momenta[name] = 0.99 * momenta[name] + (1 - 0.99) * gradient

        return take

    compare("lion", decays, step, {"rtol": 1e-5, "atol": 1e-7})


def test_muon_is_that_of_torch_for_matrices_in_layers_and_adamw_for_the_rest() -> None:
    def step(parameters: dict[str, nn.Parameter]) -> Callable[[], Any]:
        inside = {name for name, parameter in parameters.items() if name.startswith("layers.") and parameter.ndim == 2}
        assert len(inside) == 4
        muon = torch.optim.Muon(
            [parameters[name] for name in inside], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
        )
        others = {name: parameter for name, parameter in parameters.items() if name not in inside}
        adamw = torch.optim.AdamW(grouped(others, "matrices", 0.1), lr=0.01, betas=(0.9, 0.95))
        return lambda: (muon.step(), adamw.step())

    compare("muon", "matrices", step, {"rtol": 0.0, "atol": 6 * 0.01 * 0.2 * 4 * 0.02})  # torch's is in bfloat16


@pytest.mark.parametrize("shape", [(8, 32), (32, 8), (16, 16)])
def test_the_orthogonalised_matrix_has_singular_values_near_one_and_the_same_directions(shape: tuple[int, int]) -> None:
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    found = orthogonalised(matrix)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    diagonal = left.T @ found @ right.T
    assert diagonal.diagonal().min() > 0.6
    assert diagonal.diagonal().max() < 1.3
    torch.testing.assert_close(diagonal, torch.diag(diagonal.diagonal()), rtol=0.0, atol=1e-4)
    assert torch.equal(orthogonalised(torch.zeros(shape)), torch.zeros(shape))


def test_8_bit_adamw_is_a_loop_over_decoded_moments_within_the_width_of_their_codes() -> None:
    def step(parameters: dict[str, nn.Parameter]) -> Callable[[], Any]:
        return torch.optim.AdamW(parameters.values(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1).step

    compare("adamw_8bit", "all", step, {"rtol": 0.0, "atol": 6 * 0.01 * 0.12})


def test_codes_of_8_bits_hold_moments_to_a_few_percent_over_decades_and_without_bias() -> None:
    flat, optimizer = made("adamw_8bit", module=nn.Linear(60, 70))
    assert isinstance(optimizer, AdamW8Bit)
    second = 10.0 ** -(torch.arange(flat.layout.size, dtype=torch.float32) % 7)
    totals = torch.zeros_like(second)
    for number in range(1, 41):  # each has other random numbers
        optimizer.expect(None, second, float(number))
        found = optimizer.second_moments()
        assert found is not None
        assert bool((found > 0.0).all())
        totals += found
    error = (totals / 40 / second - 1.0).abs()
    assert float(error[second > 1e-3].max()) < 0.05
    assert float(error.mean()) < 0.2
    assert bool((optimizer.moments["exp_avg_sq"][: flat.layout.size] >= 1).all())


@pytest.mark.parametrize("values", [300, 1 << 20])
def test_muon_steps_with_batches_of_matrices_as_with_each(monkeypatch: pytest.MonkeyPatch, values: int) -> None:
    found = []
    for span in (0, values):
        monkeypatch.setitem(muon.SPAN, "cpu", span)
        flat, optimizer = made("muon", "matrices")
        for number in range(3):
            flat.gradient.copy_(gradients(flat, number))
            optimizer.step(0.01)
        found.append(torch.cat([flat.vector, optimizer.moments["momentum"]]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(8, 32), (32, 8), (16, 16)])
def test_matrices_are_orthogonalised_together_as_alone(shape: tuple[int, int]) -> None:
    several = (
        torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
        * torch.tensor([1e-3, 1.0, 50.0])[:, None, None]
    )
    together = orthogonalised(several)
    for number, matrix in enumerate(several):
        torch.testing.assert_close(together[number], orthogonalised(matrix), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_biases_and_norms_do_not_decay_unless_all_parameters_do(name: str) -> None:
    for decays in ("matrices", "all"):
        flat, optimizer = made(name, decays)
        flat.vector.fill_(1.0)
        flat.gradient.zero_()
        optimizer.step(0.5)
        for leaf in flat.layout.leaves:
            held = bool((flat.vector[leaf.place] == 1.0).all())
            assert held == (decays == "matrices" and len(leaf.shape) < 2), (decays, leaf.name)


@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_as_many_bytes_as_it_declares(name: str) -> None:
    flat, optimizer = made(name, module=Blocks(64))
    flat.gradient.fill_(1.0)
    optimizer.step(0.01)
    kept = sum(moment.nbytes for moment in optimizer.moments.values())
    declared = 4.0 * inner.CATALOG.entry(name).declares.moments(flat.layout)
    assert kept / flat.layout.size == pytest.approx(declared, rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_learns(name: str) -> None:
    torch.manual_seed(1)
    module = Blocks(16)
    flat, optimizer = made(name, "matrices", module)
    tokens = torch.arange(11)
    wanted = tokens.flip(0)
    rate = {"lion": 0.002, "sgd": 0.2}.get(name, 0.01)
    losses = []
    for _ in range(60):
        flat.gradient.zero_()
        loss = nn.functional.cross_entropy(module(tokens), wanted)
        torch.autograd.backward(loss)
        optimizer.step(rate)
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_state_of_another_process_is_as_good_as_ones_own(name: str) -> None:
    (flat, optimizer), (other_flat, other) = made(name), made(name)
    for number in range(3):
        flat.gradient.copy_(gradients(flat, number))
        optimizer.step(0.01)
    state = {key: value.clone() for key, value in optimizer.state().items()}
    other_flat.vector.copy_(flat.vector)
    assert not other.load({})
    assert not other.load(state | {"more": torch.zeros(3)})
    assert not other.load(state | {"step": torch.tensor(math.nan)})
    assert not other.moments
    assert other.load(state)
    for one, its in ((flat, optimizer), (other_flat, other)):
        one.gradient.copy_(gradients(one, 9))
        its.step(0.01)
    assert torch.equal(other_flat.vector, flat.vector)
    other.forget()
    assert other.state() == {}


def mean_step(name: str, signal: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Return the mean step at rate 1 with gradients `signal` plus noise, and the momentum of one worker at the end."""
    flat, optimizer = made(name)
    optimizer.weight_decay = 0.0  # type: ignore[attr-defined]
    optimizer.bind(flat)
    total = torch.zeros_like(flat.vector)
    for number in range(1600):
        flat.gradient.copy_(signal + noise * gradients(flat, number))
        flat.vector.zero_()
        optimizer.step(1.0)
        if number >= 100:
            total -= flat.vector
    return -total / 1500, optimizer.moments[optimizer.moment_names[0]].clone()


@pytest.mark.parametrize("name", ["adamw", "lion", "muon"])
def test_the_fleets_momentum_is_the_mean_of_its_gradients(name: str) -> None:
    """The mean of many noisy steps tells the gradients' mean, which a worker's own momentum hardly shows."""
    flat, optimizer = made(name)
    signal = 0.1 * gradients(flat, 10_000)
    step, own = mean_step(name, signal, 3.0)
    for number in range(400):  # a worker's own moments
        flat.gradient.copy_(signal + 3.0 * gradients(flat, number + 5000))
        optimizer.step(0.0)
    found = optimizer.momentum_of(-step, optimizer.moments[optimizer.moment_names[0]])
    for leaf in flat.layout.leaves:
        if leaf.size < 100:
            continue
        wanted, got, alone = signal[leaf.place], found[leaf.place], own[leaf.place]
        slope = float(got @ wanted / (wanted @ wanted))
        assert 0.65 < slope < 1.45, (leaf.name, slope)
        assert (got - wanted).norm() < 0.75 * (alone - wanted).norm(), leaf.name


@pytest.mark.parametrize("name", NAMES)
def test_a_stateless_task_begins_into_the_fleets_direction_and_not_further_than_noise(name: str) -> None:
    flat, optimizer = made(name, "matrices")
    keeps = inner.CATALOG.entry(name).declares.seconds
    direction = gradients(flat, 3)
    second = torch.full((flat.layout.size,), 1e-4) if keeps else None
    optimizer.expect(direction.clone(), second, 30.0)
    flat.gradient.copy_(1e-2 * gradients(flat, 4))
    start, gradient = flat.vector.clone(), flat.gradient.clone()
    optimizer.step(1e-3)
    moved = flat.vector - start
    assert float(nn.functional.cosine_similarity(moved, direction, dim=0)) < -0.0 or name == "sgd"
    if name not in ("sgd", "adamw_8bit"):  # momentum that is a sum, or has codes
        momentum = optimizer.moments[optimizer.moment_names[0]]
        assert float(momentum.norm()) < 1.2 * (optimizer.noise + 1.0 - optimizer.decay) * float(gradient.norm())


def test_an_unknown_optimizer_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'muon'"):
        inner.create("moun", {})


def test_muon_keeps_second_moments_for_other_parameters_alone() -> None:
    flat, optimizer = made("muon")
    assert isinstance(optimizer, Muon)
    assert optimizer.second_moments() is None
    flat.gradient.fill_(0.5)
    optimizer.step(0.1)
    found = optimizer.second_moments()
    assert found is not None
    for leaf in flat.layout.leaves:
        inside = leaf.name.startswith("layers.") and len(leaf.shape) == 2
        expected = 1.0 / flat.layout.size if inside else 0.25
        torch.testing.assert_close(found[leaf.place], torch.full((leaf.size,), expected))
