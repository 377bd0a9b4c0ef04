"""What the authors' code imports and no longer exists: Gym, and TensorFlow 1 with `contrib`.

Their files stay unchanged. They are imported with Gymnasium in the place of Gym, and with
TensorFlow's own module of version 1.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def install() -> Any:
    """Put the stand-ins where imports find them; returns TensorFlow 1."""
    import gymnasium
    import tensorflow

    old = tensorflow.compat.v1
    old.disable_v2_behavior()
    old.layers = ModuleType("tensorflow.layers")
    old.layers.flatten = lambda x: old.reshape(x, (-1, x.shape[1]))  # observations are vectors
    old.contrib = ModuleType("tensorflow.contrib")
    old.contrib.layers = ModuleType("tensorflow.contrib.layers")  # imported, but not used
    old.python = sys.modules["tensorflow.python"]
    sys.modules |= {
        "tensorflow": old,
        "tensorflow.contrib": old.contrib,
        "tensorflow.contrib.layers": old.contrib.layers,
        "gym": gymnasium,
        "gym.spaces": gymnasium.spaces,
        "gym.core": gymnasium.core,
    }
    return old
