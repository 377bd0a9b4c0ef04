"""Which package registers an environment that Gymnasium does not know."""

from __future__ import annotations

import importlib.util
import re
from typing import NamedTuple


class Package(NamedTuple):
    """A package that registers environments when it is imported."""

    ids: str  # a regular expression for the start of their ids
    module: str
    install: str


PACKAGES = (
    Package(r"(dm_control|bsuite|OpenSpiel|DmLab)/", "shimmy", "shimmy[dm-control]"),
    Package(r"ALE/", "ale_py", "ale-py"),
    Package(
        r"(Fetch|Hand|PointMaze|AntMaze|AdroitHand|FrankaKitchen)",
        "gymnasium_robotics",
        "gymnasium-robotics",
    ),
    Package(r"(MiniGrid|BabyAI)-", "minigrid", "minigrid"),
    Package(r"Meta-World/", "metaworld", "metaworld"),
    Package(r"PyFlyt/", "PyFlyt.gym_envs", "PyFlyt"),
    Package(r"Panda", "panda_gym", "panda-gym"),
    Package(
        r"(highway|merge|roundabout|parking|intersection|racetrack)-", "highway_env", "highway-env"
    ),
)


def package_of(id: str) -> str | None:
    """What to do about an unknown id of a known package, as the end of a sentence."""
    given, _, name = id.rpartition(":")
    found = next((package for package in PACKAGES if re.match(package.ids, name)), None)
    if found is None or given not in ("", found.module):
        return None
    how = f"name it as {found.module}:{name}"
    if importlib.util.find_spec(found.module.partition(".")[0]) is None:
        return f"it is registered by {found.module}: `pip install {found.install!r}`, then {how}."
    if given:
        return f"{found.module} is installed, but registers no such id."
    return f"it is registered by {found.module}: {how}."
