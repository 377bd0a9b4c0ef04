"""Nested observations become the numbers that Gymnasium's `flatten` gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st

import disc
from disc import DiscError
from disc.envs.spaces import observation_layout
from disc.policy import file
from disc.policy.layout import Layout, LayoutError
from tests.support.environments import BOX, Nested
from tests.support.policies import S, contents, make

shapes = st.lists(st.integers(1, 3), min_size=0, max_size=3).map(tuple)
boxes = st.builds(
    lambda shape, kind: spaces.Box(-9, 9, shape, kind),
    shapes,
    st.sampled_from([np.float32, np.float64, np.int8, np.int64]),
)
leaves = st.one_of(
    boxes,
    st.builds(
        lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 4), st.integers(-3, 3)
    ),
    st.builds(
        lambda counts, start: spaces.MultiDiscrete(counts, start=np.full_like(counts, start)),
        st.sampled_from([np.array([2]), np.array([3, 1, 2]), np.array([[2, 3], [4, 1]])]),
        st.integers(-3, 3),
    ),
    st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)])),
)
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("zyxab"), inner, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=6,
)


class Observing(gym.Env[Any, Any]):
    """An environment with the given observation space."""

    action_space: ClassVar[Any] = BOX

    def __init__(self, space: Any) -> None:
        self.observation_space = space


def layout_of(space: Any) -> Layout:
    return observation_layout(Observing(space), "test")


@given(nested, st.integers(0, 100))
def test_flat_observations_equal_gymnasiums(space: Any, seed: int) -> None:
    space.seed(seed)
    layout, samples = layout_of(space), [space.sample() for _ in range(3)]
    wanted = np.float32([flatten(space, x) for x in samples])
    assert len(layout.names()) == len(set(layout.names())) == layout.size == wanted.shape[1]
    for x, row in zip(samples, wanted, strict=True):
        np.testing.assert_array_equal(layout.flatten(x), row)
        assert layout.misfit(x) is None
    if layout.plain:
        return
    stored = Layout.from_json(json.loads(json.dumps(layout.to_json())))
    assert stored == layout
    for x, row in zip(samples, wanted, strict=True):
        found, single = stored.rows(x)
        assert single
        np.testing.assert_array_equal(found, row[None])
    batch = gym.vector.utils.concatenate(
        space, samples, gym.vector.utils.create_empty_array(space, 3)
    )
    assert batch_space(space, 3).contains(batch)
    for several in (batch, samples, wanted):
        found, single = stored.rows(several)
        assert not single
        np.testing.assert_array_equal(found, wanted)


NESTED = Nested.observation_space
LAYOUT = layout_of(NESTED)
ARM = (np.float32([[0.5, 2.0]]), np.int8([1, 0]))
GOOD = {"arm": ARM, "gear": 2}
FLAT = np.float32([0.5, 2.0, 1.0, 0.0, 0.0, 1.0])


def test_entries_have_readable_names() -> None:
    names = ["arm[0][0, 0]", "arm[0][0, 1]", "arm[1][0]", "arm[1][1]", "gear = 1", "gear = 2"]
    assert LAYOUT.names() == names
    assert str(LAYOUT) == "arm[0] (1 × 2), arm[1] (2), gear (one of 2)"
    assert layout_of(spaces.Box(0, 1, (3,))).names() == ["number 0", "number 1", "number 2"]


WRONG: dict[str, tuple[Any, str]] = {
    "missing key": ({"arm": ARM}, "the observation lacks the key 'gear'"),
    "wrong key": ({"arm": ARM, "gaer": 1}, "lacks the key 'gear' and has the unknown key 'gaer'"),
    "extra key": ({**GOOD, "wheel": 1}, "the observation has the unknown key 'wheel'"),
    "no dict": (None, "the observation is None, not a dict with the keys 'arm', 'gear'"),
    "short tuple": (
        {"arm": ARM[:1], "gear": 1},
        "entry arm of the observation has 1 entries, not 2",
    ),
    "no tuple": ({"arm": 3, "gear": 1}, "entry arm of the observation is 3, not a tuple"),
    "size": (
        {"arm": (np.zeros((1, 3)), ARM[1]), "gear": 1},
        r"entry arm\[0\] of the observation has shape \(1, 3\), not \(1, 2\)",
    ),
    "category": ({"arm": ARM, "gear": 0}, "entry gear .* is 0, not a whole number from 1 to 2"),
    "fraction": ({"arm": ARM, "gear": 1.5}, "entry gear .* not a whole number from 1 to 2"),
    "text": ({"arm": (np.array([["a", "b"]]), ARM[1]), "gear": 1}, r"entry arm\[0\] .* of numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_observation_that_does_not_fit_is_described(name: str) -> None:
    wrong, says = WRONG[name]
    with pytest.raises(LayoutError, match=says):
        LAYOUT.flatten(wrong)
    error = LAYOUT.misfit(wrong)
    assert error is not None
    assert "\n" not in str(error)


def test_training_accepts_another_shape_of_the_same_size() -> None:
    """As it does for arrays; but `disc check` reports it, and `predict` wants the space's."""
    loose = {"arm": (ARM[0].ravel(), ARM[1]), "gear": np.int64([2])}
    np.testing.assert_array_equal(LAYOUT.flatten(loose), FLAT)
    assert "has shape (2,), not (1, 2)" in str(LAYOUT.misfit(loose))


