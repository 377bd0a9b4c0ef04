"""Making environments: from a short name, a Gymnasium id, a function, or an environment."""

from __future__ import annotations

import copy
import importlib
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from disc.envs import contract
from disc.envs.contract import summary
from disc.envs.packages import package_of
from disc.envs.tasks import TASKS
from disc.types import DiscError

VectorEnv = gym.vector.VectorEnv
Source = str | gym.Env[Any, Any] | VectorEnv | Callable[..., gym.Env[Any, Any]]


CHOOSE = "name it with env, and env_kwargs if it takes some"
HARMLESS = 10_000  # the largest number that a file may pass to an environment


@dataclass
class Maker:
    """Makes environments of one kind.

    Args:
        source: a task's short name, a Gymnasium id, `package:Id-v0` (an id that a package
            registers when it is imported), `package.module:factory`, an environment, a vector of
            environments, or a function that makes one environment.
        kwargs: passed to `gymnasium.make` or the function.
    """

    source: Source
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_file(cls, path: Any, recipe: Any, kwargs: Any, how: str = CHOOSE) -> Maker:
        """The environment that a file names, if the file does not choose what to import or open.

        Args:
            path: the file.
            recipe: the environment that it names.
            kwargs: the keyword arguments that it names.
            how: what a user who trusts the file should do, for the message.

        Raises:
            DiscError: it names a function to import, a file or a large number, which an untrusted
                file must not choose.
        """
        if not isinstance(recipe, str):
            raise DiscError(f"{path}: its environment was created in Python; name one with env.")
        if not isinstance(kwargs, dict) or (maker := cls(recipe, kwargs)).cli_args:
            given = f" with {kwargs!r}" if kwargs else ""
            raise DiscError(
                f"{path}: its environment is created by {recipe!r}{given}, which an untrusted file "
                f"must not choose; if you trust it, {how}."
            )
        return maker

    @property
    def single(self) -> bool:
        """Whether the source is an object, of which there is only one."""
        return isinstance(self.source, gym.Env | VectorEnv)

    def num_envs(self, asked: int) -> int:
        """E: the number that was asked for, or that of a vector environment.

        Raises:
            DiscError: the two differ.
        """
        if not isinstance(self.source, VectorEnv):
            return asked
        found = int(self.source.num_envs)
        if asked not in (1, found):
            raise DiscError(
                f"{self.name}: has {found} environments, so num_envs can't be {asked}; leave it "
                "out."
            )
        return found

    @property
    def name(self) -> str:
        """The environment's name in messages and files."""
        if isinstance(self.source, str):
            return TASKS[self.source].id if self.source in TASKS else self.source
        if isinstance(self.source, gym.Env | VectorEnv):
            spec = self.source.spec
            return spec.id if spec else type(self.source.unwrapped).__name__
        return getattr(self.source, "__name__", type(self.source).__name__)

    @property
    def recipe(self) -> str | None:
        """How another process can make it again; None for objects and functions."""
        return self.name if isinstance(self.source, str) else None

    @property
    def cli_args(self) -> list[str]:
        """The arguments that name it to `disc`, if a file may not choose it."""
        recipe = self.recipe
        chosen = recipe is not None and (":" in recipe or _reaches_out(self.kwargs))
        return ["--env", recipe] if recipe and chosen else []

    def make(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """A new environment.

        Args:
            render_mode: passed to `gymnasium.make` or the function, if given.

        Raises:
            DiscError: there is no such environment, it can't be imported, it can't be copied, or
                the function takes no `render_mode`.
        """
        kwargs = {**self.kwargs, **({"render_mode": render_mode} if render_mode else {})}
        if isinstance(self.source, str):
            factory = _factory(self.source)
            return _call(factory, self.name, kwargs) if factory else _make(self.name, kwargs)
        if isinstance(self.source, VectorEnv):
            return _one_of(self.source, self.name, kwargs)
        if not isinstance(self.source, gym.Env):
            if not callable(self.source):
                raise DiscError(
                    f"{self.name}: is a {type(self.source).__name__}, but a gymnasium.Env, its id "
                    "or a function that makes one is needed; num_envs gives several."
                )
            return _call(self.source, self.name, kwargs)
        if self.source.spec is not None:
            with suppress(DiscError):  # a wrapper may not record how it was made
                return _make(self.source.spec, kwargs)
        try:
            return copy.deepcopy(self.source)
        except Exception as error:
            raise DiscError(
                f"{self.name}: a second environment is needed, but this one can't be copied "
                f"({summary(error)}); pass a function that makes one instead."
            ) from error

    def another(self, when: str) -> gym.Env[Any, Any]:
        """One more environment during a run; `when` is for messages.

        Raises:
            DiscError: it can't be made.
        """
        try:
            return self.make()
        except DiscError as error:
            if self.single:
                raise
            what = f"a new environment was needed {when}, but creating it failed"
            cause = error.__cause__ or error
            raise contract.error(self.name, f"{what} ({summary(cause)})") from error

    @contextmanager
    def borrowed(self, when: str | None = None) -> Iterator[gym.Env[Any, Any]]:
        """A new environment, closed at the end; `when` says when a run needs it, for messages."""
        env = self.another(when) if when else self.make()
        try:
            yield env
        finally:
            contract.close(env, self.name)


def _one_of(env: VectorEnv, name: str, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """A single environment like those of a vector environment, for evaluations."""
    makers = getattr(env, "env_fns", None)
    if makers and not kwargs:
        return _call(makers[0], name, kwargs)
    if env.spec is not None and env is env.unwrapped and "wrappers" not in env.spec.kwargs:
        vector = ("num_envs", "vectorization_mode", "vector_kwargs")
        own = {key: value for key, value in env.spec.kwargs.items() if key not in vector}
        return _make(env.spec.id, {**own, **kwargs})
    raise DiscError(
        f"{name}: an evaluation needs a single environment, but none can be created from this "
        "vector of them; pass a function that makes one and num_envs, or turn evaluations off "
        "(eval_every=0)."
    )


def _reaches_out(value: Any) -> bool:
    """Whether a value contains text that may be a file's path or a name to import, or a number so
    large that simulation may never end (MuJoCo's `frame_skip`).
    """
    if isinstance(value, str):
        return value.startswith((".", "~")) or any(sign in value for sign in "/\\:")
    if isinstance(value, int | float):
        return not abs(value) <= HARMLESS
    inner = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, Mapping | list | tuple) and any(map(_reaches_out, inner))


def _factory(source: str) -> Callable[..., gym.Env[Any, Any]] | None:
    """The function behind `package.module:factory`; None if `source` is a Gymnasium id."""
    module, colon, name = source.partition(":")
    if not colon or re.search(r"-v\d+$", name):
        return None
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # it may be in the current folder
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        raise DiscError(f"{source}: can't be imported ({summary(error)}).") from error


def _call(
    factory: Callable[..., gym.Env[Any, Any]], name: str, kwargs: Mapping[str, Any]
) -> gym.Env[Any, Any]:
    if "render_mode" in kwargs and not _takes(factory, "render_mode"):
        raise DiscError(
            f"{name}: takes no render_mode; add that parameter to it and pass it on to the "
            "environment: `def make(…, render_mode=None)`."
        )
    try:
        env = factory(**kwargs)
    except Exception as error:
        raise DiscError(f"{name}: creating the environment failed ({summary(error)}).") from error
    if not isinstance(env, gym.Env):
        raise DiscError(f"{name}: returned type {type(env).__name__}, not a gymnasium.Env.")
    return env


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name, or takes any."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in, which raises its own error
        return True
    any_name = any(x.kind is inspect.Parameter.VAR_KEYWORD for x in parameters.values())
    return any_name or name in parameters


def _make(id: Any, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    _redirect_mujoco_warnings()
    try:
        return gym.make(id, disable_env_checker=True, **kwargs)
    except gym.error.DependencyNotInstalled as error:
        raise DiscError(
            f"{id}: a package it needs is missing ({summary(error)}); install it and try again."
        ) from error
    except (gym.error.Error, ImportError) as error:
        how = isinstance(id, str) and package_of(id)
        raise DiscError(
            f"{id}: no such environment ({summary(error).rstrip('.')}); "
            + (
                how
                or "`disc list` shows the paper's tasks, and any Gymnasium id, package:Id-v0 or "
                "package.module:factory works too."
            )
        ) from error
    except Exception as error:
        raise DiscError(f"{id}: creating the environment failed ({summary(error)}).") from error


def _redirect_mujoco_warnings() -> None:
    """Send MuJoCo's warnings to `logging`, not to a MUJOCO_LOG.TXT in the current folder."""
    with suppress(ImportError):
        import mujoco

        mujoco.set_mju_user_warning(logging.getLogger("disc.mujoco").info)
