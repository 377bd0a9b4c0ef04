"""`tools.zoo` keeps the median policy of a sweep, with its origin."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import disc
from disc.policy import file as policies
from tests.support import sweeps
from tools import zoo


def test_policy_of_the_median_seed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):
        with disc.PPO("InvertedPendulum-v5", seed=seed, horizon=256, gradient_steps=4) as agent:
            run = tmp_path / "sweep" / "pendulum" / f"ppo_seed{seed}"
            agent.learn(512, out=run, eval_every=256, eval_episodes=1, progress=False)
    runs = sorted((tmp_path / "sweep" / "pendulum").iterdir())
    chosen, scores = zoo.median(runs)
    assert sorted(scores.values())[1] == scores[chosen.name.removeprefix("ppo_seed")]

    command = ["zoo", str(tmp_path / "sweep"), "--arm", "ppo", "--zoo", str(tmp_path / "zoo")]
    monkeypatch.setattr(sys, "argv", command)
    zoo.main()
    assert "pendulum.disc" in capsys.readouterr().out
    info = policies.read(tmp_path / "zoo" / "pendulum.disc").info
    assert (info["seed"], info["zoo"]["episodes"]) == (int(chosen.name[-1]), 10)
    assert info["zoo"]["last_ten_by_seed"] == scores

    page = tmp_path / "page.md"
    page.write_text("Before\n<!-- zoo -->\nold\n<!-- /zoo -->\nAfter\n")
    command = ["zoo", "--zoo", str(tmp_path / "zoo"), "--page", str(page), "--seconds", "0.1"]
    monkeypatch.setattr(sys, "argv", command)
    zoo.main()
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("Before", "After", 7)
    row = f"| InvertedPendulum-v5 | ppo | paper | 512 | {info['seed']} (of 0, 1, 2) |"
    assert f"| `zoo:pendulum` {row}" in lines[4]
    assert (tmp_path / "page" / "pendulum.gif").read_bytes().startswith(b"GIF")


def test_of_two_seeds_the_lower_is_kept(tmp_path: Path) -> None:
    found = sweeps.experiment(seeds=(0, 1))
    runs = [
        sweeps.run(tmp_path, found.cell("hopper", sweeps.DISC, seed), value)
        for seed, value in ((0, 300.0), (1, 200.0))
    ]
    assert zoo.median(runs) == (runs[1], {"0": 300.0, "1": 200.0})


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "give the directory of a sweep"),
        (["{}"], "no finished runs of disc_paper"),
        (["{}/none"], "there is no such directory"),
        (["--page", "{}/none.md"], "none.md"),
        (["--page", "{}/page.md"], "has no lines <!-- zoo -->"),
    ],
)
def test_bad_arguments_end_with_status_2_and_write_nothing(
    args: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "page.md").write_text("no markers\n")
    monkeypatch.setattr(sys, "argv", ["zoo", *(arg.format(tmp_path) for arg in args)])
    with pytest.raises(SystemExit) as stopped:
        zoo.main()
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]
