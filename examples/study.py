"""Run a study of several arms and seeds, and write a report; running it again resumes it.

disc sweep study.toml --steps 20_000 --out runs/study      # the same on the command line
"""

import argparse
from pathlib import Path

from disc.cli.main import main as disc_command


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", nargs="+", default=["0", "1"])
    parser.add_argument("--out", default="runs/study")
    options = parser.parse_args()
    study = Path(__file__).with_name("study.toml")
    command = ["sweep", str(study), "--steps", str(options.steps), "--out", options.out]
    disc_command([*command, "--seeds", *options.seeds])


if __name__ == "__main__":
    main()
