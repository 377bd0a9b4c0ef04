"""A software renderer for MuJoCo environments that needs only MuJoCo and NumPy.

It uses no display, OpenGL, EGL or OSMesa: `mj_multiRay` finds the geom at each pixel and NumPy
shades it, so that all machines render the same image.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[np.uint8]  # (height, width, 3)
Floats = NDArray[np.float64]


class Camera:
    """Follows the robot from its side, at a constant height."""

    azimuth = 102.0  # degrees; at 90 MuJoCo looks along +y, at robots that run along +x

    def __init__(self, model: Any) -> None:
        import mujoco

        self.pose = mujoco.MjData(model)
        mujoco.mj_forward(model, self.pose)
        torsos = [
            *model.cam_bodyid[np.isin(model.cam_mode, [1, 2])],  # tracked by cameras
            *model.jnt_bodyid[model.jnt_type == mujoco.mjtJoint.mjJNT_FREE],
            0,  # the world, which is fixed
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
        self.elevation = -12.0 - 45.0 * flatness  # flat models are viewed from above

    def lookat(self, data: Any) -> Floats:
        travelled = data.xpos[self.torso] - self.pose.xpos[self.torso]
        return self.center + travelled * (1.0, 1.0, 0.0)


class RayCaster:
    """Renders an environment's model and data.

    Args:
        model: its MjModel.
        data: its MjData; `draw` renders its current state.
        width: width of the image in pixels.
        height: height of the image in pixels.
    """

    sun = np.array([-0.36, -0.48, 0.80])  # unit vector towards the sun
    sunlight, skylight = np.array([1.15, 1.07, 0.92]), np.array([0.22, 0.26, 0.34])
    horizon, zenith = np.array([0.72, 0.80, 0.86]), np.array([0.14, 0.30, 0.56])

    def __init__(self, model: Any, data: Any, width: int, height: int) -> None:
        import mujoco

        self.model, self.data, self.camera = model, data, Camera(model)
        self.width, self.height, self.pixel = width, height, 2.0 * self.camera.slope / height
        self.tile = 2.0 ** math.floor(math.log2(self.camera.radius))  # metres
        color = model.geom_rgba[:, :3].astype(np.float64)
        bare = np.all(color == 0.5, axis=1) & (model.geom_matid >= 0)  # MuJoCo's default
        color[bare] = model.mat_rgba[model.geom_matid[bare], :3]
        self.color = color**2  # approximately linear light; draw() takes the root

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
        """Shade the centre of each pixel, then refine edges."""
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
        """Return unit vectors from the eye through positions in the image, in pixels."""
        along = (columns - self.width / 2)[:, None] * self.pixel * self.right
        down = (rows - self.height / 2)[:, None] * self.pixel * self.up
        return _unit(self.ahead + along - down)

    def _cast(self, eye: Floats, rays: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Find the geom that each ray hits first, or -1, and its distance in ray lengths."""
        import mujoco

        count = len(rays)
        geom, distance = np.empty(count, np.int32), np.empty(count)
        groups = np.array([1, 1, 1, 0, 0, 0], np.uint8)  # geom groups that MuJoCo shows by default
        given = self.model, self.data, eye, rays.ravel(), groups, 1, -1, geom, distance
        try:
            mujoco.mj_multiRay(*given, None, count, 1e6)
        except TypeError:  # older versions have no argument for normals
            mujoco.mj_multiRay(*given, count, 1e6)
        return geom, distance

    def _shade(self, center: Floats, rays: Floats) -> tuple[Floats, NDArray[np.int32]]:
        """Compute linear colours, and labels that change at the edges of geoms and shadows."""
        eye = center - self.camera.distance * self.ahead
        geom, distance = self._cast(eye, rays)
        below = (self.level - eye[2]) / rays[:, 2]
        floor = (geom < 0) & (below > 0.0)  # infinite: robots leave the floors of MuJoCo
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
        """Compute normals of any surface, from the hits of two slightly shifted rays."""

        def shift(aside: Floats) -> Floats:
            other = rays + 1e-5 * aside
            _, distance = self._cast(eye, other)
            return eye + distance[:, None] * other - point

        return _unit(np.cross(shift(self.right), shift(self.up)))

    def _checkers(self, point: Floats, blur: Floats) -> Floats:
        """Return the brightness of the floor's tiles, with borders blurred over one pixel."""
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
