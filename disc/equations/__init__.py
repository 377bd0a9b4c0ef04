"""The equations, as pure functions of arrays."""

from disc.equations import (
    advantages,
    clipping,
    distributions,
    importance,
    path_consistency,
    stein,
)

__all__ = ["advantages", "clipping", "distributions", "importance", "path_consistency", "stein"]
