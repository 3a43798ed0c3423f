"""Location of GPUs in a machine, derived from single facts: NVLink islands, nearest cores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

_WORD_BITS = 64


def number_islands(links: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The number of each linked GPU's island: GPUs joined by links, directly or indirectly.

    Args:
        links: Pairs of linked GPUs, in any order.

    Returns:
        Numbers from 0, in the order of each island's lowest GPU. A GPU without a link has none.
    """
    islands: list[set[int]] = []
    for pair in links:
        apart = [island for island in islands if island.isdisjoint(pair)]
        joined = (island for island in islands if not island.isdisjoint(pair))
        islands = [*apart, set(pair).union(*joined)]
    numbered = enumerate(sorted(islands, key=min))
    return {gpu: number for number, island in numbered for gpu in sorted(island)}


def numbers_in_mask(words: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the bits that are set; the lowest 64 are in the first word."""
    return tuple(
        _WORD_BITS * place + bit
        for place, word in enumerate(words)
        for bit in range(_WORD_BITS)
        if word >> bit & 1
    )


def nearest_cores(near: Iterable[int], usable: AbstractSet[int]) -> tuple[int, ...]:
    """The cores near a GPU that this process may use; empty if these are all or none."""
    cores = usable & frozenset(near)
    return () if cores == usable else tuple(sorted(cores))
