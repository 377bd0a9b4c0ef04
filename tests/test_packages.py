"""The distributions, built and installed without a network: disc-rl, and disc-policy for robots."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import disc
from tests.support import markdown

ROOT = Path(__file__).parents[1]
SOURCES = ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "disc", "robot")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "src", "build", "*.egg-info")

TRAIN = """
from pathlib import Path
import disc
from disc.cli.main import main

print(disc.__file__)
small = "--threads 1 --horizon 256 --gradient-steps 4 --epochs 2 --widths 8 --eval-episodes 1"
for seed in ("0", "1"):
    main(["train", "Pendulum-v1", "--algo", "ppo-kl", "--beta", "0.1", "--steps", "512",
          "--anneal-steps", "1024", "--seed", seed, "--out", f"runs/{seed}", *small.split()])
main(["resume", "runs/0", "--steps", "1024"])
main(["train", "Pendulum-v1", "--algo", "ppo-kl", "--beta", "0.1", "--steps", "1024",
      "--anneal-steps", "1024", "--out", "whole", *small.split()])
resumed, whole = disc.load("runs/0"), disc.load("whole")
assert all((a == b).all() for a, b in zip(resumed.weights, whole.weights))
assert disc.PPOKL.load("whole").config.beta == 0.1
main(["list"])
main(["list", "--zoo"])
assert disc.load("zoo:ant").action_shape == (8,)
main(["report", "runs"])
assert "ppo-kl" in Path("runs/report.html").read_text()
"""
ACT = """
import sys, numpy as np, disc

for path in sys.argv[1:]:
    policy = disc.load(path)
    policy.seed(0)
    observations = np.random.default_rng(0).standard_normal((5, *policy.observation_shape))
    for options in ({}, {"deterministic": False}, {"clip": True}):
        print(path, policy.predict(observations, **options)[0].tolist())
"""


class Environment:
    """A new virtual environment, without pip."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.bin = folder / "bin"
        (self.site,) = folder.glob("lib/python*/site-packages")

    def install(self, *words: object) -> None:
        """Install wheels, with the pip of the environment that runs the tests."""
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install"]
        run(*pip, "--quiet", "--no-index", "--no-compile", *words, cwd=self.site)


