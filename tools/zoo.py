"""`python -m tools.zoo [SWEEP]`: put the median policies of a sweep into the zoo.

For each task and arm: of the finished seeds, the one whose score, the mean of its last ten
evaluations, is the median (the lower one of two), never the best. Its last policy is copied, and
the header gets an entry `zoo`: the seeds it was chosen from, their scores, the commit, and the
return that `disc eval zoo:NAME` prints. With `--page`, the table and animations of a page are
regenerated from all policies of the zoo.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from disc.envs import evaluate
from disc.envs.factory import Maker
from disc.policy import file as policies
from disc.run.config import read_config
from disc.run.log import read_progress
from disc.study import statistics
from disc.types import DiscError
from disc.video import record
from tools import pages
from tools.keep import finished
from tools.scores import curve

EPISODES, SEED = 10, 0  # the defaults of `disc eval`
CHOSEN = {1: "the only seed that was run", 2: "the lower of two seeds"}
"""How a policy was chosen, by the number of seeds; with more, it is the median."""


def median(runs: list[Path]) -> tuple[Path, dict[str, float]]:
    """The run with the median score, and the scores of all by seed."""
    scores = {run: float(statistics.final([curve(run)])[0]) for run in runs}
    ranked = sorted(runs, key=lambda run: (scores[run], run.name))
    by_seed = {run.name.rpartition("_seed")[2]: round(score, 1) for run, score in scores.items()}
    return ranked[(len(ranked) - 1) // 2], by_seed


def evaluated(path: Path) -> dict[str, Any]:
    """What `disc eval` finds for a policy, with its default options."""
    file = policies.read(path)
    maker = Maker(file.info["env"], file.info["env_kwargs"])
    with maker.borrowed() as env:
        returns = evaluate.evaluate(env, file.policy, EPISODES, SEED, name=maker.name).returns
    return {
        "return": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "episodes": EPISODES,
        "evaluation_seed": SEED,
    }


def add(runs: list[Path], name: str, zoo: Path) -> Path:
    """Write the median policy of some runs to the zoo."""
    run, scores = median(runs)
    path, config = run / "policy.disc", read_config(run)
    file = policies.read(path)
    if file.info["step"] < config["plan"]["steps"]:
        raise DiscError(f"{path}: is older than the end of its run; `disc resume` it.")
    own = {
        **evaluated(path),
        "chosen": CHOSEN.get(len(runs), "the seed with the median score"),
        "last_ten_by_seed": scores,
        "commit": config.get("commit"),
    }
    policies.write(zoo / f"{name}.disc", file.tensors, {**file.info, "zoo": own})
    return zoo / f"{name}.disc"


def arms(sweep: Path) -> dict[tuple[str, str], list[Path]]:
    """The finished runs of a sweep by task and arm."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(sweep.glob("*/*_seed*/progress.csv")):
        run = path.parent
        if finished(read_config(run), read_progress(path)):
            found.setdefault((run.parent.name, run.name.rpartition("_seed")[0]), []).append(run)
    return found


def page(path: Path, zoo: Path, seconds: float) -> None:
    """Write the table between the markers of a page, and an animation of each policy beside it."""
    pages.parts(path, "zoo")  # or raises, before anything is written
    lines = ["| | name | environment | algorithm | preset | steps | seed | return |"]
    lines += ["|---|---|---|---|---|---:|---|---:|"]
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    for file in sorted(zoo.glob("*.disc"), key=lambda file: file.stem):
        animation = folder / f"{file.stem}.gif"
        _animate(file, animation, seconds)
        info = policies.read(file).info
        own = info["zoo"]
        seeds = sorted(own["last_ten_by_seed"], key=int)
        among = f" (of {', '.join(seeds)})" if len(seeds) > 1 else ""
        cells = (
            f"![{info['algorithm']} on {info['env_name']}]({folder.name}/{animation.name})",
            f"`zoo:{file.stem}`",
            info["env_name"],
            info["algorithm"],
            info["preset"],
            f"{info['step']:,}",
            f"{info['seed']}{among}",
            f"{own['return']:,.0f} ± {own['return_std']:,.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    pages.replace(path, "zoo", "\n".join(lines) + "\n")


def _animate(file: Path, out: Path, seconds: float) -> None:
    policy = policies.read(file)
    policy.policy.seed(SEED)
    maker = Maker(policy.info["env"], policy.info["env_kwargs"])
    record.record(
        maker.make,
        lambda observation: policy.policy.predict(observation)[0],
        out,
        seed=SEED,
        max_seconds=seconds,
    )


def _add_all(options: argparse.Namespace) -> None:
    if not options.sweep.is_dir():
        raise DiscError(f"{options.sweep}: there is no such directory.")
    chosen = {task: runs for (task, arm), runs in arms(options.sweep).items() if arm == options.arm}
    if not chosen:
        raise DiscError(f"{options.sweep}: no finished runs of {options.arm}.")
    options.zoo.mkdir(parents=True, exist_ok=True)
    for task, runs in chosen.items():
        sys.stdout.write(f"{add(runs, task + options.suffix, options.zoo)}\n")


def main() -> None:
    """Add the median policies of a sweep, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tools.zoo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweep", type=Path, nargs="?", help="the directory of a sweep")
    parser.add_argument("--page", type=Path, help="a Markdown page to update")
    parser.add_argument("--seconds", type=float, default=2.0, help="of an animation; default: 2")
    parser.add_argument("--arm", default="disc_paper", help="default: disc_paper")
    parser.add_argument("--suffix", default="", help="added to the task's name, such as -ppo")
    parser.add_argument("--zoo", type=Path, default=policies.ZOO, help="where to write")
    options = parser.parse_args()
    if not (options.sweep or options.page):
        parser.error("give the directory of a sweep, --page, or both")
    try:
        if options.sweep:
            _add_all(options)
        if options.page:
            page(options.page, options.zoo, options.seconds)
    except (DiscError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
