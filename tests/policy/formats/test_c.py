"""C headers compile without warnings and compute the actions of numpy."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from disc import DiscError
from disc.policy import file
from disc.policy.formats import c, check
from disc.policy.formats.export import export
from disc.policy.policies import Categorical
from tests.support import policies
from tests.support.compilers import build, every_compiler
from tests.support.exports import SAMPLES, every_policy, policy_file

WRAPPER = """\
#define DISC_SELF_TEST
#define DISC_NO_MAIN
#include "policy.h"
int act(const float *observation, const float *noise, TYPE *action);
int self_test(void);
int act(const float *observation, const float *noise, TYPE *action)
{
    (void)noise;
    return disc_act(observation, NOISE action);
}
int self_test(void) { return disc_self_test(); }
"""


def library(cc: str, source: Path, folder: Path, sampled: bool = False) -> Any:
    """An exported policy as a shared library with `act` and `self_test`."""
    folder.mkdir()
    policy = file.load(source)
    export(source, folder / "policy.h", stochastic=sampled)
    kind = "int" if isinstance(policy, Categorical) else "float"
    noise = "noise," if sampled or policy.sampled_only else ""
    (folder / "policy.c").write_text(WRAPPER.replace("TYPE", kind).replace("NOISE", noise))
    build(cc, "-shared", "-fPIC", folder / "policy.c", "-o", folder / "policy.so")
    return ctypes.CDLL(str(folder / "policy.so"))


def pointer(array: Any) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


def acting(found: Any, policy: Any) -> Callable[..., tuple[int, Any]]:
    """The status and the action (D,) for an observation (S,) and perhaps noise."""
    kind = np.int32 if isinstance(policy, Categorical) else np.float32

    def act(observation: Any, noise: Any = None) -> tuple[int, Any]:
        action = np.zeros(len(policy.action_low), kind)
        x = np.ascontiguousarray(observation, np.float32)
        noise = None if noise is None else pointer(noise)
        return found.act(pointer(x), noise, pointer(action)), action

    return act


@every_compiler
@every_policy
def test_header_computes_the_actions_of_numpy(name: str, cc: str, tmp_path: Path) -> None:
    source = policy_file(name, tmp_path)
    policy = file.load(source)
    for sampled in {policy.sampled_only, True}:
        found = library(cc, source, tmp_path / str(sampled), sampled)
        assert found.self_test() == 0
        x, noise = check.observations(policy), check.noise(policy, sampled)
        act = acting(found, policy)
        rows = [act(x[i], None if noise is None else noise[i]) for i in range(len(x))]
        assert not any(status for status, _ in rows)
        actions = np.array([action for _, action in rows])
        assert check.difference(policy, x, noise, actions) < 1e-5
        assert np.all(actions >= policy.action_low + starts(policy))
        assert np.all(actions <= policy.action_high + starts(policy))


def starts(policy: Any) -> Any:
    return policy.choices.starts if isinstance(policy, Categorical) else 0


@every_compiler
def test_self_test_runs_alone_and_finds_wrong_weights(cc: str, tmp_path: Path) -> None:
    header, program = tmp_path / "policy.h", tmp_path / "program"
    export(SAMPLES / "version-2" / "sac", header)
    build(cc, "-DDISC_SELF_TEST", "-x", "c", header, "-o", program)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "20 examples, 0 wrong actions\n")
    wrong, count = re.subn(r"(disc_bias_0\[\d+\] = {\n)", r"\1    1.0f + ", header.read_text())
    assert count == 1
    header.write_text(wrong)
    build(cc, "-DDISC_SELF_TEST", "-x", "c", header, "-o", program)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout


@every_compiler
def test_header_includes_only_math_h(cc: str, tmp_path: Path) -> None:
    export(SAMPLES / "categorical" / "ppo", tmp_path / "policy.h")
    (tmp_path / "main.c").write_text(
        '#include "policy.h"\nint act(const float *x, int *action);\n'
        "int act(const float *x, int *action) { return disc_act(x, action); }\n"
    )
    build(cc, "-ffreestanding", "-c", tmp_path / "main.c", "-o", tmp_path / "main.o")
    text = (tmp_path / "policy.h").read_text()
    before, _, _ = text.partition("#ifdef DISC_SELF_TEST")
    assert [line for line in before.splitlines() if "#include" in line] == ["#include <math.h>"]
    assert not any(word in text for word in ("malloc", "double"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is missing")
def test_header_is_also_valid_cpp(tmp_path: Path) -> None:
    export(SAMPLES / "ddpg", tmp_path / "policy.h", stochastic=True)
    build("g++", "-DDISC_SELF_TEST", "-x", "c++", tmp_path / "policy.h", "-o", tmp_path / "program",
          std="-std=c++14")  # fmt: skip
    assert subprocess.run([tmp_path / "program"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", ["version-2/td3", "categorical/ppo", "inverted-pendulum"])
def test_non_finite_observation_is_reported(name: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    policy = file.load(SAMPLES / name)
    act = acting(library("gcc", SAMPLES / name / "policy.disc", tmp_path / "build"), policy)
    x = np.zeros(len(policy.observation_mean), np.float32)
    assert act(x)[0] == 0
    x[-1] = np.nan
    assert act(x)[0] == 1


def test_weights_are_written_exactly() -> None:
    rng = np.random.default_rng(0)
    numbers = np.float32(rng.standard_normal(1000) * 10.0 ** rng.integers(-30, 30, 1000))
    numbers = np.append(numbers, np.float32([0.0, -0.0, 1.0, -3.0, 1e20, 16777217]))
    for number in numbers:
        text = c._float(number)
        assert text.endswith("f")
        assert np.float32(text[:-1]) == number
        assert "." in text or "e" in text
    assert c._float(np.float32(1e-42)) == "0.0f"  # subnormal literals are warnings in clang
    assert c._float(-np.inf) == "-INFINITY"


def test_names_in_untrusted_files_cannot_end_the_comment(tmp_path: Path) -> None:
    tensors, header = policies.contents(policies.make("deterministic")[0])
    name = '*/ int evil; /* ??/ \\\n" µ ' * 200
    file.write(tmp_path / "p.disc", tensors, {**header, "env_name": name, "versions": {name: name}})
    export(tmp_path / "p.disc", tmp_path / "policy.h")
    comment, _, rest = (tmp_path / "policy.h").read_text().partition("*/")
    assert comment.count("/*") == 1
    assert all(line.startswith((" *", "/*")) for line in comment.splitlines() if line != " ")
    assert "evil" not in rest
    assert "\\" not in comment


def test_order_of_nested_observations_is_in_the_comment(tmp_path: Path) -> None:
    export(SAMPLES / "nested-observations", tmp_path / "policy.h")
    layout = file.load(SAMPLES / "nested-observations").layout
    assert layout is not None
    text = (tmp_path / "policy.h").read_text()
    for i, name in enumerate(layout.names()):
        assert f" *   {i}: {name}\n" in text


def test_actions_beyond_an_int_raise(tmp_path: Path) -> None:
    tensors, header = policies.contents(file.load(policy_file("binary", tmp_path)))
    header = {**header, "starts": [2**40] * 4, "action_type": "int64"}
    file.write(tmp_path / "large.disc", tensors, header)
    with pytest.raises(DiscError, match="too large for an int"):
        export(tmp_path / "large.disc", tmp_path / "policy.h")


def test_c_policy_balances_the_pendulum_as_numpy_does(tmp_path: Path) -> None:
    """MuJoCo's InvertedPendulum-v5, through ctypes: 1,000 steps upright, the largest return."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    source = SAMPLES / "inverted-pendulum" / "policy.disc"
    policy = file.load(source)
    act = acting(library("gcc", source, tmp_path / "build"), policy)

    def episode(choose: Callable[[Any], Any]) -> tuple[float, Any]:
        env = gym.make("InvertedPendulum-v5")
        observation, _ = env.reset(seed=0)
        total, done = 0.0, False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(choose(observation))
            total, done = total + float(reward), terminated or truncated
        env.close()
        return total, observation

    total, last = episode(lambda x: act(x)[1])
    wanted, wanted_last = episode(lambda x: policy.predict(x, clip=True)[0])
    assert total == wanted == 1000.0
    np.testing.assert_allclose(last, wanted_last, atol=1e-3)
    assert episode(lambda x: np.zeros(1, np.float32))[0] < 100.0
