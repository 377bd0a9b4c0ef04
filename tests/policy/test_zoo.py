"""The zoo: trained policies that come with the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import disc
from disc.cli.main import main
from disc.policy import file as policies
from disc.types import DiscError

NAMES = tuple(policies.zoo())


def test_zoo_is_smaller_than_five_megabytes() -> None:
    assert NAMES
    assert sum(path.stat().st_size for path in policies.zoo().values()) < 5e6


@pytest.mark.parametrize("name", NAMES)
def test_zoo_policy_acts_and_records_where_it_is_from(name: str) -> None:
    file = policies.read(policies.locate(f"zoo:{name}"))
    action, _ = disc.load(f"zoo:{name}").predict(np.zeros(file.policy.observation_shape))
    assert action.shape == file.policy.action_shape
    own = file.info["zoo"]
    assert own["commit"]
    scores = own["last_ten_by_seed"]
    chosen = scores[str(file.info["seed"])]
    assert chosen == sorted(scores.values())[(len(scores) - 1) // 2], (
        "the median seed, not the best"
    )


def test_eval_of_a_zoo_policy_prints_the_return_in_its_header(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["eval", "zoo:ant", "--episodes", "10"])
    printed = float(capsys.readouterr().out.split("actions: ")[1].split(" ±")[0].replace(",", ""))
    own = policies.read(policies.locate("zoo:ant")).info["zoo"]
    # Other processors and versions of MuJoCo round differently, and episodes amplify that.
    assert printed == pytest.approx(own["return"], abs=2 * own["return_std"])


def test_list_shows_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", "--zoo"])
    printed = capsys.readouterr().out
    assert all(f"zoo:{name}" in printed for name in NAMES)


def test_training_continues_from_a_zoo_policy() -> None:
    with disc.DISC.load("zoo:ant") as agent:
        assert agent.preset == "paper"
        wanted, _ = disc.load("zoo:ant").predict(np.zeros(105))
        np.testing.assert_allclose(agent.predict(np.zeros(105))[0], wanted, rtol=1e-5)


def test_info_tells_how_a_zoo_policy_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    main(["info", "zoo:ant"])
    own = policies.read(policies.locate("zoo:ant")).info["zoo"]
    printed = " ".join(capsys.readouterr().out.split())
    assert f"(disc eval, seed 0); {own['chosen']}; mean of the last ten evaluations:" in printed


def test_video_of_a_zoo_policy_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["watch", "zoo:ant", "--seconds", "0.1"])
    assert [path.name for path in tmp_path.iterdir()] == ["ant.mp4"]


def test_best_policy_of_the_zoo_is_refused() -> None:
    with pytest.raises(DiscError, match="zoo:ant: the zoo has no best policies"):
        disc.load("zoo:ant", best=True)


def test_policy_is_not_saved_under_a_name_of_the_zoo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DiscError, match="choose a name that does not begin with zoo:"):
        policies.write("zoo:mine", {}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["unknown", "../zoo/ant", ""])
def test_unknown_zoo_policy_is_an_error_that_names_the_known_ones(name: str) -> None:
    with pytest.raises(DiscError, match=r"not in the zoo \(disc list --zoo\): .*ant"):
        disc.load(f"zoo:{name}")


def test_installation_without_zoo_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "ZOO", tmp_path)
    with pytest.raises(DiscError, match="this installation has no zoo"):
        disc.load("zoo:ant")
