"""Why a trial does not continue from a rung, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tuner.search.rungs.freeze_thaw_table import SliceStanding, why_not
from tuner.search.rungs.pareto_table import ParetoTable
from tuner.search.rungs.table import RungTable, Standing


def explain(
    table: RungTable,
    number: int,
    standing: Standing,
    values: Mapping[str, float],
    *,
    has_brackets: bool,
    sign: float,
) -> str:
    """Explains why a trial does not continue.

    Args:
        table: The rungs of its bracket.
        number: Its number.
        standing: Its standing.
        values: Its values there, by objective.
        has_brackets: Whether other trials are in other brackets.
        sign: -1 if the first objective is maximized, else 1.

    Returns:
        A sentence without the full stop.
    """
    if isinstance(standing, SliceStanding):
        name, value = next(iter(values.items()))
        return why_not(standing, table.step_of(standing.rung), value, name)
    where = f"at rung {standing.rung} (step {table.step_of(standing.rung)})"
    if has_brackets:
        where += f" of the bracket from step {table.first}"
    told = ", ".join([where, *(f"{name} {value:.6g}" for name, value in values.items())])
    best = f"the best 1 in {table.factor} of the {standing.n_came} trials at this rung"
    if standing.is_again:
        best += ", compared again halfway to the next"
    n_needed = table.n_bootstrap + 1 if table.is_final else table.factor
    if standing.n_came < n_needed:
        return f"{told}: no trial continues before {n_needed} trials reached this rung"
    if isinstance(table, ParetoTable):
        front = table.front_of(number, standing.rung) + 1
        return f"{told}: on Pareto front {front} and not among {best}"
    if math.isinf(standing.loss):
        return told
    if standing.loss == standing.bar:
        which = "some" if table.is_final else "the first"
        return f"{told} equals the limit of {best}, and only {which} with this value continue"
    worse = "below" if sign < 0 else "above"
    return f"{told} is {worse} {sign * standing.bar:.6g}, the limit of {best}"
