"""The equations, as pure functions of arrays."""

from disc.equations import (
    advantages,
    categorical,
    clipping,
    distributions,
    importance,
    path_consistency,
    stein,
)

__all__ = [
    "advantages",
    "categorical",
    "clipping",
    "distributions",
    "importance",
    "path_consistency",
    "stein",
]
