"""`python -m tools.difference`: what distinguishes DISC from PPO, as a diff of their functions.

`docs/disc.md` opens with it.
"""

from __future__ import annotations

import difflib
import inspect

from disc.algos import disc, ppo

FUNCTIONS = ("update", "estimate", "policy_loss")


def difference() -> str:
    """A unified diff of `disc/algos/ppo.py` and `disc/algos/disc.py`, without options and state."""
    old, new = (
        [line for name in FUNCTIONS for line in _source(module, name)] for module in (ppo, disc)
    )
    lines = difflib.unified_diff(old, new, ppo.__name__, disc.__name__, n=99, lineterm="")
    return "\n".join(line for line in lines if not line.startswith("@@"))


def _source(module: object, name: str) -> list[str]:
    function = inspect.unwrap(getattr(module, name))
    return [*inspect.getsource(function).splitlines(), ""]


if __name__ == "__main__":
    print(difference())
