"""The report page: which runs it shows, and that files cannot inject markup."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from disc import report
from disc.report import load
from disc.study import spec
from disc.study.spec import Arm, Figure
from disc.types import DiscError
from tests.support import sweeps
from tests.support.sweeps import small, written

HOSTILE = "<script>alert(1)</script>"
CLOSING = "</script><!-- \"' &"


# The page


def test_page_is_well_formed_and_complete(tmp_path: Path) -> None:
    page = written(sweeps.sweep(tmp_path, sweeps.experiment(), 3600.0))
    assert not page.wrong
    assert not page.open
    tags = dict(reversed(page.tags))
    assert tags["html"] == {"lang": "en"}
    assert tags["meta"] == {"charset": "utf-8"}
    assert {"title", "main", "nav"} - set(tags) == {"nav"}  # one experiment has no nav
    levels = [int(name[1]) for name, _ in page.tags if re.fullmatch(r"h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    names = [name for name, _ in page.tags]
    assert names.count("caption") == names.count("table") == 6
    assert "All 20 planned runs here: 20 finished, 0 unfinished." in page.text
    assert "gymnasium 1.2.0" in page.text
    assert "disc train hopper --algo disc --seed 0 --steps 100000" in page.text
    assert "Of the paper's 2 numbers: 1 at or above, 1 below." in page.text


def test_page_fetches_nothing_and_has_no_inline_handlers(tmp_path: Path) -> None:
    page = written(sweeps.sweep(tmp_path, small()))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\(|@import|@font-face|\bfetch\(|XMLHttp|import\(", text)
    for name, attributes in page.tags:
        assert name not in ("link", "img", "iframe", "object", "base", "form")
        assert not any(key.startswith("on") or key in ("src", "style") for key in attributes)
        assert attributes.get("href", "#")[:1] == "#"


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    arms = (Arm(HOSTILE, "disc"), Arm(CLOSING, "ppo"))
    bad = small(
        arms=arms,
        title=HOSTILE,
        note=CLOSING,
        figures=(Figure(HOSTILE, label=CLOSING, metric=("eval/return", HOSTILE)),),
        paper={HOSTILE: {"hopper": [1.0]}},
    )
    sweeps.write(tmp_path, bad)
    changes = {
        "versions": {HOSTILE: CLOSING, "mujoco": HOSTILE},
        "commit": HOSTILE,
        "machine": {"processor": CLOSING, "system": HOSTILE, "cores": HOSTILE},
        "command": ["disc", HOSTILE, CLOSING],
        "resumed": [{"step": HOSTILE, "command": [CLOSING]}],
    }
    for cell in bad.cells():
        sweeps.run(tmp_path, cell, metrics=[HOSTILE], **changes)
    broken = tmp_path / "hopper" / "<img src=x onerror=alert(1)>"
    broken.mkdir()
    (broken / "progress.csv").write_text("step\n1\n")
    page = written(tmp_path)
    assert not page.wrong
    assert sum(name == "script" for name, _ in page.tags) == len(page.scripts)
    assert not any(name == "img" for name, _ in page.tags)
    assert page.text.count(HOSTILE) > 10
    assert CLOSING in page.text
    for script in page.scripts[:-1]:
        assert "<" not in script
        labels = {line["label"] for line in json.loads(script)["lines"]}
        assert all(HOSTILE in label or CLOSING in label for label in labels)


def test_hostile_names_of_runs_without_experiment_are_escaped(tmp_path: Path) -> None:
    for cell in small().cells():
        sweeps.run(tmp_path, cell, env_name=HOSTILE, algorithm=CLOSING)
    page = written(tmp_path)
    assert not page.wrong
    assert HOSTILE in page.text
    assert CLOSING in page.text


# Several experiments, or none


def test_runs_shared_by_experiments_are_counted_once(tmp_path: Path) -> None:
    found = small()
    sweeps.sweep(tmp_path, found)
    curves = replace(found, name="curves", title="Curves", table=False, paper={})
    sweeps.write(tmp_path, curves)
    loaded = load.load(tmp_path)
    assert [study.experiment.name for study in loaded.studies] == ["small", "curves"]
    assert len(loaded.planned) == len(loaded.runs) == 4
    page = written(tmp_path)
    assert "All 4 planned runs here" in page.text
    assert [a["href"] for name, a in page.tags if name == "a"] == ["#e0", "#e1", "#runs"]


def test_runs_without_experiment_are_grouped_by_task_and_options(tmp_path: Path) -> None:
    found = small(tasks=("hopper", "walker2d"))
    for cell in found.cells():
        changed = {**sweeps.config(cell)["config"], "gamma": 0.9 + 0.09 * (cell.task == "hopper")}
        sweeps.run(tmp_path / "deep" / "er", cell, config=changed)
    wide = replace(found.cells()[0], arm=Arm("wide", "disc", {"widths": (8, 8)}))
    sweeps.run(tmp_path, wide)
    (study,) = load.load(tmp_path).studies
    assert {key: len(group.runs) for key, group in study.groups.items()} == {
        ("Hopper-v5", "disc, widths = [64, 64]"): 2,
        ("Hopper-v5", "disc, widths = [8, 8]"): 1,
        ("Hopper-v5", "ppo"): 2,
        ("Walker2d-v5", "disc"): 2,
        ("Walker2d-v5", "ppo"): 2,
    }
    assert "9 runs here: 9 finished" in written(tmp_path).text


def test_duplicate_seeds_are_separated_by_folder(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        for cell in small(arms=(sweeps.DISC,)).cells():
            sweeps.run(tmp_path / folder, cell)
    (study,) = load.load(tmp_path).studies
    assert [label for _, label in study.groups] == ["disc (one/hopper)", "disc (two/hopper)"]


def test_report_works_on_a_single_run_directory(tmp_path: Path) -> None:
    path = sweeps.run(tmp_path, small().cells()[0])
    assert "1 run here: 1 finished" in written(path).text


@pytest.mark.parametrize("what", ["missing", "empty", "file", "planned", "damaged"])
def test_folder_without_runs_raises_and_writes_nothing(tmp_path: Path, what: str) -> None:
    root = tmp_path / "runs"
    if what == "file":
        root.write_text("")
    elif what != "missing":
        root.mkdir()
    if what == "planned":
        sweeps.write(root, small())
    if what == "damaged":
        (sweeps.run(root, small().cells()[0]) / "config.json").unlink()
    with pytest.raises(DiscError, match=r"^[^\n]*runs: (no such|contains no)[^\n]*\.$"):
        report.write(root)
    assert not list(tmp_path.rglob("*.html*"))


def test_report_is_written_to_the_given_path(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert report.write(sweeps.sweep(tmp_path / "runs", small()), out) == out
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not (tmp_path / "runs" / "report.html").exists()


def test_paper_experiments_give_a_well_formed_report(tmp_path: Path) -> None:
    """Every experiment of the paper, with one or two runs of each."""
    for name in spec.names():
        found = replace(spec.find(name), cut=100_000)
        sweeps.write(tmp_path, found)
        for cell in found.cells()[:2]:
            if not (tmp_path / cell.path).exists():
                sweeps.run(tmp_path, cell, metrics=["is/rho_last", "is/rho_d_age_0"])
    assert not written(tmp_path).wrong