# Policies


def acting() -> Any:
    return make("deterministic", observation_shape=(S,), layout=LAYOUT)[0]


@pytest.fixture
def loaded(tmp_path: Path) -> Any:
    file.write(tmp_path / "p.disc", *contents(acting()))
    return disc.load(tmp_path / "p.disc")


def test_loaded_policy_takes_nested_flat_and_batched_observations(loaded: Any) -> None:
    assert loaded.layout == LAYOUT
    wanted, _ = loaded.predict(FLAT)
    assert wanted.shape == (2, 2)
    np.testing.assert_array_equal(wanted, acting().mean(FLAT).reshape(2, 2))
    np.testing.assert_array_equal(loaded.predict(GOOD)[0], wanted)
    batch = {"arm": tuple(np.stack([x, x]) for x in ARM), "gear": np.array([2, 2])}
    for several in (batch, [GOOD, GOOD], np.stack([FLAT, FLAT])):
        found, _ = loaded.predict(several)
        assert found.shape == (2, 2, 2)
        np.testing.assert_allclose(found, [wanted, wanted], rtol=1e-6)


@pytest.mark.parametrize("name", WRONG)
def test_predict_of_a_wrong_observation_raises_one_sentence(name: str, loaded: Any) -> None:
    with pytest.raises(DiscError, match=r"^predict: .*\.$") as caught:
        loaded.predict(WRONG[name][0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (np.zeros(5), r"has shape \(5,\), but must be nested .* or flat, of shape \(6,\)"),
        ([GOOD, {"arm": ARM}], "observation 1 of the list lacks the key 'gear'"),
        (
            {"arm": (ARM[0][None], ARM[1][None]), "gear": 1},
            r"gear .* shape \(\), not \(1,\), as the b",
        ),
        ([], "has shape"),
        ("left", "is 'left', not a dict"),
    ],
)
def test_batch_that_does_not_fit_raises_one_sentence(wrong: Any, says: str, loaded: Any) -> None:
    with pytest.raises(DiscError, match=says):
        loaded.predict(wrong)


def test_categories_alone_are_values_or_flat_numbers() -> None:
    layout = layout_of(spaces.Discrete(3))
    for one in (2, np.int64(2), np.float32([0.0, 0.0, 1.0])):
        found, single = layout.rows(one)
        assert single
        assert found.tolist() == [[0.0, 0.0, 1.0]]
    found, single = layout.rows([0, 2, 1])
    assert not single
    assert found.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    with pytest.raises(LayoutError, match="is 3, not a whole number from 0 to 2"):
        layout.rows(3)


MALFORMED = [
    3,
    [],
    {},
    {"numbers": 3},
    {"numbers": [-1]},
    {"numbers": [2.0, 3]},
    {"numbers": [True] * 6},
    {"numbers": [6]},  # a Box needs no layout
    {"numbers": [6], "tuple": []},
    {"tuple": []},
    {"tuple": [{"numbers": [5]}]},
    {"tuple": [{"numbers": [2**40]}]},
    {"tuple": "six"},
    {"dict": {"a": {"numbers": [6]}}},
    {"dict": [["a", {"numbers": [3]}], ["a", {"numbers": [3]}]]},
    {"dict": [[None, {"numbers": [6]}]]},
    {"dict": [["a", {"numbers": [6]}, 1]]},
    {"categories": [6], "starts": [0]},
    {"categories": [6], "starts": [0, 0], "shape": []},
    {"categories": [6], "starts": [2**70], "shape": []},
    {"categories": [6], "starts": ["0"], "shape": []},
    {"categories": [2**31], "starts": [0], "shape": []},
    {"categories": [0, 6], "starts": [0, 0], "shape": [2]},
    {"module": "os"},
]


@pytest.mark.parametrize("wrong", MALFORMED, ids=str)
def test_malformed_layout_in_a_file_raises_one_sentence(wrong: Any, tmp_path: Path) -> None:
    tensors, header = contents(acting())
    file.write(tmp_path / "p.disc", tensors, {**header, "observation_layout": wrong})
    with pytest.raises(DiscError, match="invalid policy file") as caught:
        disc.load(tmp_path / "p.disc")
    assert "\n" not in str(caught.value)
