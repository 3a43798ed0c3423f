"""Gaussian process regression, small and fast: one length scale per input, and noise.

The kernel is Matérn 5/2 and the parameters maximize the posterior density (Rasmussen and Williams,
"Gaussian Processes for Machine Learning", MIT Press 2006, equations 2.25, 2.26, 2.30 and 4.17),
with log-normal priors, which keep it uncertain after a handful of points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Mean and deviation of the logarithm; outputs have mean 0 and variance 1.
_VARIANCE_PRIOR = (0.0, 1.0)
_NOISE_PRIOR = (math.log(0.01), 1.5)
_LENGTH_SPREAD = 1.0
#: For the variance of each group's own part, as a multiple of the shared variance.
_OWN_PRIOR = (0.0, 1.0)
_JITTER = 1e-6
_SQRT_5 = math.sqrt(5.0)


class GaussianProcess:
    """A Gaussian process with mean 0.

    Args:
        length_scales: [d], prior modes; inputs are about 0 to 1.
        columns: [c], the length scale of each input column; by default one per column. Columns of a
            one-hot encoded choice share one: their squared distance is then the Hamming distance, 2
            if choices differ.
        has_groups: Whether inputs have one more column, with the number of a point's group: then
            the function is the sum of one shared by all groups and one for each group, with the
            same length scales (a hierarchy as in Swersky, Snoek and Adams, arXiv:1406.3896, where
            the groups are training curves).
    """

    def __init__(
        self,
        length_scales: Sequence[float],
        *,
        columns: Sequence[int] | None = None,
        has_groups: bool = False,
    ) -> None:
        self._d = len(length_scales)
        self._columns = torch.tensor(range(self._d) if columns is None else columns)
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
        """Maximizes the posterior density, starting from the current parameters.

        Args:
            x: [n, c], or [n, c + 1] with groups, inputs.
            y: [n], outputs, with mean 0 and variance 1.
            n_steps: Maximum number of optimizer (L-BFGS) steps.
        """
        outputs, pairs = torch.from_numpy(y), Pairs.of(torch.from_numpy(x), self._columns, self._d)
        logs = self._logs.clone()
        optimizer = torch.optim.LBFGS([logs], max_iter=n_steps, line_search_fn="strong_wolfe")

        def loss() -> float:
            value, logs.grad = self.loss(logs, pairs, outputs)
            return value

        try:
            optimizer.step(loss)  # type: ignore[no-untyped-call]  # torch has none for it.
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # It is public.
            return  # Points that lie on each other; what it had still holds.
        if bool(torch.isfinite(logs).all()):
            self._logs = logs.detach()

    def given(self, x: Array, y: Array) -> Posterior:
        """The process once something was observed.

        Args:
            x: [n, c], or [n, c + 1] with groups, inputs.
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

    def loss(self, logs: torch.Tensor, pairs: Pairs, y: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The negative log posterior density, without constants, and its gradient.

        The gradient is analytic (Rasmussen and Williams, equation 5.9): automatic differentiation
        through all pairwise distances would take most of the time.

        Args:
            logs: [p], logarithms of variance, noise and length scales, and of the share of groups.
            pairs: Pairwise differences of all n points.
            y: [n], outputs.

        Returns:
            The loss and [p] its gradient.

        Raises:
            torch.linalg.LinAlgError: If points coincide.
        """
        d, n = self._d, len(y)
        variance, weights_of_inputs = logs[0].exp(), (-2.0 * logs[2 : 2 + d]).exp()
        far = _SQRT_5 * (weights_of_inputs @ pairs.squares).sqrt().view(n, n)
        shape, own = _matern(far), torch.ones((), dtype=torch.float64)
        if pairs.is_same is not None:
            share = torch.sigmoid(-logs[2 + d])
            own = torch.where(pairs.is_same, 1.0, share)
        kernel, noise = variance * shape * own, _noise(logs)
        factor = torch.linalg.cholesky(kernel + noise * torch.eye(n, dtype=torch.float64))
        weights = torch.cholesky_solve(y[:, None], factor)[:, 0]
        unlikely = (logs - self._prior_mean) / self._prior_spread
        loss = 0.5 * (y @ weights) + factor.diagonal().log().sum() + 0.5 * unlikely.square().sum()

        # By the covariance of each pair.
        by_pair = 0.5 * (torch.cholesky_inverse(factor) - torch.outer(weights, weights))
        slope = unlikely / self._prior_spread
        slope[0] += (by_pair * kernel).sum()
        slope[1] += (noise - _JITTER) * by_pair.diagonal().sum()
        by_square = by_pair * own * variance * (5.0 / 6.0) * (1.0 + far) * torch.exp(-far)
        slope[2 : 2 + d] += 2.0 * weights_of_inputs * (pairs.squares @ by_square.reshape(-1))
        if pairs.is_same is not None:
            by_share = (by_pair * variance * shape)[~pairs.is_same].sum()
            slope[2 + d] -= share * (1.0 - share) * by_share
        return float(loss), slope

    def _covariance(self, logs: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        covariance = self._kernel(logs, x, x)
        covariance.diagonal().add_(_noise(logs))
        return covariance

    def _kernel(self, logs: torch.Tensor, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        d, c = self._d, len(self._columns)
        scales = logs[2 : 2 + d].exp()[self._columns]
        # Not by a product of matrices, which rounds away what lies close together.
        apart = torch.cdist(
            x[:, :c] / scales,
            other[:, :c] / scales,
            compute_mode="donot_use_mm_for_euclid_dist",
        )
        kernel = _matern(apart.mul_(_SQRT_5)).mul_(logs[0].exp())
        if x.shape[1] == c:
            return kernel
        is_same = x[:, None, c] == other[None, :, c]
        return kernel * torch.where(is_same, 1.0, torch.sigmoid(-logs[2 + d]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Distances of points, independent of the parameters.

    Attributes:
        squares: [d, n * n], squared distances of points, by length scale.
        is_same: [n, n], whether points are of the same group; None without groups.
    """

    squares: torch.Tensor
    is_same: torch.Tensor | None

    @classmethod
    def of(cls, x: torch.Tensor, columns: torch.Tensor, d: int) -> Pairs:
        """Pairwise squared differences of points.

        Args:
            x: [n, c], or [n, c + 1] with groups, inputs.
            columns: [c], the length scale of each column.
            d: Number of length scales.
        """
        c, n = len(columns), len(x)
        values = x[:, :c].T
        by_column = (values[:, :, None] - values[:, None, :]).square().reshape(c, n * n)
        squares = torch.zeros(d, n * n, dtype=x.dtype).index_add_(0, columns, by_column)
        is_same = x[:, None, c] == x[None, :, c] if x.shape[1] > c else None
        return cls(squares=squares, is_same=is_same)


def _matern(far: torch.Tensor) -> torch.Tensor:
    """Matérn 5/2 of distances times the root of 5."""
    # In place where it can be: memory takes most of the time.
    bend = (1.0 + far).add_(far.square().div_(3.0))
    return bend.mul_(far.neg().exp_())


def _noise(logs: torch.Tensor) -> torch.Tensor:
    return logs[1].exp() + _JITTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """A conditioned Gaussian process. It is immutable, so threads may share it.

    Attributes:
        variance: [], the prior variance of the function.
        kernel: Maps [m, d] inputs to their [m, n] covariances with the observations.
        factor: [n, n], the lower Cholesky factor of the observations' covariance.
        weights: [n].
    """

    variance: torch.Tensor
    kernel: Callable[[torch.Tensor], torch.Tensor]
    factor: torch.Tensor
    weights: torch.Tensor

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Predicts the noiseless function at other points.

        Args:
            x: [m, c], or [m, c + 1] with groups, inputs.

        Returns:
            [m] means and [m] standard deviations.
        """
        cross = self.kernel(torch.from_numpy(x))
        mean = cross @ self.weights
        known = torch.linalg.solve_triangular(self.factor, cross.T, upper=False)
        variance = self.variance - known.square_().sum(dim=0)
        return mean.numpy(), variance.clamp_min(1e-12).sqrt().numpy()


def _cholesky(matrix: torch.Tensor) -> torch.Tensor:
    """Cholesky factor of a matrix that rounding may have made slightly indefinite."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    eye = torch.eye(len(matrix), dtype=torch.float64)
    for more in (1e-6, 1e-4, 1e-2):
        if not int(failed):
            break
        factor, failed = torch.linalg.cholesky_ex(matrix + more * eye)
    found: torch.Tensor = factor
    return found
