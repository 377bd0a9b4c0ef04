"""The lock of a run directory: one process at a time.

The system releases it when the process ends, however that happens. Where a directory can be
opened, the directory itself is locked and no file is made. On Windows that is impossible, so a file
in it is locked; a process that is killed leaves the file, but not the lock.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import lock_descriptor

from disc.types import DiscError

FILE = ".lock"
BY_FILE = os.name == "nt"


@dataclass
class Lock:
    """A directory that this process has locked, unless its file system has no locks."""

    number: int | None  # of the open file or directory
    file: Path | None = None

    @classmethod
    def take(cls, directory: Path) -> Lock:
        """Lock an existing directory.

        Raises:
            DiscError: another process has locked it.
            OSError: it can't be opened.
        """
        file = directory / FILE if BY_FILE else None
        flags = os.O_RDWR | os.O_CREAT if file else os.O_RDONLY
        number = os.open(file or directory, flags, 0o666)
        try:
            taken = lock_descriptor(number, blocking=False)
        except OSError:  # a file system without locks
            lock = cls(number, file)
            lock.release()
            return lock
        if not taken:
            os.close(number)
            raise DiscError(
                f"{directory}: is locked by another process; wait for it, or choose another --out."
            )
        return cls(number, file)

    def release(self) -> None:
        """Release it; a second call does nothing."""
        if self.number is None:
            return
        os.close(self.number)
        self.number = None
        if self.file is not None:
            with suppress(OSError):  # another process may have opened it already
                self.file.unlink()
