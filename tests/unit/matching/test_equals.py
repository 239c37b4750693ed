"""The least total cost of a level's tasks: SciPy's solver, which comes without the rest of `scipy.optimize`."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from barnraise.matching.equals import cheapest


@pytest.mark.parametrize("shape", [(5, 5), (3, 9), (9, 3), (40, 40)])
def test_the_solver_is_that_of_scipy(shape: tuple[int, int]) -> None:
    costs = np.random.default_rng(shape[0]).random(shape)
    assert cheapest(costs) == tuple(each.tolist() for each in linear_sum_assignment(costs))


def test_the_solver_does_not_import_scipy_optimize() -> None:
    code = "import sys, numpy; from barnraise.matching.equals import cheapest; print(cheapest(numpy.eye(2)))\n"
    code += "print('scipy.optimize' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["([0, 1], [1, 0])", "False"]
