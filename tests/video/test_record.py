"""Videos play, show motion and need no graphics library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from disc import DiscError
from disc.envs.factory import Maker
from disc.video import record
from disc.video.raycast import RayCaster
from faults import broken
from tests.support.environments import Nested, Wide

SMALL = {"width": 161, "height": 120, "max_seconds": 0.6}
BARE_HOPPER = """
import gymnasium as gym, numpy as np
from disc.video import record
make = lambda mode: gym.make("Hopper-v5", render_mode=mode)
film = record.record(make, lambda _: np.zeros(3), "clip.mp4", max_seconds=0.1)
print(film.renderer, end="")
"""


def hopper(mode: str | None) -> Any:
    return gym.make("Hopper-v5", render_mode=mode)


def stand(observation: Any) -> Any:
    return np.zeros(3, np.float32)


def decode(path: Path) -> np.ndarray[Any, Any]:
    import imageio_ffmpeg

    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = next(reader)["size"]
    return np.stack([np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader])


def assert_shows_motion(frames: np.ndarray[Any, Any]) -> None:
    assert all(frame.std() > 5.0 for frame in frames)
    assert (frames[0] != frames[-1]).any()


def test_mujoco_video_shows_motion(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "hopper.mp4"
    film = record.record(hopper, stand, path, **SMALL)
    assert film.renderer == "raycast"
    assert (film.path, film.frames, film.fps, film.cut) == (path, 15, 25.0, True)
    frames = decode(path)
    assert frames.shape == (15, 120, 160, 3)
    assert_shows_motion(frames)
    assert list(path.parent.iterdir()) == [path]


def test_gif_plays_in_real_time(tmp_path: Path) -> None:
    path = tmp_path / "humanoid.gif"
    film = record.record(
        lambda mode: gym.make("Humanoid-v5", render_mode=mode),
        lambda _: np.zeros(17),
        path,
        **SMALL,
    )
    with Image.open(path) as gif:
        assert gif.n_frames == film.frames == 13
        milliseconds, frames = 0, []
        for number in range(gif.n_frames):
            gif.seek(number)
            milliseconds += gif.info["duration"]
            frames.append(np.asarray(gif.convert("RGB")))
    assert film.fps == pytest.approx(67 / 3)
    assert milliseconds == pytest.approx(1000 * film.frames / film.fps, abs=10)
    assert_shows_motion(np.stack(frames))


def test_same_seed_gives_the_same_frames(tmp_path: Path) -> None:
    def film(seed: int) -> np.ndarray[Any, Any]:
        record.record(hopper, stand, tmp_path / "a.mp4", seed=seed, **SMALL)
        return decode(tmp_path / "a.mp4")

    first = film(3)
    np.testing.assert_array_equal(first, film(3))
    assert (first != film(4)).any()


def test_returns_and_frame_rate_match_the_episodes(tmp_path: Path) -> None:
    returns = []
    env = hopper(None)
    for seed in (5, 6):
        observation, _ = env.reset(seed=seed)
        returns.append(0.0)
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(stand(observation))
            returns[-1] += reward
            done = terminated or truncated
    film = record.record(
        hopper, stand, tmp_path / "a.gif", episodes=2, seed=5, fps=10, width=32, height=32
    )
    assert film.returns == pytest.approx(returns)
    assert film.fps == pytest.approx(125 / 13)
    assert not film.cut


def test_environment_with_its_own_renderer_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "walker.mp4"
    film = record.record(
        lambda mode: gym.make("BipedalWalker-v3", render_mode=mode),
        lambda _: np.array([0.5, -0.5, -0.5, 0.5], np.float32),
        path,
        max_seconds=0.5,
    )
    assert film.renderer == "own"
    frames = decode(path)
    assert frames.shape == (film.frames, 400, 600, 3)
    assert film.frames == round(0.5 * film.fps)
    assert_shows_motion(frames)


class Blind(gym.Env[Any, Any]):
    observation_space = action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, **_: Any) -> Any:
        return np.zeros(1), {}


class Broken(Blind):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def render(self) -> Any:
        raise OSError("the paint is dry")


@pytest.mark.parametrize(("kind", "why"), [(Blind, "rgb_array"), (Broken, "the paint is dry")])
def test_failed_rendering_raises_and_leaves_no_file(
    kind: type[Blind], why: str, tmp_path: Path
) -> None:
    with pytest.raises(record.RenderError, match=f"^{kind.__name__} [^\n]*{why}"):
        record.record(kind, stand, tmp_path / "a.mp4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"episodes": 0}, {"fps": 0}, {"width": 1}])
def test_invalid_video_options_raise(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(record.RenderError, match="positive"):
        record.record(Blind, stand, tmp_path / "a.mp4", **options)


@pytest.mark.parametrize("name", ["a.avi", "a", "mp4"])
def test_unknown_suffix_raises_first(name: str, tmp_path: Path) -> None:
    def never(_: Any) -> Any:
        raise AssertionError("not to be called")

    with pytest.raises(record.RenderError, match=r"must end in \.mp4 or \.gif"):
        record.record(never, never, tmp_path / "folder" / name)
    assert not list(tmp_path.iterdir())


def test_failing_policy_leaves_the_existing_file_unchanged(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"precious")

    def give_up(_: Any) -> Any:
        raise ArithmeticError("lost")

    with pytest.raises(ArithmeticError, match="lost"):
        record.record(hopper, give_up, tmp_path / "a.mp4", **SMALL)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"precious"]


def test_ray_caster_follows_the_robot_off_the_floor() -> None:
    import mujoco

    env = hopper(None).unwrapped
    env.reset(seed=0)
    caster = RayCaster(env.model, env.data, 160, 120)
    here = caster.draw()
    env.data.qpos[0] += 64.0  # a whole number of tiles, and beyond the 20 m that MuJoCo draws
    mujoco.mj_forward(env.model, env.data)
    difference = np.abs(here.astype(int) - caster.draw())
    assert difference.mean() < 0.1


def test_ray_caster_works_with_older_mujoco(monkeypatch: pytest.MonkeyPatch) -> None:
    import mujoco

    env = hopper(None).unwrapped
    env.reset(seed=0)
    caster = RayCaster(env.model, env.data, 64, 48)
    expected = caster.draw()
    multi_ray = mujoco.mj_multiRay
    takes_normals = "normal" in (multi_ray.__doc__ or "").split("->")[0]

    def older(m: Any, d: Any, p: Any, v: Any, g: Any, s: Any, b: Any, i: Any, r: Any, /, n: int,
              cutoff: float) -> None:  # fmt: skip
        multi_ray(m, d, p, v, g, s, b, i, r, *([None] if takes_normals else []), n, cutoff)

    monkeypatch.setattr(mujoco, "mj_multiRay", older)
    np.testing.assert_array_equal(caster.draw(), expected)


def test_recording_needs_no_display_and_prints_nothing(tmp_path: Path) -> None:
    hidden = {"DISPLAY", "WAYLAND_DISPLAY"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", BARE_HOPPER],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "raycast")
    assert [file.name for file in tmp_path.iterdir()] == ["clip.mp4"]


def test_importing_the_recorder_loads_no_heavy_packages() -> None:
    heavy = "{'mujoco', 'pygame', 'matplotlib', 'jax', 'PIL'} & set(sys.modules)"
    code = f"import sys; import disc.video.record; assert not {heavy}"
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | path, check=False)
    assert done.returncode == 0


# Factories, and the choice of a renderer


class Drawn(Wide):
    """Renders frames if it was made so."""

    metadata: ClassVar[Any] = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.full((16, 16, 3), 100, np.uint8) if self.render_mode else None


def still(observation: Any) -> Any:
    return np.zeros((2, 2), np.float32)


def film(factory: Any, path: Path, **options: Any) -> record.Recording:
    return record.record(Maker(factory).make, still, path, max_seconds=0.2, **options)


def test_factory_with_render_mode_is_recorded(tmp_path: Path) -> None:
    for factory in (Drawn, lambda **kwargs: Drawn(**kwargs), lambda: Drawn("rgb_array")):
        assert film(factory, tmp_path / "a.gif").renderer == "own"


def test_factory_without_render_mode_raises_and_says_what_to_do(tmp_path: Path) -> None:
    def make() -> Any:
        return Drawn()

    with pytest.raises(
        DiscError, match=r"make: takes no render_mode; add that parameter.*def make"
    ):
        film(make, tmp_path / "a.gif")
    with pytest.raises(
        DiscError, match=r"its render_mode is None: pass render_mode='rgb_array' on"
    ):
        film(lambda render_mode=None: Drawn(), tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_factory_of_a_mujoco_environment_needs_no_render_mode(tmp_path: Path) -> None:
    def make() -> Any:
        return gym.make("Hopper-v5")

    found = record.record(Maker(make).make, stand, tmp_path / "a.gif", max_seconds=0.1)
    assert found.renderer == "raycast"


def test_renderer_can_be_chosen(tmp_path: Path) -> None:
    class Both(Drawn):
        model, data = hopper(None).unwrapped.model, hopper(None).unwrapped.data

    assert film(Both, tmp_path / "a.gif").renderer == "raycast"
    assert film(Both, tmp_path / "a.gif", renderer="own").renderer == "own"
    with pytest.raises(DiscError, match=r"cannot be ray-cast .* use --renderer own"):
        film(Drawn, tmp_path / "a.gif", renderer="raycast")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (broken.StepRaises, r"raised at step 3 of .* \(RuntimeError: the motor is on fire\)"),
        (broken.ObservationNaN, r"the observation at step 3 of .* is not finite"),
        (broken.FirstResetRaises, r"the reset at the start of .* raised"),
    ],
)
def test_failing_environment_is_named_with_the_step_and_the_remedy(
    kind: Any, says: str, tmp_path: Path
) -> None:
    class Fails(kind):
        metadata, render_mode = Drawn.metadata, "rgb_array"
        render = Drawn.render

    broken.restart()
    with pytest.raises(DiscError, match=f"^Fails: .*{says}.*; fix the environment [^,]*$"):
        record.record(Maker(lambda: Fails(3)).make, lambda _: np.zeros(2), tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_nested_observations_are_recorded(tmp_path: Path) -> None:
    class Both(Nested):
        metadata, render_mode = Drawn.metadata, "rgb_array"
        render = Drawn.render

    assert film(Both, tmp_path / "a.gif").frames == 4
