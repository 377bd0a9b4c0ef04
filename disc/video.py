"""Film a policy acting in a Gymnasium environment, on machines without a display too.

MuJoCo environments are drawn off screen by OpenGL where that works, and otherwise by a small
ray caster that needs nothing but MuJoCo and NumPy; `MUJOCO_GL=disable` chooses the ray caster.
All other environments draw themselves.
"""

from __future__ import annotations

import copy
import importlib
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from disc import files
from disc.types import DiscError

Frame = NDArray[np.uint8]  # (height, width, 3), both even
Floats = NDArray[np.float64]
Draw = Callable[[], Frame]
RendererName = Literal["opengl", "raycast", "environment"]

MAX_FPS = {".mp4": 30.0, ".gif": 25.0}
GIF_SIZE = 360  # pixels; a larger frame is shrunk to fit


class RenderError(DiscError, RuntimeError):
    """This environment cannot be filmed here."""


@dataclass(frozen=True)
class Recording:
    """A finished video. `cut` says that `max_seconds` ended it: the last return is partial."""

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
) -> Recording:
    """Play `act` in an environment and write what it looks like to `path` (.mp4 or .gif).

    The video plays in real time and shows every n-th step, n being the least that keeps it
    within `fps` frames a second (by default 30, or 25 for a GIF). Episode i starts from
    `reset(seed=seed + i)`. `width` and `height` are for MuJoCo environments; others have a
    size of their own.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in MAX_FPS:
        raise ValueError(f"A video's name must end in .mp4 or .gif, and {path.name!r} does not.")
    limit = MAX_FPS[kind] if fps is None else fps
    if min(episodes, max_seconds, limit) <= 0 or min(width, height) < 2:
        raise ValueError("episodes, max_seconds, fps, width and height must be positive.")

    with ExitStack() as stack:
        env, draw, renderer = _open(stack, env_factory, width // 2 * 2, height // 2 * 2)
        rate = float(env.metadata.get("render_fps") or 30.0)  # steps per second of real time
        stride = max(1, math.ceil(rate / limit - 1e-6))
        max_frames = max(1, round(max_seconds * rate / stride))
        returns: list[float] = []
        frames = 0
        cut = False

        def play() -> Iterator[Frame]:
            nonlocal frames, cut
            for episode in range(episodes):
                observation, _ = env.reset(seed=seed + episode)
                returns.append(0.0)
                step, done = 0, False
                while not done:
                    if step % stride == 0:
                        if cut := frames == max_frames:
                            return
                        yield draw()
                        frames += 1
                    observation, reward, terminated, truncated, _ = env.step(act(observation))
                    returns[-1] += float(reward)
                    step, done = step + 1, terminated or truncated
                if frames == max_frames:
                    return

        path.parent.mkdir(parents=True, exist_ok=True)
        write = _write_mp4 if kind == ".mp4" else _write_gif
        with files.replace(path) as beside:
            write(beside, play(), rate / stride)
    return Recording(path, frames, rate / stride, returns, renderer, cut)


def _open(
    stack: ExitStack, env_factory: Callable[[str | None], Any], width: int, height: int
) -> tuple[Any, Draw, RendererName]:
    """Make the environment and the best available way of drawing it; `stack` closes both."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame reads these when imported
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform == "linux" and not display:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    env = env_factory(None)
    model, data = (getattr(env.unwrapped, name, None) for name in ("model", "data"))
    mujoco = sys.modules.get("mujoco")  # an environment that uses it has imported it
    if mujoco and isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData):
        stack.enter_context(closing(env))
        with suppress(Exception):  # no library, no driver, no device: all fail differently
            return env, stack.enter_context(_opengl(model, data, width, height)), "opengl"
        return env, _RayCaster(model, data, width, height).draw, "raycast"

    name = env.spec.id if env.spec else type(env.unwrapped).__name__
    env.close()
    if "rgb_array" not in env.metadata.get("render_modes", []):
        raise RenderError(
            f"{name} cannot be filmed because it does not draw itself: "
            "choose an environment with 'rgb_array' among its render modes."
        )
    env = stack.enter_context(closing(env_factory("rgb_array")))

    def draw() -> Frame:
        try:
            frame = np.asarray(env.render(), np.uint8)
            rows, columns = (size // 2 * 2 for size in frame.shape[:2])
            return np.ascontiguousarray(frame[:rows, :columns, :3])
        except Exception as error:
            raise RenderError(f"{name} failed to draw itself: {error}") from error

    return env, draw, "environment"


class _Camera:
    """Looks at the robot from its side and travels along with it, at a constant height."""

    azimuth = 102.0  # degrees; at 90 MuJoCo looks along +y, at robots that run along +x

    def __init__(self, model: Any) -> None:
        import mujoco

        self.pose = mujoco.MjData(model)
        mujoco.mj_forward(model, self.pose)
        torsos = [
            *model.cam_bodyid[np.isin(model.cam_mode, [1, 2])],  # what the model itself tracks
            *model.jnt_bodyid[model.jnt_type == mujoco.mjtJoint.mjJNT_FREE],
            0,  # the world, which stays where it is
        ]
        self.torso = int(torsos[0])
        filmed = model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE
        if self.torso:
            filmed &= model.body_rootid[model.geom_bodyid] == model.body_rootid[self.torso]
        axes = np.abs(self.pose.geom_xmat.reshape(-1, 3, 3)[filmed])
        boxes = (axes @ model.geom_aabb[filmed, 3:, None])[:, :, 0]  # half sizes
        low = np.min(self.pose.geom_xpos[filmed] - boxes, axis=0)
        high = np.max(self.pose.geom_xpos[filmed] + boxes, axis=0)
        self.center, size = (low + high) / 2, high - low
        self.radius = float(np.linalg.norm(size)) / 2
        self.slope = math.tan(math.radians(model.vis.global_.fovy) / 2)
        self.distance = 1.2 * self.radius / self.slope
        flatness = max(0.0, 1.0 - 2.0 * size[2] / max(size))
        self.elevation = -12.0 - 45.0 * flatness  # what lies flat is best seen from above

    def lookat(self, data: Any) -> Floats:
        travelled = data.xpos[self.torso] - self.pose.xpos[self.torso]
        return self.center + travelled * (1.0, 1.0, 0.0)


@contextmanager
def _opengl(model: Any, data: Any, width: int, height: int) -> Iterator[Draw]:
    """Draw by MuJoCo's own renderer, off screen.

    Not by `mujoco.Renderer`: it takes the backend that MUJOCO_GL named when mujoco was first
    imported, and naming EGL on a machine without it makes that very import fail.
    """
    import mujoco

    model = copy.deepcopy(model)
    for floor in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
        size, material = model.geom_size[floor, :2], model.geom_matid[floor]
        if material >= 0 and size.all():
            model.mat_texrepeat[material] /= 2.0 * size
        size[:] = 0.0  # without end, or else a good robot runs off the edge
    follow, camera, option = _Camera(model), mujoco.MjvCamera(), mujoco.MjvOption()
    camera.azimuth, camera.elevation = follow.azimuth, follow.elevation
    camera.distance = follow.distance
    buffer = model.vis.global_
    buffer.offwidth, buffer.offheight = max(buffer.offwidth, width), max(buffer.offheight, height)
    area, pixels = mujoco.MjrRect(0, 0, width, height), np.empty((height, width, 3), np.uint8)
    scene = mujoco.MjvScene(model, maxgeom=10_000)

    def draw() -> Frame:
        gl.make_current()
        camera.lookat[:] = follow.lookat(data)
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(model, data, option, None, camera, everything, scene)
        mujoco.mjr_render(area, scene, context)
        mujoco.mjr_readPixels(pixels, None, area, context)
        return pixels[::-1].copy()  # OpenGL counts rows from the bottom

    with ExitStack() as stack:
        with warnings.catch_warnings(action="ignore"):
            gl = _gl_context_class()(width, height)
            stack.callback(gl.free)
            gl.make_current()
            context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
            stack.callback(context.free)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)
            draw()  # better to fail now than in mid film
        yield draw


