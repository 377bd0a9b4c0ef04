"""Builds disc-policy: the files of ../disc that acting needs, under the same import name.

The wheel has them in `disc_policy/disc` and a .pth file that appends `disc_policy` to the search
path. So no file belongs to both distributions: where disc-rl is installed too, `import disc` finds
its files first, and either can be uninstalled without damage to the other.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
FILES = [
    "__init__.py",
    "_version.py",
    "host.py",
    "py.typed",
    "seeding.py",
    "storage.py",
    "types.py",
]
PTH = "disc_policy.pth"


def copy_sources(package: Path) -> None:
    """Copy the sources into `src`, which an sdist contains and git ignores."""
    shutil.rmtree(HERE / "src", ignore_errors=True)
    target = HERE / "src" / "disc_policy" / "disc"
    ignored = shutil.ignore_patterns("__pycache__", "formats", "zoo")
    shutil.copytree(package / "policy", target / "policy", ignore=ignored)
    for name in FILES:
        shutil.copy(package / name, target)
    shutil.copy(package.parent / "LICENSE", HERE / "src")


class BuildWithPath(build_py):
    """Builds the .pth file too."""

    def run(self) -> None:
        super().run()
        Path(self.build_lib, PTH).write_text("disc_policy\n")


if not (HERE / "PKG-INFO").exists():  # a checkout; an sdist has its own copy
    copy_sources(HERE.parent / "disc")
setup(cmdclass={"build_py": BuildWithPath})
