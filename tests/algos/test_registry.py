"""Algorithms of other packages; tests/test_packages.py installs one with an entry point."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disc import DiscError
from disc.algos import ALGORITHMS, Registry, ppo, sac


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
