"""A small sample of the fault campaign: stopped runs and damaged files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from disc import DiscError, resume
from disc.run import checkpoint, log
from faults import damage, disks, kills
from faults.__main__ import markdown
from faults.outcome import Outcome, litter
from faults.short import FAMILIES, train
from tests.support.runs import untimed


@pytest.mark.parametrize("family", kills.FAMILIES)
def test_killed_runs_resume_without_loss(
    family: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    for outcome in kills.kills(tmp_path, rng, family, kills.FAMILIES[family], 1):
        assert outcome.good, outcome


@pytest.fixture(scope="module", params=FAMILIES)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder named after the family, with an undisturbed run."""
    folder = tmp_path_factory.mktemp("faults") / request.param
    folder.mkdir()
    train(request.param, folder / "whole")
    return folder


def test_run_recovers_from_a_full_disk(whole: Path, rng: np.random.Generator) -> None:
    outcome = disks.full(whole.name, whole, rng, 1)
    assert outcome.good, outcome


def test_run_recovers_from_an_unwritable_folder(whole: Path) -> None:
    outcome = disks.read_only(whole.name, whole)
    assert outcome.good, outcome


def test_damaged_files_are_detected(whole: Path, rng: np.random.Generator) -> None:
    outcomes = [
        *damage.any_byte(whole.name, whole, rng, 0.01),
        damage.newest(whole.name, whole, rng, 1),
        damage.record(whole.name, whole, rng, 8),
    ]
    assert [x for x in outcomes if not x.good] == []


def test_run_with_only_damaged_checkpoints_is_left_unchanged(whole: Path) -> None:
    outcome = damage.every(whole.name, whole)
    assert outcome.good, outcome


def test_pruning_keeps_good_checkpoints_over_newer_damaged_ones(tmp_path: Path) -> None:
    """The run resumed before two damaged checkpoints; the one it writes next is kept."""
    for step in (128, 256, 512, 768):
        (tmp_path / f"step_{step:012d}.safetensors").write_text("")
    checkpoint.prune(tmp_path / "step_000000000256.safetensors")
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["step_000000000128.safetensors", "step_000000000256.safetensors"]


def test_resume_removes_old_checkpoints_left_by_a_kill(whole: Path, tmp_path: Path) -> None:
    """Even if the run has finished and there is nothing to resume."""
    run = shutil.copytree(whole / "whole", tmp_path / "run")
    newest = max((run / "checkpoints").iterdir())
    (run / "checkpoints" / "step_000000000001.safetensors").write_text("an old one")
    assert litter(run)
    with pytest.raises(DiscError, match="already"):
        resume(run, threads=1, progress=False)
    assert newest.exists()
    assert not litter(run)


def test_checkpoint_of_a_newer_version_does_not_restart_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(checkpoint, "FORMAT_VERSION", checkpoint.FORMAT_VERSION + 1)
        train("disc", tmp_path / "run", callbacks=[lambda agent, row: row["step"] < 512])
    record = (tmp_path / "run" / "progress.csv").read_bytes()
    with pytest.raises(DiscError, match="newer than this installation"):
        resume(tmp_path / "run", progress=False)
    assert (tmp_path / "run" / "progress.csv").read_bytes() == record


def test_damaged_progress_file_keeps_readable_rows_and_a_copy(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train("disc", run, callbacks=[lambda agent, row: row["step"] < 512])
    path = run / "progress.csv"
    rows, lines = log.read_progress(path), path.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace(",", ",?", 1)
    path.write_text("".join(lines))
    resume(run, progress=False)
    kept = [untimed(row) for row in log.read_progress(path)]
    assert kept[:3] == [untimed(row) for row in (rows[0], *rows[2:])]
    assert (run / "progress.damaged.csv").read_text() == "".join(lines)


def test_results_page_shows_the_recorded_outcomes() -> None:
    results = Path(__file__).parents[2] / "results"
    found = json.loads((results / "faults.json").read_text(encoding="utf-8"))["outcomes"]
    outcomes = [Outcome(**x) for x in found]
    _, _, rest = (results / "README.md").read_text(encoding="utf-8").partition("<!-- faults -->\n")
    shown, _, _ = rest.partition("<!-- /faults -->")
    assert shown == markdown(outcomes) == (results / "faults.md").read_text(encoding="utf-8")
