"""The equations: pure functions of arrays, in the order in which an update uses them."""

from disc.equations import (
    advantages,
    clipping,
    distributions,
    importance,
    path_consistency,
    stein,
)

__all__ = ["advantages", "clipping", "distributions", "importance", "path_consistency", "stein"]
