"""`disc export`: errors before a file is written, npz files, the examples of docs/export.md."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import disc
from benchmarks import acting
from disc.policy import file
from disc.policy.formats import check
from disc.policy.formats.export import FORMATS
from tests.support import policies
from tests.support.command import run
from tests.support.compilers import build, every_compiler
from tests.support.exports import SAMPLES, every_policy, policy_file

ROOT = Path(__file__).parents[3]
PENDULUM = SAMPLES / "inverted-pendulum"
PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
every_format = pytest.mark.parametrize("suffix", list(FORMATS))


def blocks(language: str) -> list[str]:
    """The code of one language in docs/export.md."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


# The command line


@every_format
def test_command_exports_runs_and_files_alike(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    assert run("export", PENDULUM, "--to", first) == 0
    assert f"{first.stat().st_size:,} bytes" in capsys.readouterr().out.replace("\n", "")
    disc.export(PENDULUM / "policy.disc", second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [first.name, second.name]


def test_best_policy_of_a_run_is_exported_on_request(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(PENDULUM / "policy.disc", tmp_path / "run" / "best.disc")
    shutil.copy(SAMPLES / "ddpg" / "policy.disc", tmp_path / "run")
    assert run("export", tmp_path / "run", "--best", "--to", tmp_path / "best.h") == 0
    disc.export(PENDULUM, tmp_path / "wanted.h")
    assert (tmp_path / "best.h").read_bytes() == (tmp_path / "wanted.h").read_bytes()
    assert run("export", PENDULUM, "--best", "--to", tmp_path / "none.h") == 2


@every_format
def test_sampled_policy_is_exported_on_request(suffix: str, tmp_path: Path) -> None:
    assert run("export", PENDULUM, "--to", tmp_path / f"a{suffix}", "--stochastic") == 0
    content = (tmp_path / f"a{suffix}").read_bytes()
    assert b"noise" in content


@every_format
def test_existing_file_is_replaced_only_on_request(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"policy{suffix}"
    path.write_text("mine")
    assert run("export", PENDULUM, "--to", path) == 2
    assert "already exists" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert run("export", PENDULUM, "--to", path, "--overwrite") == 0
    assert path.stat().st_size > 1000


@pytest.mark.parametrize(
    ("source", "to", "says"),
    [
        (PENDULUM, "policy.pt", "the name must end in .onnx, .h, .npz"),
        (PENDULUM, "policy", "the name must end in"),
        (PENDULUM, "missing/policy.h", "no such directory"),
        (PENDULUM, "folder.h", "is a directory"),
        (Path("missing.disc"), "policy.h", "no such file"),
        ("damaged.disc", "policy.onnx", "damaged"),
    ],
    ids=str,
)
def test_user_errors_are_one_sentence_and_write_nothing(
    source: Path | str, to: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((PENDULUM / "policy.disc").read_bytes())
    content[-1] ^= 1
    (tmp_path / "damaged.disc").write_bytes(content)
    (tmp_path / "folder.h").mkdir()
    source = tmp_path / source if isinstance(source, str) else source
    before = sorted(tmp_path.iterdir())
    assert run("export", source, "--to", tmp_path / to, "--overwrite") == 2
    message = " ".join(capsys.readouterr().err.split())
    assert says in message
    assert message.startswith("disc: ")
    assert message.endswith(".")
    assert sorted(tmp_path.iterdir()) == before


def test_run_without_a_policy_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(SAMPLES / "version-2" / "sac" / "config.json", tmp_path)
    assert run("export", tmp_path, "--to", tmp_path / "policy.h") == 2
    assert "no policy yet" in " ".join(capsys.readouterr().err.split())


def test_missing_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [x for x in sys.modules if x.partition(".")[0] == "onnx"] + ["onnx"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert run("export", PENDULUM, "--to", tmp_path / "policy.onnx") == 2
    assert "pip install 'disc-rl[onnx]'" in capsys.readouterr().err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []
    assert run("export", PENDULUM, "--to", tmp_path / "policy.h") == 0


def test_interrupted_export_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.h"
    path.write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("disc.storage.os.replace", full)
    with pytest.raises(OSError, match="No space"):
        disc.export(PENDULUM, path, overwrite=True)
    assert [x.read_text() for x in tmp_path.iterdir()] == ["old"]


def test_help_names_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", "--help") == 0
    said = capsys.readouterr().out
    for word in (".onnx", ".h", ".npz", "--to", "--stochastic", "--overwrite"):
        assert word in said


def test_exporting_imports_no_training_dependency(tmp_path: Path) -> None:
    code = (
        "import sys, disc; disc.export(sys.argv[1], sys.argv[2]); "
        "print(*{'jax', 'gymnasium', 'rich', 'onnx', 'torch'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, str(PENDULUM), str(tmp_path / "policy.h")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


@every_format
@pytest.mark.parametrize("kind", ["deterministic", "unbounded", "multi"])
def test_policy_without_finite_actions_is_not_exported(
    kind: str, suffix: str, tmp_path: Path
) -> None:
    tensors, header = policies.contents(file.load(policy_file(kind, tmp_path)))
    huge = {k: np.sign(x) * np.float32(3e38) for k, x in tensors.items() if "weight" in k}
    file.write(tmp_path / "huge.disc", {**tensors, **huge}, header)
    with pytest.raises(disc.DiscError, match=r"finite|differs from numpy by nan"):
        disc.export(tmp_path / "huge.disc", tmp_path / f"policy{suffix}")
    assert not (tmp_path / f"policy{suffix}").exists()


@every_format
def test_odd_names_in_a_policy_file_do_not_matter(suffix: str, tmp_path: Path) -> None:
    tensors, header = policies.contents(file.load(PENDULUM))
    for name in ("\ud800", "\0\n*/", None, 3.5, [{}], float("nan")):
        facts = {"env_name": name, "algorithm": name, "step": name, "versions": name}
        file.write(tmp_path / "odd.disc", tensors, {**header, **facts})
        disc.export(tmp_path / "odd.disc", tmp_path / f"policy{suffix}", overwrite=True)
        assert (tmp_path / f"policy{suffix}").stat().st_size > 1000


# npz


@every_policy
def test_npz_has_all_that_is_needed_to_act(name: str, tmp_path: Path) -> None:
    source = policy_file(name, tmp_path)
    policy = file.load(source)
    for sampled in {policy.sampled_only, True}:
        disc.export(source, tmp_path / "policy.npz", stochastic=sampled, overwrite=True)
        found = np.load(tmp_path / "policy.npz", allow_pickle=False)
        header = json.loads(str(found["header"]))
        assert header["sampled"] == sampled
        examples = {x for x in found.files if x.startswith("example/")}
        arrays = {x: found[x] for x in set(found.files) - examples - {"header"}}
        wanted, _ = policies.contents(policy)
        assert set(arrays) == set(wanted)
        header |= {"format": file.FORMAT, "format_version": file.FORMAT_VERSION}
        file.write(tmp_path / "again.disc", arrays, header)
        again = file.load(tmp_path / "again.disc")
        noise = found["example/noise"] if sampled else None
        actions = check.actions(again, found["example/observation"], noise)
        np.testing.assert_array_equal(actions, found["example/action"])


def test_check_observations_are_usual_and_extreme() -> None:
    policy = file.load(PENDULUM)
    x = check.observations(policy)
    far = np.abs((x - policy.observation_mean) * policy.observation_inverse_std).max(axis=1)
    assert x.shape == (1000, 4)
    assert np.isfinite(x).all()
    assert np.mean(far < 5.0) > 0.5
    assert np.sum(far > 1e3) > 100
    assert far.max() > 1e5
    assert not x[3].any()


def test_wrong_choices_are_detected(tmp_path: Path) -> None:
    policy = file.load(policy_file("multi", tmp_path))
    x = check.observations(policy)
    action = check.actions(policy, x, None)
    assert check.difference(policy, x, None, action) == 0.0
    wrong = action.copy()
    wrong[7, 1] = 1 - wrong[7, 1]
    assert check.difference(policy, x, None, wrong) > 1e-5
    assert np.isnan(check.difference(policy, x, None, action + 100))


# docs/export.md


@every_compiler
def test_c_examples_of_the_page_compile(cc: str, tmp_path: Path) -> None:
    disc.export(PENDULUM, tmp_path / "policy.h")
    examples = blocks("c")
    assert len(examples) == 2
    for i, code in enumerate(examples):
        (tmp_path / f"{i}.c").write_text(code)
        build(cc, "-c", tmp_path / f"{i}.c", "-o", tmp_path / f"{i}.o")


def test_npz_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    disc.export(PENDULUM, "policy.npz")
    (code,) = [x for x in blocks("python") if "np.load" in x]
    names: dict[str, Any] = {}
    exec(code, names)  # it compares itself with the examples
    x = np.float32([0.01, 0.02, 0.3, -0.1])
    wanted, _ = disc.load(PENDULUM).predict(x, clip=True)
    np.testing.assert_allclose(names["act"](x), wanted, atol=1e-6)


def test_latency_table_of_the_page_is_the_measured_one() -> None:
    found = json.loads((ROOT / "results" / "acting.json").read_text(encoding="utf-8"))
    _, _, rest = PAGE.partition("<!-- acting -->\n")
    assert rest.partition("<!-- /acting -->")[0] == acting.table(found["results"])
    assert found["commit"]
    assert {"numpy", "onnxruntime", "cc"} <= set(found["versions"])


def test_benchmark_measures_every_format() -> None:
    importlib.import_module("onnxruntime")
    if shutil.which("cc") is None:
        pytest.skip("cc is missing")
    found = acting.measure(3, 2, 4, blocks=1)
    assert set(found) == {"numpy_us", "onnxruntime_us", "c_us"}
    assert all(time > 0.0 for time in found.values())
