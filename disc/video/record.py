"""Record videos of a policy in a Gymnasium environment; needs no display.

MuJoCo environments are rendered by `disc.video.raycast`, which needs no graphics library, unless
their own renderer is chosen; all other environments use their own.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from disc import storage
from disc.envs import contract, spaces
from disc.envs.contract import BadReset, Misbehaved
from disc.types import DiscError
from disc.video.raycast import Frame, RayCaster

Draw = Callable[[], Frame]
RendererName = Literal["raycast", "own"]

MAX_FPS = {".mp4": 30.0, ".gif": 25.0}
GIF_SIZE = 360  # pixels; a larger frame is shrunk to fit


class RenderError(DiscError, RuntimeError):
    """This environment cannot be recorded."""


@dataclass(frozen=True)
class Recording:
    """A finished video. `cut`: `max_seconds` ended it, so the last return is partial."""

    path: Path
    frames: int
    fps: float
    returns: list[float]
    renderer: RendererName
    cut: bool = False


def record(
    env_factory: Callable[[str | None], Any],
    act: Callable[[Any], Any],
    path: str | Path,
    *,
    episodes: int = 1,
    seed: int = 0,
    max_seconds: float = 20.0,
    fps: float | None = None,
    width: int = 480,
    height: int = 360,
    renderer: RendererName | None = None,
) -> Recording:
    """Run `act` in an environment and record a video to `path` (.mp4 or .gif).

    The video plays in real time and shows every n-th step, with the smallest n that keeps it
    within `fps` frames per second (by default 30, or 25 for a GIF). Episode i starts from
    `reset(seed=seed + i)`. `width` and `height` apply to `raycast`; other renderers determine their
    frame size.

    Args:
        env_factory: called with a render mode, or None.
        act: gives the action for an observation: of the environment's shape, or (S,) if nested.
        path: the video file.
        episodes: the maximum.
        seed: seed of the first episode.
        max_seconds: the maximum length.
        fps: the maximum number of frames per second.
        width: width of a frame in pixels.
        height: height of a frame in pixels.
        renderer: `raycast` for MuJoCo environments, or the environment's `own`; by default
            `raycast` where possible.

    Raises:
        RenderError: it can't be recorded.
        DiscError: the environment raised, or gave something invalid.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in MAX_FPS:
        raise RenderError(f"The name of a video must end in .mp4 or .gif, not {path.name!r}.")
    limit = MAX_FPS[kind] if fps is None else fps
    if min(episodes, max_seconds, limit) <= 0 or min(width, height) < 2:
        raise RenderError("episodes, max_seconds, fps, width and height must be positive.")

    with ExitStack() as stack:
        size = (width // 2 * 2, height // 2 * 2)
        env, draw, chosen = _open(stack, env_factory, size, renderer)
        rate = _rate(env)
        stride = max(1, math.ceil(rate / limit - 1e-6))
        max_frames = max(1, round(max_seconds * rate / stride))
        returns: list[float] = []
        frames, step, cut = 0, 0, False

        name = _name(env)
        layout = spaces.observation_layout(env, name)

        def play() -> Iterator[Frame]:
            nonlocal frames, cut, step
            for episode in range(episodes):
                step, done = 0, False
                observation = contract.reset(env, layout, seed + episode)
                returns.append(0.0)
                while not done:
                    if step % stride == 0:
                        if cut := frames == max_frames:
                            return
                        yield draw()
                        frames += 1
                    result = contract.step(env, act(observation), layout)
                    observation, reward, terminated, truncated = result
                    row = np.asarray(observation).reshape(1, -1)
                    if found := contract.first_nonfinite(row, layout):
                        raise Misbehaved(found[1])
                    returns[-1] += reward
                    step, done = step + 1, terminated or truncated
                if frames == max_frames:
                    return

        path.parent.mkdir(parents=True, exist_ok=True)
        write = _write_mp4 if kind == ".mp4" else _write_gif
        try:
            with storage.replace(path) as beside:
                write(beside, play(), rate / stride)
        except Misbehaved as error:
            when = "at the start" if isinstance(error, BadReset) else f"at step {step + 1}"
            what = error.at(f"{when} of the recorded episode")
            raise contract.error(name, what, running=False) from error
    return Recording(path, frames, rate / stride, returns, chosen, cut)


def check(env_factory: Callable[[str | None], Any], renderer: RendererName | None = None) -> None:
    """Raise a `RenderError` if an environment can't be recorded."""
    with ExitStack() as stack:
        _open(stack, env_factory, (32, 32), renderer)


def _open(
    stack: ExitStack,
    env_factory: Callable[[str | None], Any],
    size: tuple[int, int],
    renderer: RendererName | None,
) -> tuple[Any, Draw, RendererName]:
    """Make the environment and a function that renders it; `stack` closes both."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame reads these when imported
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform == "linux" and not display:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    env = env_factory(None)
    name = _name(env)
    simulated = _simulation(env)
    if renderer != "own" and simulated is not None:
        stack.callback(contract.close, env, name)
        return env, RayCaster(*simulated, *size).draw, "raycast"
    if renderer == "raycast":
        contract.close(env, name)
        raise RenderError(
            f"{name} cannot be ray-cast because it has no MuJoCo model: use --renderer own."
        )
    if env.render_mode != "rgb_array":
        contract.close(env, name)
        if "rgb_array" not in env.metadata.get("render_modes", []):
            raise RenderError(
                f"{name} cannot be recorded because it cannot render frames: "
                "use an environment with 'rgb_array' among its render modes."
            )
        env = env_factory("rgb_array")
    stack.callback(contract.close, env, name)
    if env.render_mode != "rgb_array":
        raise RenderError(
            f"{name} cannot be recorded because its render_mode is {env.render_mode!r}: pass "
            "render_mode='rgb_array' on to the environment where it is created."
        )

    def draw() -> Frame:
        try:
            frame = np.asarray(env.render(), np.uint8)
            rows, columns = (size // 2 * 2 for size in frame.shape[:2])
            return np.ascontiguousarray(frame[:rows, :columns, :3])
        except Exception as error:
            raise RenderError(f"{name} failed to render a frame: {error}") from error

    return env, draw, "own"


def _name(env: Any) -> str:
    return str(env.spec.id if env.spec else type(env.unwrapped).__name__)


def _simulation(env: Any) -> tuple[Any, Any] | None:
    """The MuJoCo model and data of an environment, if it has them."""
    mujoco = sys.modules.get("mujoco")  # an environment that uses it has imported it
    if mujoco is None:
        return None
    model, data = (getattr(env.unwrapped, name, None) for name in ("model", "data"))
    if (physics := _physics(env)) is not None:
        model, data = physics.model.ptr, physics.data.ptr
    found = isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData)
    return (model, data) if found else None


def _physics(env: Any) -> Any:
    """The physics of a dm_control environment in Shimmy's wrapper."""
    return getattr(getattr(env.unwrapped, "_env", None), "physics", None)


def _rate(env: Any) -> float:
    """Steps per second of real time."""
    if _physics(env) is not None:
        return 1.0 / float(env.unwrapped.dt)  # Shimmy's render_fps is something else
    return float(env.metadata.get("render_fps") or 30.0)


def _write_mp4(path: Path, frames: Iterator[Frame], fps: float) -> None:
    """Write H.264 in the pixel format that all browsers and players support."""
    import imageio_ffmpeg

    first = next(frames)
    size = first.shape[1::-1]
    portable: dict[str, Any] = {"codec": "libx264", "pix_fmt_out": "yuv420p", "quality": 8}
    portable["output_params"] = ["-movflags", "+faststart", "-f", "mp4"]
    writer = imageio_ffmpeg.write_frames(str(path), size, fps=fps, macro_block_size=2, **portable)
    with closing(writer), warnings.catch_warnings():
        # JAX warns of any fork; this one only starts the encoder
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
        writer.send(None)
        writer.send(first)
        for frame in frames:
            writer.send(frame)


def _write_gif(path: Path, frames: Iterator[Frame], fps: float) -> None:
    """Write a looping GIF; frame durations are rounded to hundredths of a second."""
    from PIL import Image

    images = []
    for number, frame in enumerate(frames):
        image = Image.fromarray(frame)
        image.thumbnail((GIF_SIZE, GIF_SIZE))
        images.append(image.quantize(256, Image.Quantize.MAXCOVERAGE))
        ticks = round((number + 1) * 100 / fps) - round(number * 100 / fps)
        images[-1].info["duration"] = 10 * ticks
    images[0].save(path, "GIF", save_all=True, append_images=images[1:], loop=0)
