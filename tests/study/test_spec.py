"""Experiment files: the paper's, users' own, and errors in invalid ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from disc import DiscError
from disc.envs.tasks import TASKS
from disc.study import spec
from disc.study.spec import Cell, from_json
from tests.support.studies import assert_understood, study, write

PAPER = {  # tasks and arms; five seeds each
    "table1": (8, 4), "table2": (6, 8), "fig1": (3, 1), "fig2": (1, 3), "fig3": (4, 2),
    "fig5": (8, 4), "fig6": (1, 16), "fig7": (1, 4), "figb1": (4, 2), "figb2": (4, 4),
    "figb3": (4, 9), "figb4": (4, 4), "figc1": (6, 8),
}  # fmt: skip


# The paper's experiments


@pytest.mark.parametrize("name", PAPER)
def test_paper_experiment_is_complete(name: str) -> None:
    found = spec.find(name)
    assert (len(found.tasks), len(found.arms)) == PAPER[name]
    assert found.seeds == (0, 1, 2, 3, 4)
    cells = found.cells()
    assert len({cell.path for cell in cells}) == len(cells) == 5 * PAPER[name][0] * PAPER[name][1]
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    for cell in cells:
        assert cell.steps == TASKS[cell.task].steps
        assert cell.anneal_steps == (5_000_000 if cell.task == "ant" else cell.steps)
        plan = (cell.eval_every, cell.eval_episodes, cell.checkpoint_every)
        assert plan == (TASKS[cell.task].eval_every, 10, 100_000)
    assert not found.shortened
    assert from_json(found.as_json(), Path("x.json")) == found


def test_all_paper_experiments_exist_with_the_papers_steps() -> None:
    assert spec.names() == sorted(PAPER)
    million = {name: task.steps // 1_000_000 for name, task in TASKS.items()}
    assert million == {
        "hopper": 1, "walker2d": 1, "half-cheetah": 3, "ant": 3, "bipedal-walker": 3,
        "bipedal-walker-hardcore": 3, "humanoid": 10, "humanoid-standup": 10,
    }  # fmt: skip


def test_tables_contain_the_papers_numbers() -> None:
    first, second = (spec.find(name) for name in ("table1", "table2"))
    for found in (first, second):
        assert set(found.paper) == {arm.label for arm in found.arms}
        assert all(set(numbers) == set(found.tasks) for numbers in found.paper.values())
        for label, numbers in found.paper.items():
            assert {len(x) for x in numbers.values()} == {2 if label == "DISC" else 1}
    assert first.paper["DISC"]["humanoid-standup"] == [246435.89, 40387.30]
    assert first.paper["PPO"]["bipedal-walker-hardcore"] == [-62.11]
    assert first.paper["PPO-AMBER 0.1"]["hopper"] == [3498.32]
    assert first.paper["PPO-AMBER 0.2"]["walker2d"] == [4654.61]
    assert second.paper["DDPG"]["ant"] == [-6.87]
    assert second.paper["TRPO"]["humanoid"] == [1420.34]
    assert second.paper["ACKTR"]["half-cheetah"] == [3678.57]
    assert second.paper["Trust-PCL"]["hopper"] == [3073.03]
    assert second.paper["SQL"]["walker2d"] == [2592.78]
    assert second.paper["TD3"]["humanoid-standup"] == [58693.87]
    assert second.paper["SAC"]["half-cheetah"] == [14817.63]
    same = {task: number for task, number in first.paper["DISC"].items() if task in second.tasks}
    assert second.paper["DISC"] == same


def test_tables_and_figures_share_equal_runs() -> None:
    cells: dict[Path, list[Cell]] = {}
    for name in PAPER:
        for cell in spec.find(name).cells():
            cells.setdefault(cell.path, []).append(cell)
    both_tables_and_figures_3_5_6_7_c1 = cells[Path("humanoid/disc_paper_seed0")]
    assert len(both_tables_and_figures_3_5_6_7_c1) == 7
    figures_2_6_7 = cells[Path("humanoid/disc_paper_j_targ=0.0005_seed0")]
    assert len(figures_2_6_7) == 3
    assert len(cells[Path("hopper/sac_form=2018_seed4")]) == 2
    for same in cells.values():
        assert len({json.dumps([cell.options, cell.steps]) for cell in same}) == 1


# The command line


def test_commands_of_the_papers_runs_parse_to_the_same_runs() -> None:
    arms = {arm.name: arm for name in PAPER for arm in spec.find(name).arms}
    assert len(arms) > 25
    for arm in arms.values():
        assert_understood(replace(spec.find("table1").cells()[0], arm=arm))


def test_commands_with_any_options_parse_to_the_same_runs(tmp_path: Path) -> None:
    kwargs = {"a": [1, {"b": -2}], "c": "true", "d": "-x y", "e": -1e-5, "f": False, "g": "ü/:"}
    arms: list[dict[str, Any]] = [
        {"algo": "disc", "num_envs": 2, "widths": [8], "value_clip": False, "clip_actions": True},
        {"algo": "sac", "target_entropy": -1e-5, "env_kwargs": kwargs, "replay_size": 10},
        {"algo": "td3", "learning_rate": 1e-5, "random_steps": 0},
        {
            "algo": "disc",
            "preset": "recommended",
            "label": "all",
            "value_on_newest": False,
            "gamma": 0.9,
        },
    ]
    found = study(tmp_path, arms=arms, tasks=["a.b:c"], eval_every=0)
    for cell in found.cells():
        assert_understood(cell)
    assert {cell.eval_every for cell in found.cells()} == {0}
    assert from_json(found.as_json(), Path("x.json")) == found


def test_evaluations_may_be_rarer_on_some_tasks(tmp_path: Path) -> None:
    plan = {"tasks": ["hopper", "ant", "humanoid"], "steps": 1_000_000}
    defaults = study(tmp_path, **plan)
    assert [cell.eval_every for cell in defaults.cells()] == [4_000, 20_000, 50_000]
    one = study(tmp_path, **plan, eval_every={"ant": 7})
    assert [cell.eval_every for cell in one.cells()] == [4_000, 7, 50_000]
    assert {cell.eval_every for cell in study(tmp_path, **plan, eval_every=9).cells()} == {9}
    older = json.loads(defaults.as_json()) | {"eval_every": 4_000}  # one number for all tasks
    found = from_json(json.dumps(older), Path("x.json"))
    assert {cell.eval_every for cell in found.cells()} == {4_000}


def test_limits_of_a_study_are_those_of_its_runs(tmp_path: Path) -> None:
    found = study(tmp_path, tasks=["hopper", "ant"], stop_at={"ant": -5}, patience=3, best="lower")
    for cell in found.cells():
        assert_understood(cell)
    assert [cell.stop_at for cell in found.cells()] == [None, -5.0]
    assert {(cell.patience, cell.best) for cell in found.cells()} == {(3, "lower")}
    assert from_json(found.as_json(), Path("x.json")) == found
    assert study(tmp_path, stop_at=3000).cells()[0].stop_at == 3000.0
    assert_refused(tmp_path, "which eval_every 0 turns off", stop_at=1, eval_every=0)


# Axes, names, narrowing, shortening


def test_option_lists_expand_into_arms(tmp_path: Path) -> None:
    arm = {
        "label": "D", "algo": "disc", "j_targ": [1e-4, 1e-5], "widths": [[64, 64], [32]],
        "num_envs": [1, 2], "env_kwargs": [{}, {"a": 1, "b": "x"}], "epochs": 10,
    }  # fmt: skip
    found = study(tmp_path, arms=[arm, {"algo": "ppo", "widths": [8, 8]}])
    assert len(found.arms) == 2 * 2 * 2 * 2 + 1
    first, last, ppo = found.arms[0], found.arms[-2], found.arms[-1]
    assert (first.name, first.options) == (
        "disc_paper_j_targ=0.0001",
        {"j_targ": 1e-4},
    )
    assert first.label == "D j_targ = 0.0001, widths = 64-64, num_envs = 1"
    assert last.name == "disc_paper_a=1_b=x_j_targ=1e-05_num_envs=2_widths=32"
    assert last.label == "D j_targ = 1e-05, widths = 32, num_envs = 2, a = 1, b = x"
    assert (last.num_envs, last.env_kwargs) == (2, {"a": 1, "b": "x"})
    assert (ppo.label, ppo.name, ppo.options) == ("ppo", "ppo_widths=8-8", {"widths": [8, 8]})


def test_directory_names_are_safe_and_distinct(tmp_path: Path) -> None:
    tasks = ["my/Env-v0", "package.module:factory"]
    arms = [{"algo": "disc", "alpha_is": [2, 2.5], "env_kwargs": {"file": "../a b.xml"}}]
    cells = study(tmp_path, tasks=tasks, arms=arms, seeds=[7]).cells()
    assert [str(cell.path) for cell in cells] == [
        "my-Env-v0/disc_paper_alpha_is=2.0_file=..-a-b.xml_seed7",
        "my-Env-v0/disc_paper_alpha_is=2.5_file=..-a-b.xml_seed7",
        "package.module-factory/disc_paper_alpha_is=2.0_file=..-a-b.xml_seed7",
        "package.module-factory/disc_paper_alpha_is=2.5_file=..-a-b.xml_seed7",
    ]
    assert len(set(cells)) == 4


def test_two_labels_of_the_same_run_share_its_directory(tmp_path: Path) -> None:
    again = {"algo": "ppo", "label": "again", "gamma": 0.99}
    found = study(tmp_path, arms=[{"algo": "ppo"}, again])
    assert [arm.name for arm in found.arms] == ["ppo", "ppo"]


def test_narrowing_selects_seeds_tasks_and_arms() -> None:
    whole = spec.find("table1")
    part = whole.narrowed([8, 3], ["hopper"], ["PPO", "PPO-AMBER 0.1"])
    assert [str(cell.path) for cell in part.cells()] == [
        "hopper/ppo_seed8", "hopper/ppo-amber_seed8", "hopper/ppo_seed3", "hopper/ppo-amber_seed3",
    ]  # fmt: skip
    assert [arm.label for arm in whole.narrowed(algos=["ppo-amber"]).arms] == [
        "PPO-AMBER 0.1",
        "PPO-AMBER 0.2",
    ]
    assert whole.narrowed((), (), ()) == whole
    with pytest.raises(DiscError, match=r"table1 has no task 'Hopper-v5'; it has ant, .*walker2d"):
        whole.narrowed(tasks=["hopper", "Hopper-v5"])
    with pytest.raises(DiscError, match=r"table1 has no arm 'sac'; it has DISC, disc, .*PPO, ppo"):
        whole.narrowed(algos=["sac"])


def test_narrowed_experiment_and_its_file_are_equal() -> None:
    part = spec.find("table1").narrowed([8, 3], ["hopper"], ["PPO", "PPO-AMBER 0.1"])
    part = replace(part, scale=0.5, cut=1000)
    assert from_json(part.as_json(), Path("x.json")) == part


def test_directories_of_older_sweeps_are_found() -> None:
    """Older files have no preset, options that were removed, and floats written as integers."""
    fields = json.loads(spec.find("fig1").as_json())
    options = {"alpha_is": 2, "trust_region": "alpha"}
    fields["arms"] = [{"label": "DISC", "algorithm": "disc", "options": options}]
    (arm,) = from_json(json.dumps(fields), Path("x.json")).arms
    assert arm.name == "disc_paper_alpha_is=2_trust_region=alpha"


def test_scaling_shortens_everything_and_cutting_only_the_run(tmp_path: Path) -> None:
    ant = spec.find("table1").narrowed(tasks=["ant"], algos=["DISC"], seeds=[0])
    short, cut = replace(ant, scale=0.01).cells()[0], replace(ant, cut=30_000).cells()[0]
    assert (short.steps, short.anneal_steps, short.eval_every) == (30_000, 50_000, 1_200)
    assert (cut.steps, cut.anneal_steps, cut.eval_every) == (30_000, 5_000_000, 20_000)
    assert replace(ant, scale=0.01).shortened == "runs shortened to 0.01 of their length"
    assert replace(ant, cut=30_000).shortened == "runs cut at 30,000 steps"
    assert replace(ant, cut=3_000_000).shortened == ""  # their full length
    assert replace(ant, scale=1e-9).cells()[0].steps == 1
    own = study(tmp_path, arms=[{"algo": "ppo", "anneal_steps": [1000, 2000]}], steps=10_000)
    assert [x.options for x in replace(own, scale=0.1).cells()] == [
        {"anneal_steps": 100},
        {"anneal_steps": 200},
    ]
    few = study(tmp_path, steps=100_000, eval_every=30_000)
    assert few.cells()[0].eval_every == 30_000  # as the file says
    assert replace(few, scale=0.1).cells()[0].eval_every == 3_333


# Invalid files


def assert_refused(tmp_path: Path, says: str, **contents: Any) -> None:
    """One sentence with the file's name and the reason."""
    path = write(tmp_path / "bad.toml", **contents)
    with pytest.raises(DiscError, match=rf"bad\.toml: .*{says}.*\.$"):
        spec.read(path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"algo": "pppo"}, "algo must be one of acktr, .*, not 'pppo'"),
        ({"algo": ["ppo", "disc"]}, "algo must be one of"),
        ({"label": 3}, "label must be a string, not 3"),
        ({"epsilon_b": 0.1}, "ppo has no option epsilon_b"),
        ({"gamma": "0.9"}, "gamma must be a number"),
        ({"gamma": True}, "gamma must be a number, not True"),
        ({"gamma": 1.5}, "gamma must be within"),
        ({"gamma": []}, "gamma has no values"),
        ({"gamma": [[0.9]]}, "gamma must be a number"),
        ({"gamma": [0.5, 0.5]}, "two arms have the label"),
        ({"epochs": True}, "epochs must be a whole number"),
        ({"epochs": 2.0}, "epochs must be a whole number"),
        ({"value_clip": "no"}, "value_clip must be true or false"),
        ({"algo": "disc", "penalty": 3}, "penalty must be one of"),
        ({"algo": "disc", "penalty": "both"}, "penalty must be one of"),
        ({"widths": []}, "widths must be"),
        ({"widths": 64}, "widths must be a list"),
        ({"widths": [[64], 64]}, "widths must be a list"),
        ({"widths": [64, "64"]}, "widths must be a list of whole numbers"),
        ({"num_envs": 0}, "num_envs must be"),
        ({"num_envs": "2"}, "num_envs must be"),
        ({"num_envs": 3}, "num_envs must divide"),
        ({"env_kwargs": 3}, "env_kwargs must be a table"),
        ({"env_kwargs": [{"f": "a/b"}, {"f": "a:b"}]}, "two arms have the label"),
    ],
)
def test_invalid_arm_raises(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    assert_refused(tmp_path, says, arms=[{"algo": "ppo", **options}])


def test_directory_clashes_and_dates_raise(tmp_path: Path) -> None:
    arms = [{"algo": "ppo", "label": x, "env_kwargs": {"file": x}} for x in ("a/b", "a:b")]
    assert_refused(tmp_path, "'a/b' and 'a:b' would share the directories ppo_file=a-b", arms=arms)
    path = write(tmp_path / "dates.toml", arms=[{"algo": "ppo", "env_kwargs": {"day": "DAY"}}])
    path.write_text(path.read_text().replace('"DAY"', "2020-01-01"))
    with pytest.raises(DiscError, match="env_kwargs must be valid JSON values"):
        spec.read(path)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("task", ["hopper"], "an experiment has no entry 'task'"),
        ("arms", [], r"no \[\[arms\]\]"),
        ("arms", ["ppo"], "arms must be tables"),
        ("arms", {"algo": "ppo"}, "arms must be tables"),
        ("tasks", [], "has no tasks"),
        ("tasks", "hopper", "tasks must be a list"),
        ("tasks", [3], "an entry of tasks must be a string"),
        ("tasks", ["hopper", "hopper"], "tasks has 'hopper' twice"),
        ("tasks", ["a:b", "a/b"], "'a:b' and 'a/b' would share the directory a-b"),
        ("steps", "many", "steps must be a whole number"),
        ("steps", 1e6, "steps must be a whole number"),
        ("steps", 0, "steps must be a whole number of at least 1"),
        ("steps", True, "steps must be a whole number"),
        ("steps", [1], "steps must be a whole number"),
        ("steps", {"ant": 5}, "has 'ant', which is not one of the tasks"),
        ("anneal_steps", -1, "at least 1"),
        ("seeds", 3, "seeds must be a list"),
        ("seeds", [], "seeds must be a list"),
        ("seeds", [-1], "seed must be"),
        ("seeds", [0, "1"], "seed must be a whole number"),
        ("seeds", [1, 1], "seeds has 1 twice"),
        ("eval_every", -1, "eval_every must be"),
        ("eval_every", {"ant": 5}, "has 'ant', which is not one of the tasks"),
        ("eval_episodes", "10", "eval_episodes must be"),
        ("checkpoint_every", {"a": 1}, "checkpoint_every must be"),
        ("patience", -1, "patience must be"),
        ("stop_at", "high", "stop_at must be a number"),
        ("stop_at", {"ant": 5}, "has 'ant', which is not one of the tasks"),
        ("best", "median", "best must be one of mean, lower"),
        ("title", 3, "title must be a string"),
        ("note", ["x"], "note must be a string"),
        ("table", "no", "table must be true or false"),
        ("figures", {"title": "x"}, "figures must be tables"),
        ("figures", [{}], "a figure has no title"),
        ("figures", [{"title": "x", "metrics": "y"}], "a figure has no 'metrics'"),
        ("figures", [{"title": "x", "metric": 3}], "metric must be a list"),
        ("figures", [{"title": "x", "metric": [3]}], "an entry of a figure's metric"),
        ("figures", [{"title": "x", "window": 0}], "window must be"),
        ("figures", [{"title": "x", "line": "1"}], "line must be a number"),
        ("figures", [{"title": "x", "together": 1}], "together must be true or false"),
        ("figures", [{"title": "x", "arms": ["PPO"]}], "has the unknown arm 'PPO'; use ppo"),
        ("paper", 3, "paper must be a table"),
        ("paper", {"ppo": 3}, "paper.ppo must be a table"),
        ("paper", {"PPO": {}}, "has the unknown arm 'PPO'"),
        ("paper", {"ppo": {"ant": 1}}, "has 'ant', which is not one of the tasks"),
        ("paper", {"ppo": {"hopper": "1"}}, "hopper must be a number"),
        ("paper", {"ppo": {"hopper": []}}, "must be a number, or a number and its ±"),
    ],
)
def test_invalid_experiment_field_raises(key: str, value: Any, says: str, tmp_path: Path) -> None:
    assert_refused(tmp_path, says, **{key: value})


def test_unreadable_files_raise(tmp_path: Path) -> None:
    assert_refused(tmp_path, "has no steps for Hopper-v5", tasks=["Hopper-v5"], steps={})
    (tmp_path / "a.toml").write_text("tasks = [")
    (tmp_path / "b.toml").write_bytes(b"\xff")
    for path in (tmp_path, tmp_path / "none.toml", tmp_path / "a.toml", tmp_path / "b.toml"):
        with pytest.raises(DiscError, match=rf"{path}: can't be read"):
            spec.read(path)
    with pytest.raises(DiscError, match=r"no experiment '../table1'; choose from fig1, "):
        spec.find("../table1")
    for text in ("", "[]", "{}", '{"arms": 3}'):
        with pytest.raises(DiscError, match=r"x\.json: can't be read as an experiment"):
            from_json(text, Path("x.json"))
