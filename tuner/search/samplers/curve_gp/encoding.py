"""Configurations as rows of numbers, for a process that compares them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial

from tuner.search.samplers.curve_gp.activity import Activity, any_of
from tuner.store.optuna_compat import SearchSpaceTransform

Array = NDArray[np.float64]

#: Before anything is known, in parts of a parameter's range.
_LENGTH_OF_PARAMETER = 0.6
#: Length scale of a one-hot encoded choice: the mean squared distance of two choices, in length
#: scales, then equals that of two random values of a range (2 instead of 1/6).
_LENGTH_OF_CHOICE = _LENGTH_OF_PARAMETER * math.sqrt(12.0)


class Encoding:
    """Configurations of a space as numbers from 0 to 1.

    A parameter that is inactive because of its conditions is encoded in the middle: equally far
    from both ends of its range, or from each choice. Configurations that lack it are thus compared
    by their other parameters, and those that differ in its activity differ in the parameter that
    decides it.

    Args:
        space: Its parameters.
        activity: Their conditions; None if every configuration has all parameters.
    """

    def __init__(
        self, space: Mapping[str, BaseDistribution], activity: Activity | None = None
    ) -> None:
        self.space = dict(space)
        self.activity = activity
        self._transform = SearchSpaceTransform(self.space, transform_0_1=True)
        self._rows: dict[int, Array] = {}
        #: Which parameter each column is of.
        self.columns = [int(place) for place in self._transform.encoded_column_to_column]
        is_choice = [isinstance(each, CategoricalDistribution) for each in self.space.values()]
        #: Before anything is known, by parameter.
        self.length_scales = [
            _LENGTH_OF_CHOICE if each else _LENGTH_OF_PARAMETER for each in is_choice
        ]
        self._columns_of = dict(
            zip(self.space, self._transform.column_to_encoded_columns, strict=True)
        )
        #: The columns of each parameter with choices, one for each choice.
        self.choices = [
            columns
            for columns, each in zip(self._columns_of.values(), is_choice, strict=True)
            if each
        ]
        #: The columns of all choices, and those of numbers.
        self.choice_columns = [int(column) for columns in self.choices for column in columns]
        self.number_columns = sorted({*range(len(self.columns))} - {*self.choice_columns})
        self._middle = np.full(len(self.columns), 0.5)
        for columns in self.choices:
            self._middle[columns] = 1.0 / len(columns)

    def row(self, trial: FrozenTrial) -> Array:
        """[d], for a trial whose parameters no longer change."""
        if trial.number not in self._rows:
            self._rows[trial.number] = self.encode(trial.params)
        return self._rows[trial.number]

    def encode(self, params: Mapping[str, Any]) -> Array:
        """[d], for a configuration, which may have further parameters."""
        lacks = [name for name in self.space if name not in params]
        any_value = {name: any_of(self.space[name]) for name in lacks}
        chosen = {name: any_value[name] if name in lacks else params[name] for name in self.space}
        row = np.asarray(self._transform.transform(chosen))
        for name in lacks:
            row[self._columns_of[name]] = self._middle[self._columns_of[name]]
        return row

    def absent(self, params: Mapping[str, Any]) -> NDArray[np.bool_]:
        """[d], whether a configuration lacks the parameter of a column."""
        absent = np.zeros(len(self.columns), dtype=bool)
        for name in self.space.keys() - params.keys():
            absent[self._columns_of[name]] = True
        return absent

    def draw(self, rng: np.random.Generator) -> Array:
        """[d], of a configuration at random."""
        return self.encode(self.decode(rng.random(len(self._transform.bounds))))

    def decode(self, row: Array) -> dict[str, Any]:
        """The parameters that a configuration has."""
        params = self._transform.untransform(row)
        return params if self.activity is None else self.activity.only(params)

    def differ_in_choices(self, rows: Array, others: Array) -> NDArray[np.bool_]:
        """[m], whether [m, d] configurations differ from [m, d] or [d] others in a choice."""
        columns = self.choice_columns
        differ: NDArray[np.bool_] = (rows[:, columns] != others[..., columns]).any(axis=1)
        return differ

    def whole(self, rows: Array) -> Array:
        """[m, d], configurations that exist, for [m, d] points."""
        found = np.clip(rows, 0.0, 1.0)
        for columns in self.choices:
            # What is judged is a choice, not a point between some.
            found[:, columns] = np.eye(len(columns))[found[:, columns].argmax(axis=1)]
        return self.without_inactive(found)

    def without_inactive(self, rows: Array) -> Array:
        """[m, d], for [m, d] configurations: without parameters excluded by their conditions."""
        if self.activity is None:
            return rows
        has = self.activity.flags(lambda name: self._values(name, rows), len(rows))
        for name, columns in self._columns_of.items():
            rows[np.ix_(~has[name], columns)] = self._middle[columns]
        return rows

    def _values(self, name: str, rows: Array) -> list[Any]:
        """[m], of one parameter in [m, d] configurations."""
        distribution, own = self.space[name], rows[:, self._columns_of[name]]
        if isinstance(distribution, CategoricalDistribution):
            return [distribution.choices[k] for k in own.argmax(axis=1)]
        transform = SearchSpaceTransform({name: distribution}, transform_0_1=True)
        return [transform.untransform(each)[name] for each in own]
