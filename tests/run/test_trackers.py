"""Runs are recorded in W&B and MLflow by their real packages, offline."""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from mlflow import MlflowClient

from disc import DiscError, resume
from disc.run import log, trackers
from disc.run.agents import AGENTS
from tests.support import environments as probes
from tests.support.command import run
from tests.support.small import PPO

PLAN = {"eval_every": 512, "eval_episodes": 1, "progress": True}


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No account, no server: what a tracker writes is below `tmp_path`."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "NETRC", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlruns'}")


def learn(out: Path, steps: int = 512, **options: Any) -> None:
    AGENTS["ppo"](probes.wide, **PPO).learn(steps, out=out, **{**PLAN, **options})


def records(data: bytes) -> Iterator[bytes]:
    """The records of a W&B file: LevelDB's log format behind a header of seven bytes."""
    at, record = 7, b""
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:  # the rest of a block is padding
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def wandb_rows(folder: Path, count: int) -> dict[int, dict[str, float]]:
    """The rows of all offline records of a run directory, by step.

    W&B's own process may write them shortly after `finish` has returned.
    """
    for _ in range(100):
        with contextlib.suppress(struct.error, DecodeError):  # a record that is not yet whole
            if len(rows := read_wandb_rows(folder)) >= count:
                return rows
        time.sleep(0.2)
    return read_wandb_rows(folder)


def read_wandb_rows(folder: Path) -> dict[int, dict[str, float]]:
    from wandb.proto.wandb_internal_pb2 import Record

    rows: dict[int, dict[str, float]] = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in records(path.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.HasField("history"):
                items = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }
                rows[int(items["_step"])] = items
    return rows


def test_wandb_records_offline_if_nobody_is_logged_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    learn(out, track=["tensorboard", "wandb"])
    assert "not logged in" in capsys.readouterr().err
    rows = wandb_rows(out, 2)
    assert list(rows) == [256, 512]
    for row in log.read_progress(out / "progress.csv"):
        found = rows[int(row["step"])]
        assert {name: found[name] for name in row if name != "step"} == {
            name: value for name, value in row.items() if name != "step"
        }
    resume(out, 1024, env=probes.wide, progress=False)
    assert list(wandb_rows(out, 4)) == [256, 512, 768, 1024]
    config = json.loads((out / "config.json").read_text())
    # Folders of one second differ by a suffix, so the files name the run.
    names = {path.stem for path in out.glob("wandb/offline-run-*/*.wandb")}
    assert names == {f"run-{config['tracked_as']['wandb']}"}  # both parts are one run


def test_mlflow_has_the_rows_and_options_and_a_resumed_run_continues_them(tmp_path: Path) -> None:
    out = tmp_path / "sweep" / "run"
    learn(out, track=["mlflow"])
    assert not (out / "events").exists()
    resume(out, 1024, env=probes.wide, progress=False)
    client, name = MlflowClient(), json.loads((out / "config.json").read_text())["tracked_as"]
    found = client.get_run(name["mlflow"])
    assert (found.info.run_name, found.info.status) == ("sweep/run", "FINISHED")
    assert found.data.params["horizon"] == "256"
    for row in log.read_progress(out / "progress.csv"):
        for metric in ("train/return", "is/kl"):
            history = client.get_metric_history(name["mlflow"], metric)
            assert row[metric] in [x.value for x in history if x.step == row["step"]]


@pytest.mark.parametrize("moment", ["start", "append", "close"])
def test_failing_tracker_warns_once_and_the_run_continues(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        known_as = "x"

        def __init__(self, *_: Any) -> None:
            self.fail("start")

        def fail(self, now: str) -> None:
            if now == moment:
                raise ConnectionError("no\nnetwork")

        def append(self, row: Any) -> None:
            self.fail("append")

        def close(self) -> None:
            self.fail("close")

    monkeypatch.setitem(trackers.SERVICES, "wandb", Broken)
    learn(tmp_path / "run", track=["wandb"])
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("wandb: failed (no network); the run continues without it.") == 1
    assert len(log.read_progress(tmp_path / "run" / "progress.csv")) == 2


def test_unreachable_mlflow_server_does_not_stop_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    learn(tmp_path / "run", steps=256, track=["mlflow"])
    assert "mlflow: failed" in capsys.readouterr().err


def test_unknown_or_missing_trackers_are_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DiscError, match="track must be a list of tensorboard, wandb, mlflow"):
        learn(tmp_path / "run", track=["comet"])
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DiscError, match=r"wandb is not installed: pip install 'disc-rl\[track\]'"):
        learn(tmp_path / "run", track=["wandb"])
    words = ["train", "Pendulum-v1", "--track", "mlflow", "--out", tmp_path / "run"]
    assert run(*words) == 2
    assert "mlflow is not installed" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_sweep_passes_its_trackers_to_every_run() -> None:
    from dataclasses import replace

    from disc.study import spec

    cell = spec.find("table1").cells()[0]
    assert "--track" not in cell.command(Path("runs"))
    words = replace(cell, track=("wandb", "mlflow")).command(Path("runs"))
    at = words.index("--track")
    assert words[at + 1 : at + 3] == ["wandb", "mlflow"]
    assert "--track" in replace(cell, track=()).command(Path("runs"))
