"""The package imports, trains and resumes where POSIX modules and functions are missing.

This stands in for Windows, on which these tests have not been run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import ctypes, os, signal, sys
from pathlib import Path

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

# Other packages know Windows; what is tried is this one.
import filelock, gymnasium, jax, matplotlib.pyplot, mujoco, rich.console, rich.progress
import safetensors.numpy, tensorboardX, tyro, uuid
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
for name in ("fork", "getppid", "sched_getaffinity", "sysconf", "killpg", "setsid", "uname"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM"):
    delattr(signal, name)
platform, sys.platform, load = sys.platform, "win32", ctypes.CDLL
ctypes.CDLL = lambda name, *rest: load(name, *rest) if name else 1 / 0
opened = os.open

def open_file(path, flags, *rest, **options):
    if Path(path).is_dir():
        raise PermissionError(13, "Permission denied", str(path))
    return opened(path, flags, *rest, **options)

os.open = open_file
from disc import storage
from disc.run import lock
lock.BY_FILE = True
storage.sync = lambda path, sync=storage.sync: None if Path(path).is_dir() else sync(path)

import disc.cli.main
sys.platform = platform
out = sys.argv[1]
options = "--algo ppo --horizon 256 --gradient-steps 4 --epochs 2 --widths 16 16 --eval-every 0"
disc.cli.main.main(["train", "Pendulum-v1", *options.split(), "--steps", "256", "--out", out])
disc.cli.main.main(["resume", out, "--steps", "512"])
print(disc.load(out).predict([0.0] * 3)[0].shape)
"""


def test_package_trains_and_resumes_without_posix(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "512 steps in" in done.stdout
    assert done.stdout.endswith("(1,)\n")
    assert not (tmp_path / "run" / ".lock").exists()
