"""Algorithms of other packages; tests/test_packages.py installs one with an entry point."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from disc import DiscError
from disc.algos import ALGORITHMS, BUILT_IN, PARTS, Registry, ppo, sac
from tests.support import markdown


def test_register_names_missing_parts() -> None:
    with pytest.raises(DiscError, match="lacks explore, observe, update, act"):
        Registry().register(SimpleNamespace(NAME="x", Config=ppo.Config, init=ppo.init))  # type: ignore[arg-type]


def test_two_algorithms_cannot_share_a_name() -> None:
    registry = Registry(ppo)
    registry.register(ppo)
    with pytest.raises(DiscError, match="'ppo' is already in use"):
        registry.register(SimpleNamespace(**{**vars(sac), "NAME": "ppo"}))  # type: ignore[arg-type]


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(DiscError, match="no algorithm 'pppo'; choose from disc, ppo, "):
        ALGORITHMS["pppo"]


def test_algorithms_have_their_parts_in_the_documented_order() -> None:
    page = (markdown.ROOT / "docs/data-flow.md").read_text(encoding="utf-8")
    section = page.partition("\n## Adding an algorithm\n")[2]
    table = re.findall(r"^\| `(\w+)(?:\(.*\))?` \|", section, re.M)
    assert [name for name in table if name not in ("AGENT", "State")] == list(PARTS)
    for module in BUILT_IN:
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        own = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        own = [name for name in own if name in PARTS]
        assert own == [name for name in PARTS if name in own]
