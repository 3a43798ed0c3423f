"""Regression with a Gaussian process, small and quick: one length scale an input, and noise.

The kernel is Matérn 5/2 and the parameters are those of the largest posterior density (Rasmussen
and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, equations 2.25, 2.26, 2.30
and 4.17), with log-normal priors, so that a handful of points cannot make it sure of anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Of the logarithms; outputs have mean 0 and variance 1.
_VARIANCE_PRIOR = (0.0, 1.0)
_NOISE_PRIOR = (math.log(0.01), 1.5)
_LENGTH_SPREAD = 1.0
#: Of the variance that each group has to itself, as a multiple of what all share.
_OWN_PRIOR = (0.0, 1.0)
_JITTER = 1e-6
_SQRT_5 = math.sqrt(5.0)


class GaussianProcess:
    """A Gaussian process with mean 0.

    Args:
        length_scales: [d], the likeliest ones before anything is known; inputs are about 0 to 1.
        has_groups: Whether inputs have one more column, with the number of a point's group: then
            the function is the sum of one that all groups share and of one of each group's own,
            with the same length scales (a hierarchy as in Swersky, Snoek and Adams,
            arXiv:1406.3896, where the groups are training curves).
    """

    def __init__(self, length_scales: Sequence[float], *, has_groups: bool = False) -> None:
        self._d = len(length_scales)
        spreads = [_VARIANCE_PRIOR[1], _NOISE_PRIOR[1], *(_LENGTH_SPREAD for _ in length_scales)]
        means = [_VARIANCE_PRIOR[0], _NOISE_PRIOR[0], *map(math.log, length_scales)]
        if has_groups:
            means, spreads = [*means, _OWN_PRIOR[0]], [*spreads, _OWN_PRIOR[1]]
        self._prior_mean = torch.tensor(means, dtype=torch.float64)
        self._prior_spread = torch.tensor(spreads, dtype=torch.float64)
        #: Logarithms of variance, noise and length scales, and of the share of groups.
        self._logs = self._prior_mean.clone()

    @property
    def length_scales(self) -> list[float]:
        """[d], as far as they are known."""
        return [float(each) for each in self._logs[2 : 2 + self._d].exp()]

    def fit(self, x: Array, y: Array, *, n_steps: int = 12) -> None:
        """Finds the likeliest parameters, from the ones that it has.

        Args:
            x: [n, d], or [n, d + 1] with groups, inputs.
            y: [n], outputs, with mean 0 and variance 1.
            n_steps: Of the optimizer (L-BFGS), at most.
        """
        points, outputs = torch.from_numpy(x), torch.from_numpy(y)
        logs = self._logs.clone().requires_grad_(True)
        optimizer = torch.optim.LBFGS([logs], max_iter=n_steps, line_search_fn="strong_wolfe")

        def loss() -> float:
            optimizer.zero_grad()
            value = self._loss(logs, points, outputs)
            value.backward()  # type: ignore[no-untyped-call]  # torch has no type for it.
            return float(value.detach())

        try:
            optimizer.step(loss)  # type: ignore[no-untyped-call]  # Nor for this.
        except RuntimeError:
            return  # Points that lie on each other; what it had still holds.
        if bool(torch.isfinite(logs).all()):
            self._logs = logs.detach()

    def given(self, x: Array, y: Array) -> Posterior:
        """The process once something was observed.

        Args:
            x: [n, d], or [n, d + 1] with groups, inputs.
            y: [n], outputs.
        """
        logs, points = self._logs, torch.from_numpy(x)
        factor = _cholesky(self._covariance(logs, points))
        weights = torch.cholesky_solve(torch.from_numpy(y)[:, None], factor)[:, 0]
        return Posterior(
            variance=logs[0].exp(),
            kernel=lambda other: self._kernel(logs, other, points),
            factor=factor,
            weights=weights,
        )

    def _covariance(self, logs: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        noise = (logs[1].exp() + _JITTER) * torch.eye(len(x), dtype=torch.float64)
        return self._kernel(logs, x, x) + noise

    def _kernel(self, logs: torch.Tensor, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        d = self._d
        scales = logs[2 : 2 + d].exp()
        apart = (x[:, :d] / scales)[:, None, :] - (other[:, :d] / scales)[None, :, :]
        # Not zero, where a root has no slope.
        squares = apart.square().sum(dim=2) + 1e-12
        far = _SQRT_5 * squares.sqrt()
        kernel: torch.Tensor = logs[0].exp() * (1.0 + far + far.square() / 3.0) * torch.exp(-far)
        if x.shape[1] == d:
            return kernel
        is_same = x[:, None, d] == other[None, :, d]
        return kernel * torch.where(is_same, 1.0, torch.sigmoid(-logs[2 + d]))

    def _loss(self, logs: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The negative logarithm of the posterior density, without constants."""
        factor = torch.linalg.cholesky(self._covariance(logs, x))
        weights = torch.cholesky_solve(y[:, None], factor)[:, 0]
        unlikely = ((logs - self._prior_mean) / self._prior_spread).square().sum()
        loss: torch.Tensor = 0.5 * (y @ weights) + factor.diagonal().log().sum() + 0.5 * unlikely
        return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """A Gaussian process that was conditioned: it does not change, so that threads may share it.

    Attributes:
        variance: [], of the function where nothing is known.
        kernel: From [m, d] inputs to their [m, n] covariances with what was observed.
        factor: [n, n], the lower Cholesky factor of the covariance of what was observed.
        weights: [n].
    """

    variance: torch.Tensor
    kernel: Callable[[torch.Tensor], torch.Tensor]
    factor: torch.Tensor
    weights: torch.Tensor

    def predict(self, x: Array) -> tuple[Array, Array]:
        """What the noiseless function is at other points.

        Args:
            x: [m, d], or [m, d + 1] with groups, inputs.

        Returns:
            [m] means and [m] standard deviations.
        """
        cross = self.kernel(torch.from_numpy(x))
        mean = cross @ self.weights
        known = torch.linalg.solve_triangular(self.factor, cross.T, upper=False)
        variance = self.variance - (known**2).sum(dim=0)
        return mean.numpy(), variance.clamp_min(1e-12).sqrt().numpy()


def _cholesky(matrix: torch.Tensor) -> torch.Tensor:
    """Of a matrix that rounding may have made a little less than positive."""
    eye = torch.eye(len(matrix), dtype=torch.float64)
    for exponent in (0, 1e-6, 1e-4, 1e-2):
        factor, failed = torch.linalg.cholesky_ex(matrix + exponent * eye)
        if not int(failed):
            break
    found: torch.Tensor = factor
    return found