def run(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program without this checkout in its search path."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def build(project: Path) -> Path:
    """The wheel of a project; one built from its sdist has the same files."""
    sdist = _build(project, "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(project / "unpacked", filter="data")
    (unpacked,) = (project / "unpacked").iterdir()
    wheel, again = _build(project, "wheel"), _build(unpacked, "wheel")
    assert contents(wheel) == contents(again)
    return wheel


def _build(project: Path, kind: str) -> Path:
    hook = f"from setuptools import build_meta; build_meta.build_{kind}('{kind}')"
    run(sys.executable, "-c", hook, cwd=project)
    (built,) = (project / kind).iterdir()
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sources(folder: Path) -> Path:
    """A copy of what a build reads, as builds write next to it."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def plugin(folder: Path) -> Path:
    """The package in CONTRIBUTING.md, with a second entry point, which is broken."""
    folder.mkdir()
    for name, text in markdown.files("CONTRIBUTING.md").items():
        entry = 'ppo-kl = "ppo_kl"\n'
        (folder / name).write_text(text.replace(entry, f'{entry}broken = "ppo_kl:missing"\n'))
    return folder


def files_of_package() -> Iterator[str]:
    for path in (ROOT / "disc").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            yield path.relative_to(ROOT).as_posix()


def test_wheel_trains_reports_and_finds_algorithms_of_other_packages(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    wheel = build(sources(tmp_path / "sources"))
    assert {x for x in contents(wheel) if ".dist-info/" not in x} == set(files_of_package())
    here = Environment(tmp_path / "venv")
    here.install("--no-deps", wheel, _build(plugin(tmp_path / "ppo_kl"), "wheel"))
    # After pip, which would take an installed disc-rl for its own: first what the environment has,
    # then the dependencies, from this environment.
    (here.site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    done = run(here.bin / "python", "-c", TRAIN, cwd=tmp_path)
    assert done.stdout.startswith(str(here.site / "disc"))
    assert "PPO with a fixed KL penalty" in done.stdout
    assert "table1" in done.stdout
    assert "broken" in done.stderr  # a warning, and the others still work

    version = run(here.bin / "disc", "--version", cwd=tmp_path).stdout
    assert version == f"disc {disc.__version__}\n"
    done = run(here.bin / "disc", "eval", "runs/0", "--episodes", 1, cwd=tmp_path)
    assert done.stdout.startswith("Pendulum-v1, 1 episodes")


def test_robot_wheel_acts_with_numpy_and_safetensors_only(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    wheel = build(sources(tmp_path / "sources") / "robot")
    robot = Environment(tmp_path / "venv")
    for found in map(importlib.metadata.distribution, ("numpy", "safetensors")):
        for top in {x.parts[0] for x in found.files or []} - {".."}:
            (robot.site / top).symlink_to(str(found.locate_file(top)))
    robot.install(wheel)  # fails if it needs anything else
    names = "import importlib.metadata as m; print(*sorted(x.name for x in m.distributions()))"
    python = robot.bin / "python"
    assert run(python, "-c", names, cwd=tmp_path).stdout.split() == [
        "disc-policy",
        "numpy",
        "safetensors",
    ]

    samples = sorted((ROOT / "tests/samples").rglob("policy.disc"))
    assert len(samples) > 10
    assert not [x for x in zipfile.ZipFile(wheel).namelist() if x.endswith(".disc")]
    load = "import disc\ntry: disc.load('zoo:ant')\nexcept disc.DiscError as error: print(error)"
    assert "this installation has no zoo" in run(python, "-c", load, cwd=tmp_path).stdout
    acted = run(python, "-c", ACT, *samples, cwd=tmp_path).stdout
    assert acted == run(sys.executable, "-c", ACT, *samples, cwd=ROOT).stdout

    code = "import disc; disc.nothing"
    assert "no attribute 'nothing'" in failure(python, code, tmp_path)
    for code in ("import disc; disc.DISC", "from disc import PPO", "from disc import equations"):
        assert "needs the whole package: pip install disc-rl\n" in failure(python, code, tmp_path)

    # No file of it belongs to disc-rl too, and disc-rl is found first where both are installed.
    assert all(x.startswith("disc_policy") for x in contents(wheel))
    (robot.site / "disc").mkdir()
    (robot.site / "disc" / "__init__.py").touch()
    found = run(python, "-c", "import disc; print(disc.__file__)", cwd=tmp_path).stdout
    assert found == f"{robot.site / 'disc' / '__init__.py'}\n"


def failure(python: Path, code: str, folder: Path) -> str:
    done = subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_constraints_pin_every_direct_dependency_within_its_bounds() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(x.split("==") for x in lines if not x.startswith("#"))
    assert all(x.replace(".", "").isalnum() for x in pins.values())  # no paths or addresses
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    assert "disc-rl" not in versions
    ours = project(ROOT)
    groups = [ours["dependencies"], *ours["optional-dependencies"].values()]
    for wanted in map(Requirement, itertools.chain(*groups)):
        if wanted.name != "disc-rl":
            assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted


def test_robot_has_the_bounds_of_the_whole_package() -> None:
    ours, robot = project(ROOT), project(ROOT / "robot")
    assert set(robot["dependencies"]) < set(ours["dependencies"])
    assert robot["requires-python"] == ours["requires-python"]


def test_version_is_the_newest_of_the_changelog_and_of_the_citation() -> None:
    newest = re.findall(r"^## (.+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)[0]
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert newest[0] == disc.__version__
    assert f'\nversion: {newest[0]}\ndate-released: "{newest[1]}"\n' in citation
