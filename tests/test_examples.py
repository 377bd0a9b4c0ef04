"""The examples run, with fewer steps, and so does the notebook."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from pathlib import Path

import matplotlib
import pytest

from disc.algos import ALGORITHMS
from tests.support import markdown
from tests.support.command import run

FOLDER = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def _in_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(ALGORITHMS, "_known", dict(ALGORITHMS))  # an example registers its own
    matplotlib.use("Agg")


def example(monkeypatch: pytest.MonkeyPatch, name: str, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    runpy.run_path(str(FOLDER / name), run_name="__main__")


def test_own_environment_is_trained_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("check", "own_environment:Rail") == 0
    example(monkeypatch, "own_environment.py", "--steps", 600, "--out", tmp_path / "run")
    assert "disc_act" in (tmp_path / "run" / "policy.h").read_text()


def test_two_algorithms_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--task", "Pendulum-v1", "--steps", 2048, "--seeds", 1, "--out", tmp_path]
    example(monkeypatch, "compare.py", *words)
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_study_is_run_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example(monkeypatch, "study.py", "--steps", 2048, "--seeds", 0, "--out", tmp_path)
    assert "DISC without old batches" in (tmp_path / "report.html").read_text()


def test_plugin_is_registered_and_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example(monkeypatch, "plugin.py", "--steps", 2048, "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run/config.json").read_text())["algorithm"] == "sign-ppo"


def test_algorithm_on_the_data_flow_page_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((name, code),) = markdown.files("docs/data-flow.md").items()
    (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    (use,) = (x for x in markdown.python("docs/data-flow.md") if "disc.register" in x)
    assert "learn(100_000)" in use
    names: dict[str, object] = {}
    exec(use.replace("100_000", "2048"), names)
    assert names["agent"].metrics[0]["is/clipped_dimensions"] > 0.0


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/data-flow.md"])
def test_api_page_names_the_modules_that_algorithms_import(page: str) -> None:
    listed = re.findall(r"^\| `(disc\.[\w.]+)`", (FOLDER.parent / "docs/api.md").read_text(), re.M)
    (code,) = (x for name, x in markdown.files(page).items() if name.endswith(".py"))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("disc."):
            inner = {f"{node.module}.{x.name}" for x in node.names}
            assert node.module in listed or inner <= set(listed)


def test_discrete_task_keeps_its_best_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example(monkeypatch, "discrete.py", "--steps", 4096, "--out", tmp_path / "run")
    assert "One more episode with the best policy" in capsys.readouterr().out


def test_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((FOLDER / "quickstart.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(x["source"]) for x in notebook["cells"] if x["cell_type"] == "code"]
    assert "STEPS, OUT = 100_000" in cells[0]
    names: dict[str, object] = {"STEPS": 4096, "OUT": str(tmp_path / "run")}
    for cell in cells[1:]:
        exec(cell, names)
    assert names["agent"].state.step == 8192
