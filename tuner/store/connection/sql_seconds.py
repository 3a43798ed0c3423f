"""Durations computed by the database: a sum reads no rows."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class seconds_between(FunctionElement[float]):
    """Seconds from one instant to another, to the microsecond."""

    type = sa.Double()
    inherit_cache = True
    name = "seconds_between"


@compiles(seconds_between, "sqlite")
def _on_sqlite(element: seconds_between, compiler: SQLCompiler, **kw: Any) -> str:
    # Stored as texts with six digits; julianday() is right to a tenth of a millisecond only.
    begin, end = (compiler.process(clause, **kw) for clause in element.clauses)
    whole = f"(strftime('%s', {end}) - strftime('%s', {begin}))"
    return f"({whole} + (substr({end}, 20) - substr({begin}, 20)))"


@compiles(seconds_between, "postgresql")
def _on_postgresql(element: seconds_between, compiler: SQLCompiler, **kw: Any) -> str:
    begin, end = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"CAST(extract(epoch FROM ({end} - {begin})) AS double precision)"


@compiles(seconds_between, "mysql")
@compiles(seconds_between, "mariadb")
def _on_mysql(element: seconds_between, compiler: SQLCompiler, **kw: Any) -> str:
    begin, end = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"(timestampdiff(MICROSECOND, {begin}, {end}) / 1e6)"