def _gl_context_class() -> Any:
    """Find a kind of OpenGL context that can do without a display."""
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip()
    if chosen in ("disable", "disabled", "off", "false", "0"):
        raise RenderError("MUJOCO_GL turns OpenGL off.")
    if sys.platform != "linux":
        return importlib.import_module("mujoco.gl_context").GLContext
    os.environ.setdefault("EGL_LOG_LEVEL", "fatal")  # or Mesa complains where it has no driver
    backend = chosen if chosen in ("osmesa", "glfw") else "egl"
    context_class = importlib.import_module(f"mujoco.{backend}").GLContext
    context_class._context = None  # older destructors look for it even after a failed start
    return context_class


class _RayCaster:
    """A software renderer: `mj_multiRay` finds what each pixel shows, NumPy shades it."""

    sun = np.array([-0.36, -0.48, 0.80])  # the direction to it, a unit vector
    sunlight, skylight = np.array([1.15, 1.07, 0.92]), np.array([0.22, 0.26, 0.34])
    horizon, zenith = np.array([0.72, 0.80, 0.86]), np.array([0.14, 0.30, 0.56])

    def __init__(self, model: Any, data: Any, width: int, height: int) -> None:
        import mujoco

        self.model, self.data, self.camera = model, data, _Camera(model)
        self.width, self.height, self.pixel = width, height, 2.0 * self.camera.slope / height
        self.tile = 2.0 ** math.floor(math.log2(self.camera.radius))  # metres
        color = model.geom_rgba[:, :3].astype(np.float64)
        bare = np.all(color == 0.5, axis=1) & (model.geom_matid >= 0)  # as MuJoCo says "unset"
        color[bare] = model.mat_rgba[model.geom_matid[bare], :3]
        self.color = color**2  # linear light, near enough; draw() takes the root again

        is_floor = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
        is_floor &= self.camera.pose.geom_xmat[:, 8] > 0.99  # faces up
        self.floor = int(np.argmax(is_floor)) if is_floor.any() else -1
        self.level = self.camera.pose.geom_xpos[self.floor, 2] if is_floor.any() else np.nan

        turn, tilt = math.radians(self.camera.azimuth), math.radians(self.camera.elevation)
        level = np.array([math.cos(turn), math.sin(turn), 0.0])
        self.ahead = math.cos(tilt) * level + [0.0, 0.0, math.sin(tilt)]
        self.right = np.array([math.sin(turn), -math.cos(turn), 0.0])
        self.up = np.cross(self.right, self.ahead)
        rows, columns = np.mgrid[:height, :width].reshape(2, -1)
        self.rays = self._rays(rows + 0.5, columns + 0.5)

    def draw(self) -> Frame:
        """Shade the center of each pixel, then edges again, more finely."""
        center = self.camera.lookat(self.data)
        color, label = self._shade(center, self.rays)
        edges = _edges(label.reshape(self.height, self.width))
        rows, columns = np.divmod(edges, self.width)
        spots = [(0.375, 0.125), (0.875, 0.375), (0.625, 0.875), (0.125, 0.625)]
        rays = [self._rays(rows + down, columns + along) for down, along in spots]
        finer, _ = self._shade(center, np.concatenate(rays))
        color[edges] = finer.reshape(len(spots), -1, 3).mean(axis=0)
        image = np.sqrt(np.clip(color, 0.0, 1.0)) * 255.0 + 0.5
        return image.astype(np.uint8).reshape(self.height, self.width, 3)

    def _rays(self, rows: Floats, columns: Floats) -> Floats:
        """Return unit vectors from the eye through places of the image, counted in pixels."""
        along = (columns - self.width / 2)[:, None] * self.pixel * self.right
        down = (rows - self.height / 2)[:, None] * self.pixel * self.up
        return _unit(self.ahead + along - down)

    def _cast(self, eye: Floats, rays: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Find the geom that each ray meets first, or -1, and how many ray lengths away."""
        import mujoco

        count = len(rays)
        geom, distance = np.empty(count, np.int32), np.empty(count)
        groups = np.array([1, 1, 1, 0, 0, 0], np.uint8)  # the geoms MuJoCo shows by default
        given = self.model, self.data, eye, rays.ravel(), groups, 1, -1, geom, distance
        try:
            mujoco.mj_multiRay(*given, None, count, 1e6)
        except TypeError:  # older versions have no place for normals
            mujoco.mj_multiRay(*given, count, 1e6)
        return geom, distance

    def _shade(self, center: Floats, rays: Floats) -> tuple[Floats, NDArray[np.int32]]:
        """Compute linear colors, and labels that change where geoms and shadows end."""
        eye = center - self.camera.distance * self.ahead
        geom, distance = self._cast(eye, rays)
        below = (self.level - eye[2]) / rays[:, 2]
        floor = (geom < 0) & (below > 0.0)  # without end: robots outrun the floors of MuJoCo
        geom[floor], distance[floor] = self.floor, below[floor]
        height = 1.0 - np.exp(-3.0 * np.maximum(rays[:, 2:], 0.0))
        color = self.horizon + height * (self.zenith - self.horizon)
        label = np.full(len(rays), -1, np.int32)

        hit = np.flatnonzero(geom >= 0)
        geom, rays, distance = geom[hit], rays[hit], distance[hit, None]
        point, solid = eye + distance * rays, geom != self.floor
        albedo, normal = self.color[geom], np.tile([0.0, 0.0, 1.0], (len(hit), 1))
        normal[solid] = self._normals(eye, rays[solid], point[solid])
        albedo[~solid] *= self._checkers(point[~solid], distance[~solid] / -rays[~solid, 2:])

        light = np.clip(normal @ self.sun, 0.0, None)
        beside = np.abs(distance[:, 0] - self.camera.distance) < 2.5 * self.camera.radius
        near = np.flatnonzero(beside & (light > 0.0))  # where a shadow may fall
        sun = center + 40.0 * self.camera.radius * self.sun
        _, reach = self._cast(sun, point[near] - sun)
        shadow = near[(reach >= 0.0) & (reach < 1.0 - 5e-4)]
        light[shadow] = 0.0
        shine = light[:, None] * self.sunlight + (0.7 + 0.3 * normal[:, 2:]) * self.skylight
        haze = 1.0 - np.exp(-((distance / (14.0 * self.camera.radius)) ** 2))
        color[hit] = (1.0 - haze) * albedo * shine + haze * self.horizon
        label[hit] = 2 * geom
        label[hit[shadow]] += 1
        return color, label

    def _normals(self, eye: Floats, rays: Floats, point: Floats) -> Floats:
        """Compute normals, of any kind of surface, from where two slightly different rays land."""

        def shift(aside: Floats) -> Floats:
            other = rays + 1e-5 * aside
            _, distance = self._cast(eye, other)
            return eye + distance[:, None] * other - point

        return _unit(np.cross(shift(self.right), shift(self.up)))

    def _checkers(self, point: Floats, blur: Floats) -> Floats:
        """Return the brightness of the floor's tiles, their borders as soft as a pixel is wide."""
        wave = 4.0 * np.abs((point[:, :2] / (2.0 * self.tile)) % 1.0 - 0.5) - 1.0
        wave = np.clip(wave * self.tile / (2.0 * self.pixel * blur), -1.0, 1.0)
        return 0.31 + 0.05 * wave[:, :1] * wave[:, 1:]


def _unit(vectors: Floats) -> Floats:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _edges(label: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the flat indices of the pixels that differ from a neighbour."""
    edge = np.zeros(label.shape, bool)
    for a, b in (np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1]):
        differs = label[a] != label[b]
        edge[a] |= differs
        edge[b] |= differs
    return np.flatnonzero(edge)


def _write_mp4(path: Path, frames: Iterator[Frame], fps: float) -> None:
    """Write H.264 in the pixel format that every browser and player knows."""
    import imageio_ffmpeg

    first = next(frames)
    size = first.shape[1::-1]
    portable: dict[str, Any] = {"codec": "libx264", "pix_fmt_out": "yuv420p", "quality": 8}
    portable["output_params"] = ["-movflags", "+faststart", "-f", "mp4"]
    writer = imageio_ffmpeg.write_frames(str(path), size, fps=fps, macro_block_size=2, **portable)
    with closing(writer):
        writer.send(None)
        writer.send(first)
        for frame in frames:
            writer.send(frame)


def _write_gif(path: Path, frames: Iterator[Frame], fps: float) -> None:
    """Write a looping GIF; its clock counts hundredths, so some frames last one more."""
    from PIL import Image

    images = []
    for number, frame in enumerate(frames):
        image = Image.fromarray(frame)
        image.thumbnail((GIF_SIZE, GIF_SIZE))
        images.append(image.quantize(256, Image.Quantize.MAXCOVERAGE))
        ticks = round((number + 1) * 100 / fps) - round(number * 100 / fps)
        images[-1].info["duration"] = 10 * ticks
    images[0].save(path, "GIF", save_all=True, append_images=images[1:], loop=0)
