"""A scrambled Sobol sequence: evenly spaced points in a cube, available by number.

The direction numbers are those of Joe and Kuo ("Constructing Sobol sequences with better
two-dimensional projections", SIAM J. Sci. Comput. 30, 2008). The scrambling is Owen's, which keeps
each interval's share of points and makes each point uniform, by a hash (Laine and Karras,
"Stratified sampling for stochastic transparency", 2011, with the constants of Vegdahl, as in
Burley, "Practical hash-based Owen scrambling", JCGT 9, 2020). Any point can be computed alone,
without its predecessors and without torch, which takes a dispatcher seconds to import.
"""

from __future__ import annotations

import functools
from hashlib import blake2b

_N_BITS = 32
_MASK = (1 << _N_BITS) - 1

#: By dimension, from the second on: the coefficients of its polynomial, and its first numbers.
_JOE_KUO: tuple[tuple[int, ...], ...] = (
    (0, 1),
    (1, 1, 3),
    (1, 1, 3, 1),
    (2, 1, 1, 1),
    (1, 1, 1, 3, 3),
    (4, 1, 3, 5, 13),
    (2, 1, 1, 5, 5, 17),
    (4, 1, 1, 5, 5, 5),
    (7, 1, 1, 7, 11, 19),
    (11, 1, 1, 5, 1, 1),
    (13, 1, 1, 1, 3, 11),
    (14, 1, 3, 5, 5, 31),
    (1, 1, 3, 3, 9, 7, 49),
    (13, 1, 1, 1, 15, 21, 21),
    (16, 1, 3, 1, 13, 27, 49),
    (19, 1, 1, 1, 15, 7, 5),
    (22, 1, 3, 1, 15, 13, 25),
    (25, 1, 1, 5, 5, 19, 61),
    (1, 1, 3, 7, 11, 23, 15, 103),
    (4, 1, 3, 7, 13, 13, 15, 69),
    (7, 1, 1, 3, 13, 7, 35, 63),
    (8, 1, 3, 5, 9, 1, 25, 53),
    (14, 1, 3, 1, 13, 9, 35, 107),
    (19, 1, 3, 1, 5, 27, 61, 31),
    (21, 1, 1, 5, 11, 19, 41, 61),
    (28, 1, 3, 5, 3, 3, 13, 69),
    (31, 1, 1, 7, 13, 1, 19, 1),
    (32, 1, 3, 7, 5, 13, 19, 59),
    (37, 1, 1, 3, 9, 25, 29, 41),
    (41, 1, 3, 5, 13, 23, 1, 55),
    (42, 1, 3, 7, 3, 13, 59, 17),
)
#: Further dimensions use the same ones again, with the points in another order.
N_DIMENSIONS = len(_JOE_KUO) + 1


def coordinate(number: int, dimension: int, *, seed: int) -> float:
    """One coordinate of a scrambled point.

    Args:
        number: The point's number, from 0.
        dimension: Any, from 0.
        seed: Seed of the scrambling.

    Returns:
        More than 0 and less than 1.
    """
    group, place = divmod(dimension, N_DIMENSIONS)
    if group:
        # A power of two of points, from the first on, stays one, so that it still covers.
        number = _scrambled(number, _hashed(seed, "order", group))
    bits = _scrambled(sobol_bits(number, place), _hashed(seed, "dimension", dimension))
    return (bits + 0.5) / (1 << _N_BITS)


def sobol_bits(number: int, dimension: int) -> int:
    """One coordinate of a point without scrambling, as a whole number below 2^32."""
    bits = 0
    for place, direction in enumerate(_directions(dimension)):
        if number >> place & 1:
            bits ^= direction
    return bits


@functools.cache
def _directions(dimension: int) -> tuple[int, ...]:
    """[32], equations 2 and 3 of Joe and Kuo."""
    if dimension == 0:
        return tuple(1 << (_N_BITS - 1 - k) for k in range(_N_BITS))
    coefficients, *first = _JOE_KUO[dimension - 1]
    degree = len(first)
    found = [each << (_N_BITS - 1 - k) for k, each in enumerate(first)]
    for k in range(degree, _N_BITS):
        direction = found[k - degree] ^ (found[k - degree] >> degree)
        for j in range(1, degree):
            if coefficients >> (degree - 1 - j) & 1:
                direction ^= found[k - j]
        found.append(direction)
    return tuple(found)


def _hashed(*words: object) -> int:
    """32 bits that differ wherever a word does."""
    return int.from_bytes(blake2b(repr(words).encode(), digest_size=4).digest(), "big")


def _scrambled(bits: int, seed: int) -> int:
    """Each bit turned or not, by the bits above it and the seed."""
    bits = _reversed(bits)
    bits ^= bits * 0x3D20ADEA & _MASK
    bits = (bits + seed) & _MASK
    bits = bits * (seed >> 16 | 1) & _MASK
    bits ^= bits * 0x05526C56 & _MASK
    bits ^= bits * 0x53A22864 & _MASK
    return _reversed(bits)


def _reversed(bits: int) -> int:
    return int(f"{bits:0{_N_BITS}b}"[::-1], 2)
