"""The Python interface, the policy file, and promises about options and compilation."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

import disc
from disc import (
    ACKTR,
    DDPG,
    DISC,
    PPO,
    PPOAMBER,
    SAC,
    SQL,
    TD3,
    TRPO,
    DiscError,
    TrustPCL,
    cli,
    logs,
    policy,
)
from disc.agent import AGENTS, Agent
from disc.networks import forward
from disc.normalize import observations, scale
from tests import environments as probes
from tests.small import SMALL

QUIET = {"eval_every": 0, "progress": False}


def small(kind: type[Agent] = DISC, env: Any = probes.wide, **options: Any) -> Agent:
    return kind(env, **{**SMALL[kind.algorithm.NAME], **options})


def test_predict_takes_one_observation_or_a_batch() -> None:
    agent = small().learn(512, **QUIET)
    batch = np.random.default_rng(0).standard_normal((5, 2, 3))
    actions, state = agent.predict(batch)
    assert actions.shape == (5, 2, 2)
    assert state is None
    one, _ = agent.predict(batch[3])
    np.testing.assert_allclose(one, actions[3], rtol=1e-5, atol=1e-7)
    assert agent.predict(batch[:1])[0].shape == (1, 2, 2)
    sampled, _ = agent.predict(batch, deterministic=False)
    assert not np.allclose(sampled, actions)
    with pytest.raises(DiscError, match=r"shape \(4,\)"):
        agent.predict(np.zeros(4))


def test_acting_in_numpy_is_the_network() -> None:
    agent = small().learn(512, **QUIET)
    x = np.random.default_rng(1).standard_normal((7, 2, 3)).astype(np.float32)
    snapshot = scale(agent.state.normalizer)
    mean = forward(agent.state.policy.parameters.mean, observations(snapshot, x.reshape(7, 6)))
    np.testing.assert_allclose(agent.predict(x)[0].reshape(7, 4), mean, rtol=1e-4, atol=1e-6)


def test_actions_are_clipped_only_if_asked() -> None:
    agent = small(horizon=256)
    x = 100.0 * np.ones((2, 3))
    agent.state.policy.parameters.mean[-1].bias.block_until_ready()
    far = jax.tree.map(lambda leaf: leaf + 3.0, agent.state.policy.parameters)
    agent.state = dataclasses.replace(
        agent.state, policy=agent.state.policy._replace(parameters=far)
    )
    assert np.max(agent.predict(x)[0]) > 0.5
    assert np.max(agent.predict(x, clip=True)[0]) <= 0.5


@pytest.mark.parametrize("clip", [False, True])
def test_the_environment_sees_clipped_actions_only_with_the_option(clip: bool) -> None:
    largest = 0.0

    class Watching(probes.Wide):
        def step(self, action: Any) -> Any:
            nonlocal largest
            largest = max(largest, float(np.max(action)))
            return super().step(action)

    agent = small(PPO, Watching, clip_actions=clip).learn(256, **QUIET)
    assert (largest <= 0.5) == clip
    assert agent.metrics[0]["train/actions_outside"] > 0.3


@pytest.mark.parametrize("kind", list(AGENTS.values()))
def test_a_saved_agent_acts_and_learns_on(kind: type[Agent], tmp_path: Path) -> None:
    agent = small(kind, "Hopper-v5").learn(512, **QUIET)
    agent.save(tmp_path / "hopper.disc")
    x = np.random.default_rng(0).standard_normal((4, 11))
    loaded = kind.load(tmp_path / "hopper.disc")
    actions = []
    for acting in (agent.policy, loaded.policy, disc.load(tmp_path / "hopper.disc")):
        acting.seed(0)  # SQL's is always sampled
        actions.append((acting.predict(x)[0], acting.predict(x, deterministic=False)[0]))
    np.testing.assert_array_equal(actions[0], actions[1])
    np.testing.assert_array_equal(actions[0], actions[2])
    assert loaded.config == agent.config
    loaded.learn(256, **QUIET)
    with pytest.raises(DiscError, match=f"a policy of {kind.algorithm.NAME}"):
        (PPO if kind is DISC else DISC).load(tmp_path / "hopper.disc")


def test_acting_needs_no_jax(tmp_path: Path) -> None:
    small().save(tmp_path / "p.disc")
    code = (
        "import sys, numpy, disc\n"
        f"policy = disc.load({str(tmp_path / 'p.disc')!r})\n"
        "policy.predict(numpy.zeros((2, 3)))\n"
        "assert not {'jax', 'gymnasium', 'rich', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.disc"
    small().save(path)
    data = bytearray(path.read_bytes())
    for position in (3, 40, len(data) // 2, len(data) - 1):
        damaged = bytearray(data)
        damaged[position] ^= 8
        path.write_bytes(damaged)
        with pytest.raises(DiscError, match=r"p\.disc"):
            disc.load(path)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DiscError):
        disc.load(path)
    with pytest.raises(DiscError, match="no such file"):
        disc.load(tmp_path / "q.disc")


@pytest.mark.parametrize("env", ["subprocess:run", "tests.environments:wide", None, 3])
def test_a_file_cannot_choose_what_is_imported(env: Any, tmp_path: Path) -> None:
    path, ran = tmp_path / "p.disc", tmp_path / "ran"
    agent = small()
    agent.save(path)
    file = policy.read(path)
    hostile = {"env": env, "env_kwargs": {"args": ["touch", str(ran)]}}
    policy.write(path, file.tensors, {**file.info, **hostile})
    with pytest.raises(DiscError, match="with env"):
        DISC.load(path)
    with pytest.raises(SystemExit):
        cli.main(["eval", str(path)])
    assert not ran.exists()
    assert disc.load(path).predict(np.zeros((2, 3)))[0].shape == (2, 2)


def test_numbers_that_are_not_finite_stop_the_run_before_it_saves(tmp_path: Path) -> None:
    def poison(agent: Agent, row: dict[str, float]) -> None:
        if agent.state.step == 512:
            bad = jax.tree.map(lambda x: x * np.nan, agent.state.value.parameters)
            value = agent.state.value._replace(parameters=bad)
            agent.state = dataclasses.replace(agent.state, value=value)

    with pytest.raises(DiscError, match="update at step 768 gave a number that is not finite"):
        small().learn(2048, out=tmp_path / "run", checkpoint_every=256, callbacks=[poison], **QUIET)
    names = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert names[-1] == "step_000000000512.safetensors"


def test_off_policy_they_stop_it_in_the_same_round() -> None:
    def poison(agent: Agent, row: dict[str, float]) -> None:
        if agent.state.step == 512:
            bad = jax.tree.map(lambda x: x * np.nan, agent.state.value.parameters)
            value = agent.state.value._replace(parameters=bad)
            learned = agent.state.learned._replace(value=value)
            agent.state = dataclasses.replace(agent.state, learned=learned)

    with pytest.raises(DiscError, match="update at step 528 gave a number that is not finite"):
        small(SAC).learn(2048, callbacks=[poison], **QUIET)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("raise", r"raised at step 310 .*motor is on fire"),
        ("nan-observation", "observation at step 310 is not finite"),
        ("inf-reward", "reward at step 310 is not finite"),
        ("shape", r"observation at step 310 has shape \(3,\)"),
    ],
)
def test_faults_are_named_where_steps_are_taken_one_by_one(fault: str, says: str) -> None:
    probes.Bad.total = 0
    agent = small(SAC, lambda: probes.Bad(fault, 310), steps_per_update=1, updates_per_step=1.0)
    with pytest.raises(DiscError, match=says):
        agent.learn(512, **QUIET)
    assert np.isfinite(agent.predict(np.zeros(1))[0]).all()


def test_a_loaded_policy_acts_from_the_first_step(tmp_path: Path) -> None:
    """Random steps are for networks that know nothing."""
    agent = small(SAC).learn(256, **QUIET)
    agent.save(tmp_path / "p.disc")
    loaded = SAC.load(tmp_path / "p.disc", env=probes.wide)
    for each, kind in ((small(SAC), "Uniform"), (loaded, "Squashed")):
        acting = each.algorithm.explore(each.config, each.env.spec, each.state)
        assert type(acting).__name__ == kind


def test_large_seeds_are_seeds_of_their_own() -> None:
    keys = [small(SAC, seed=seed).state.key for seed in (5, 5 + 2**32, 5 + 2**70)]
    assert len({tuple(np.asarray(key)) for key in keys}) == 3


def test_a_run_that_will_not_learn_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    small(SAC, random_steps=256).learn(256, eval_every=0)
    assert "Nothing will be learned: the first 256 steps are random" in capsys.readouterr().err


def test_numpy_numbers_are_numbers(tmp_path: Path) -> None:
    agent = small(PPO, seed=np.int64(3))
    agent.learn(np.int32(256), out=tmp_path / "run", **QUIET)
    assert (tmp_path / "run/policy.disc").exists()


def test_callbacks_log_and_stop() -> None:
    seen: list[float] = []

    def watch(agent: Agent, row: dict[str, float]) -> bool:
        seen.append(row["step"])
        return agent.state.step < 768

    agent = small().learn(5_000, callbacks=[watch], **QUIET)
    assert seen == [256, 512, 768] == [row["step"] for row in agent.metrics]


@pytest.mark.parametrize("answer", [0, None, True, np.zeros(2)])
def test_only_false_stops_a_run(answer: Any) -> None:
    agent = small(PPO).learn(512, callbacks=[lambda *_: answer], **QUIET)
    assert agent.state.step == 512


def test_ctrl_c_raises_once_the_iteration_is_done() -> None:
    def press(agent: Agent, row: dict[str, float]) -> None:
        signal.raise_signal(signal.SIGINT)

    agent = small(PPO)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(2048, callbacks=[press], **QUIET)
    assert agent.state.step == 256


def test_samples_can_be_seeded() -> None:
    policy = small().policy
    draws = []
    for seed in (1, 1, 2):
        policy.seed(seed)
        draws.append(policy.predict(np.zeros((2, 3)), deterministic=False)[0])
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_loading_takes_a_run_directory_and_keywords(tmp_path: Path) -> None:
    kwargs = {"forward_reward_weight": 2.0}
    agent = small(PPO, "Hopper-v5", env_kwargs=kwargs, num_envs=2)
    agent.learn(256, out=tmp_path / "run", **QUIET)
    loaded = PPO.load(tmp_path / "run")
    assert (loaded.num_envs, loaded.maker.kwargs) == (2, kwargs)
    loaded = PPO.load(tmp_path / "run", env="Hopper-v5", env_kwargs={}, epsilon=0.3)
    assert (loaded.num_envs, loaded.maker.kwargs) == (1, {})
    assert loaded.config.epsilon == 0.3


def test_without_checkpoints_only_the_end_is_saved(tmp_path: Path) -> None:
    agent = small(PPO).learn(512, out=tmp_path / "run", checkpoint_every=0, **QUIET)
    assert not agent.env.taken
    assert len(list((tmp_path / "run/checkpoints").iterdir())) == 1
    resumed = disc.resume(tmp_path / "run", 1024, env=probes.wide, progress=False)
    assert resumed.state.step == 1024


def test_a_wrapped_object_is_evaluated_on_a_copy() -> None:
    class Odd(gym.Wrapper[Any, Any, Any, Any]):
        """Does not say how it was made."""

    env = Odd(gym.make("Pendulum-v1"))
    agent = small(PPO, env)
    agent.learn(256, eval_every=256, eval_episodes=1, progress=False)
    assert agent.env.lanes[0].env is env
    assert "eval/return" in agent.metrics[-1]


def test_learning_goes_on_where_it_stopped() -> None:
    agent = small().learn(512, **QUIET).learn(512, **QUIET)
    assert [row["step"] for row in agent.metrics] == [256, 512, 768, 1024]


def test_a_column_that_comes_later_is_empty_before(tmp_path: Path) -> None:
    """Nothing is learned in the first iteration, so nothing is measured."""
    agent = small(SAC, random_steps=256)
    agent.learn(768, out=tmp_path / "run", eval_every=0, progress=False)
    first, *others = logs.read_progress(tmp_path / "run/progress.csv")
    assert "train/value_loss" not in first
    assert [row["step"] for row in others if "train/value_loss" in row] == [512, 768]
    header, *lines = (tmp_path / "run/progress.csv").read_text().splitlines()
    assert {line.count(",") for line in lines} == {header.count(",")}


def test_rows_do_not_change_what_is_learned() -> None:
    """The horizon of an off-policy run only says how often it is recorded."""
    short, long = (small(SAC, horizon=n).learn(512, **QUIET) for n in (128, 256))
    assert (len(short.metrics), len(long.metrics)) == (4, 2)
    for a, b in zip(*(jax.tree.leaves(x.state.learned) for x in (short, long)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_first_form_of_sac_learns_saves_and_goes_on(tmp_path: Path) -> None:
    agent = small(SAC, form="2018").learn(512, out=tmp_path / "run", **QUIET)
    assert agent.config.reward_scale == 5.0
    resumed = disc.resume(tmp_path / "run", 768, env=probes.wide, progress=False)
    assert resumed.state.learned.target[0].weight.shape == (6, 16)
    assert SAC.load(tmp_path / "run", env=probes.wide).config.form == "2018"


def test_what_is_measured() -> None:
    row = small().learn(1024, eval_every=256, eval_episodes=2, progress=False).metrics[-1]
    assert list(row)[:2] == ["step", "time/elapsed"]
    wanted = """
        eval/return eval/return_std eval/length train/return train/length train/entropy train/std
        train/learning_rate train/value_loss train/explained_variance train/actions_outside
        is/j_is is/kl is/alpha is/rho_start is/rho_d_start is/rho_last is/rho_d_last is/vanished
        is/clipped_dimensions is/batches is/oldest_age is/effective_samples is/rho_d_age_0
        is/rho_d_age_3 time/sampling time/reading time/updating time/evaluating
    """
    assert set(wanted.split()) <= set(row)


def test_amber_that_keeps_one_batch_is_ppo_to_the_bit() -> None:
    ppo = small(PPO).learn(1024, **QUIET)
    amber = small(PPOAMBER, replay_length=1).learn(1024, **QUIET)
    learned = [jax.tree.leaves((agent.state.policy, agent.state.value)) for agent in (ppo, amber)]
    for a, b in zip(*learned, strict=True):
        np.testing.assert_array_equal(a, b)
    timeless = [{k: v for k, v in agent.metrics[-1].items() if not k.startswith("time/")}
                for agent in (ppo, amber)]  # fmt: skip
    assert timeless[0] == timeless[1]


@pytest.mark.parametrize("algorithm", list(AGENTS))
def test_every_option_is_read(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that nothing reads is a lie."""
    agent = small(AGENTS[algorithm])
    config = type(agent.config)
    names, read = {field.name for field in dataclasses.fields(config)}, set()

    def spy(self: Any, name: str) -> Any:
        read.add(name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(config, "__getattribute__", spy)
    monkeypatch.setattr(config, "__hash__", lambda self: id(self))
    monkeypatch.setattr(config, "__eq__", lambda self, other: self is other)
    agent.state = agent.algorithm.init(agent.config, agent.env.spec, 1, 0)
    agent.config = agent.config.planned(512)
    read.clear()
    agent.state = agent.algorithm.init(agent.config, agent.env.spec, 1, 0)
    agent.learn(256, **QUIET)
    assert names <= read


@pytest.mark.parametrize("ablation", [
    {"advantage": "gae"}, {"penalty": "kl"}, {"penalty": "none"}, {"epsilon": 0.1},
    {"epsilon_b": 0.0}, {"replay_length": 2}, {"j_targ": 0.1}, {"divide_by_mean_ratio": False},
    {"value_clip": False}, {"bootstrap_time_limits": False}, {"learning_rate_floor": 9e-3},
])  # fmt: skip
def test_every_ablation_runs_and_changes_the_run(ablation: dict[str, Any]) -> None:
    fast = {"learning_rate": 1e-2, "epsilon_b": 0.5}

    def weights(**options: Any) -> Any:
        agent = small(env=probes.Cycle, seed=2, **{**fast, **options}).learn(2048, **QUIET)
        assert np.isfinite(list(agent.metrics[-1].values())).all()
        leaves = jax.tree.leaves((agent.state.policy.parameters, agent.state.value.parameters))
        return np.concatenate([np.ravel(leaf) for leaf in leaves])

    assert not np.array_equal(weights(), weights(**ablation))


@pytest.mark.parametrize("kind", list(AGENTS.values()))
def test_nothing_compiles_after_the_first_iteration(kind: type[Agent]) -> None:
    """Whatever is included: the number of batches changes, no shape does."""
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name) if "backend_compile" in name else None
    )
    counts: list[tuple[int, float]] = []

    def watch(agent: Agent, row: dict[str, float]) -> None:
        counts.append((len(compiled), row.get("is/batches", 1.0)))

    several = kind in (DISC, PPOAMBER)
    options = {"replay_length": 8, "epsilon_b": 0.05} if several else {}
    small(kind, widths=(17, 16), **options).learn(4096, callbacks=[watch], **QUIET)
    numbers, batches = zip(*counts, strict=True)
    assert numbers[0] > 0
    assert len(set(numbers)) == 1
    assert len(set(batches)) > 1 or not several


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epsilon": 1.0}, "epsilon must be .*below 1, not 1.0"),
        ({"epsilon": float("nan")}, "epsilon must be"),
        ({"horizon": 100, "gradient_steps": 32}, "horizon must be divisible by gradient_steps, 32"),
        ({"num_envs": 3}, "num_envs must divide the horizon"),
        ({"gamma": 1.1}, r"gamma must be within \[0, 1\]"),
        ({"replay_length": 0}, "replay_length must be at least 1"),
        ({"learning_rate_floor": 1.0}, "learning_rate_floor must be at most"),
        ({"epsilon_b": -0.1}, "epsilon_b must be at least 0"),
        ({"widths": ()}, "widths must be"),
        ({"widths": (16.0, 16)}, "widths must be whole"),
        ({"horizon": 256.0}, "horizon must be whole, not 256.0"),
        ({"widths": 64}, "wrong type"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"advantage": "gea"}, "advantage must be one of gae_v, gae"),
        ({"penalty": None}, "penalty must be one of is, kl, none"),
        ({"buffer_size": 3}, "disc has no option buffer_size; it has horizon"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DiscError, match=says):
        small(**options)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (PPO, {"epsilon_b": 0.1}, "ppo has no option epsilon_b"),
        (TRPO, {"epsilon": 0.1}, "trpo has no option epsilon"),
        (ACKTR, {"max_kl": 0.1}, "acktr has no option max_kl"),
        (TrustPCL, {"lam": 0.9}, "trust-pcl has no option lam"),
        (TRPO, {"horizon": 100}, "horizon must be divisible by value_minibatch, 64"),
        (TRPO, {"max_kl": 0.0}, "max_kl must be above 0"),
        (ACKTR, {"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        (ACKTR, {"damping": float("nan")}, "damping must be above 0"),
        (TrustPCL, {"path_length": 9}, "path_length must be at most chunk_length, 8"),
        (TrustPCL, {"horizon": 100}, "horizon must be divisible by chunk_length, 8"),
        (TrustPCL, {"residual_clip": 0.0}, "residual_clip must be above 0"),
        (SAC, {"epsilon": 0.1}, "sac has no option epsilon"),
        (SAC, {"clip_actions": True}, "sac has no option clip_actions"),
        (SAC, {"updates_per_step": 0.3}, "updates_per_step must be such that 16 steps make a who"),
        (SAC, {"updates_per_step": 0.0}, "updates_per_step must be above 0"),
        (TD3, {"num_envs": 3}, "num_envs must divide the steps_per_update, 16, and 3 doesn't"),
        (TD3, {"horizon": 100}, "horizon must be divisible by steps_per_update, 16"),
        (SQL, {"random_steps": -1}, "random_steps must be at least 0"),
        (DDPG, {"batch_size": 0}, "batch_size must be at least 1"),
        (DDPG, {"widths": (16,)}, "widths must be two layers or more"),
    ],
)
def test_each_algorithm_has_its_own_options(
    kind: type[Agent], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(DiscError, match=says):
        small(kind, **options)


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (TRPO, "is/kl train/step_fraction train/improvement"),
        (ACKTR, "is/kl train/nu train/value_nu train/step_size"),
        (TrustPCL, "is/kl train/lambda train/lambda_goal train/residual train/residual_clipped"),
        (DDPG, "train/q train/parameter_noise train/noise_distance"),
        (TD3, "train/q"),
        (SAC, "train/q train/entropy train/temperature"),
        (SQL, "train/q train/soft_value train/action_spread"),
    ],
)
def test_what_the_others_measure_of_their_own(kind: type[Agent], own: str) -> None:
    row = small(kind).learn(512, **QUIET).metrics[-1]
    shared = "train/objective train/value_loss time/sampling time/updating"
    if kind in (TRPO, ACKTR, TrustPCL):
        shared += " train/entropy train/std train/explained_variance"
    assert {*own.split(), *shared.split()} <= set(row)
    assert np.isfinite(list(row.values())).all()
