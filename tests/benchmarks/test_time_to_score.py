"""`python -m benchmarks.time_to_score`: which runs are done, and what the tables say about them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers, zoo
from benchmarks import time_to_score as benchmark
from benchmarks.score_worker import Watch
from benchmarks.time_to_score import CONTENDERS, THRESHOLDS, Limit, Run
from disc.algos import ALGORITHMS
from disc.learning.config import make_config

LIMIT = Limit(15.0, 3_000_000, 10_000, 2)
MACHINE = {"system": "Linux x86_64", "processor": "Some CPU", "cores": 2, "device": "cpu"}
RISING = [[10_000, 60.0, 900.0], [20_000, 120.0, 2_500.0], [30_000, 180.0, 2_000.0]]
LOW = [[10_000, 60.0, 900.0]]


def record(label: str, seed: int = 0, curve: Any = RISING, **changes: Any) -> dict[str, Any]:
    known = {"task": "Hopper-v5", "label": label, "seed": seed, "limit": LIMIT._asdict()}
    facts = {"machine": MACHINE, "other_cores": 0.05, "seconds": 900.4, "evaluating_seconds": 90.0}
    return {**known, **facts, "curve": curve, **changes}


def test_patterns_choose_contenders_in_the_order_of_seeds() -> None:
    runs = benchmark.choose(["Hopper-v5", "Ant-v5"], ["disc*", "sb? sac tuned"], [3, 4], True)
    labels = ["disc recommended", "disc paper", "sb3 sac tuned", "sbx sac tuned"]
    expected = [(3, task, x) for task in ("Hopper-v5", "Ant-v5") for x in labels]
    assert [(run.seed, run.task, run.contender.label) for run in runs[:8]] == expected
    assert {run.seed for run in runs[8:]} == {4}


def test_pattern_of_a_bare_name_means_ours_only() -> None:
    (run,) = benchmark.choose(["Ant-v5"], ["sac"], [0], True)
    assert run.contender.library == "disc"


def test_without_peers_only_ours_are_left_and_others_are_unknown() -> None:
    runs = benchmark.choose(["Ant-v5"], ["*"], [0], False)
    assert len(runs) == 6
    assert {run.contender.library for run in runs} == {"disc"}
    with pytest.raises(SystemExit, match="sb3"):
        benchmark.choose(["Ant-v5"], ["sb3*"], [0], False)


def test_recorded_runs_are_skipped_unless_the_limit_differs() -> None:
    runs = benchmark.choose(["Hopper-v5"], ["ppo"], [0, 1], False)
    done = [record("ppo", 0), record("trpo", 1)]
    assert benchmark.left(runs, done, LIMIT) == [Run("Hopper-v5", CONTENDERS["ppo"], 1)]
    assert benchmark.left(runs, done, LIMIT._replace(minutes=30.0)) == runs


def test_recorded_runs_are_kept_when_one_is_added(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    assert benchmark.read(path) == []
    for seed in (0, 1):
        benchmark.append(path, record("ppo", seed))
    assert benchmark.read(path) == [record("ppo", 0), record("ppo", 1)]
    assert [x.name for x in tmp_path.iterdir()] == ["runs.json"]


def test_threshold_is_reached_at_the_first_evaluation_at_or_above_it() -> None:
    assert benchmark.reached(RISING, 2_500) == (120.0, 20_000)
    assert benchmark.reached(RISING, 2_500.1) is None
    assert benchmark.reached([], 0) is None


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        ([RISING, RISING], "2.0 (2 of 2)"),
        ([RISING, RISING, LOW], "2.0 (2 of 3)"),
        ([RISING, LOW], "— (1 of 2 in 2.0, 15 min)"),
        ([LOW, []], "— (0 of 2, 15 min)"),
    ],
)
def test_median_counts_runs_below_the_threshold_as_infinite(
    curves: list[Any], expected: str
) -> None:
    runs = [record("ppo", seed, curve) for seed, curve in enumerate(curves)]
    assert benchmark.text(benchmark.score(runs, 2_500)) == expected


def test_only_runs_under_the_same_load_are_comparable() -> None:
    ours = [record("ppo", 0), record("ppo", 1, other_cores=0.1)]
    assert benchmark.same_load(ours, [record("sac", other_cores=0.19)])
    other = {"other_cores": 0.21}, {"other_cores": None}, {"machine": {**MACHINE, "cores": 4}}
    for changes in (*other, {"limit": LIMIT._replace(cores=1)._asdict()}):
        assert not benchmark.same_load(ours, [record("sac", **changes)])


def test_table_compares_with_the_fastest_of_ours() -> None:
    slower = [[step, 2 * seconds, value] for step, seconds, value in RISING]
    records = [
        record("sb3 sac tuned", curve=slower),
        record("sbx sac tuned", curve=slower, other_cores=1.0),
        record("sb3 ppo ours", curve=LOW),
        record("disc paper", curve=slower),
        record("ppo"),
        record("trpo", curve=[], other_cores=None),
    ]
    ((title, (header, *rows)),) = benchmark.tables(records).items()
    assert title.startswith("Hopper-v5: 2 of 2 cores (Some CPU), 15 minutes or 3,000,000 steps")
    assert header[:4] == ["contender", "minutes to 2,500", "steps", "÷ fastest of ours"]
    assert rows == [
        ["disc paper", "4.0 (1 of 1)", "20,000", "2.00", "2,500", "0.05"],
        ["ppo", "2.0 (1 of 1)", "20,000", "1.00", "2,500", "0.05"],
        ["trpo", "— (0 of 1, 15 min)", "", "", "", "unknown"],
        ["sb3 ppo ours", "— (0 of 1, 15 min)", "", "", "900", "0.05"],
        ["sb3 sac tuned", "4.0 (1 of 1)", "20,000", "2.00", "2,500", "0.05"],
        ["sbx sac tuned", "4.0 (1 of 1)", "20,000", "other load", "2,500", "1.00"],
    ]


def test_tables_keep_limits_apart_and_have_three_columns_per_threshold() -> None:
    ant = record("ppo", task="Ant-v5", curve=[[10_000, 30.0, 2_100.0]])
    found = benchmark.tables([ant, {**ant, "limit": LIMIT._replace(cores=1)._asdict()}])
    assert len(found) == 2
    for header, row in found.values():
        assert len(header) == len(row) == 1 + 2 * 3 + 2
        assert row[1:7] == ["0.5 (1 of 1)", "10,000", "1.00", "— (0 of 1, 15 min)", "", ""]


def test_markdown_has_a_line_per_contender() -> None:
    ((title, cells),) = benchmark.tables([record("ppo"), record("sac")]).items()
    lines = benchmark.markdown(title, cells).splitlines()
    assert lines[0] == title
    assert lines[3] == "|---|---:|---:|---:|---:|---:|"
    assert lines[4] == "| ppo | 2.0 (1 of 1) | 20,000 | 1.00 | 2,500 | 0.05 |"
    assert len(lines) == 6


def test_median_curve_ends_with_the_shortest_seed() -> None:
    other = [[step, seconds + 10, value + 100] for step, seconds, value in RISING[:2]]
    assert benchmark.median_curve([RISING, other]) == [(65.0, 950.0), (125.0, 2_550.0)]


def test_forecast_uses_the_recorded_share_of_evaluations() -> None:
    runs = benchmark.choose(["Hopper-v5"], ["*"], [0], True)
    share = {"seconds": 900.0, "evaluating_seconds": 90.0}
    text = benchmark.forecast(runs, [record("ppo", **share)], LIMIT)
    assert text == "21 runs: at most 5.25 hours of the clock, about 5.78 with evaluations."


class Scripted(Watch):
    """Evaluations return given values and take an hour."""

    def __init__(self, returns: list[float], **task: Any) -> None:
        known = {"launched": time.monotonic(), "seconds": 60.0, "every": 10, "score": 5.0}
        super().__init__({**known, **task}, lambda observation: observation)
        self.returns = iter(returns)

    def evaluate(self, number: int) -> float:
        self.evaluating += 3600.0
        return next(self.returns)


def test_evaluations_follow_the_schedule_and_the_clock_stands_still() -> None:
    watch = Scripted([1.0, 2.0, 5.0])
    assert [watch.updated(step) for step in (4, 12, 18, 20, 45)] == [True] * 4 + [False]
    assert [(step, value) for step, _, value in watch.curve] == [(12, 1.0), (20, 2.0), (45, 5.0)]
    assert watch.ended == "score"
    assert not watch.updated(60)
    assert len(watch.curve) == 3


def test_run_ends_at_its_time_limit_without_another_evaluation() -> None:
    watch = Scripted([], launched=time.monotonic() - 61.0)
    assert not watch.updated(12)
    assert (watch.ended, watch.curve) == ("time", [])


def test_zoo_has_settings_for_every_tuned_contender_and_task() -> None:
    for tasks in zoo.TUNED.values():
        assert set(tasks) == set(THRESHOLDS)
    tuned = {x.algorithm for x in benchmark.PEERS if x.choice == "tuned"}
    assert tuned == set(zoo.TUNED)


@pytest.mark.parametrize("task", list(THRESHOLDS))
def test_our_settings_of_peers_are_our_defaults(task: str) -> None:
    for name in ("sac", "td3"):
        theirs = benchmark.settings_of(Run(task, CONTENDERS[f"sb3 {name} ours"], 0))
        config = make_config(ALGORITHMS[name], {}).for_task(task)
        assert theirs["learning_starts"] == config.random_steps
        assert tuple(theirs["policy_kwargs"]["net_arch"]) == config.widths
        for own, their in (("replay_size", "buffer_size"), ("tau", "tau"), ("gamma", "gamma")):
            assert theirs[their] == getattr(config, own)
        assert theirs["learning_rate"] == config.learning_rate
        assert theirs["batch_size"] == config.batch_size
    trpo = make_config(ALGORITHMS["trpo"], {})
    assert peers.ours("trpo") == {
        "normalize": True,
        "n_steps": trpo.horizon,
        "batch_size": trpo.value_minibatch,
        "gamma": trpo.gamma,
        "gae_lambda": trpo.lam,
        "target_kl": trpo.max_kl,
        "cg_max_steps": trpo.cg_iterations,
        "cg_damping": trpo.cg_damping,
        "line_search_max_iter": trpo.line_search_steps,
        "line_search_shrinking_factor": 0.5,
        "n_critic_updates": trpo.value_epochs,
        "learning_rate": trpo.value_learning_rate,
        "policy_kwargs": {"net_arch": {name: list(trpo.widths) for name in ("pi", "vf")}},
    }
