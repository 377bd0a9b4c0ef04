"""Environments in worker processes: the same numbers, also if a worker dies; nothing is left."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disc.algos import ddpg
from disc.envs.factory import Maker
from disc.envs.pace import IN_PROCESSES, IN_THREADS, IN_TURN, Pace, Way
from disc.envs.past import Past
from disc.envs.pool import Environments
from disc.envs.process import Processes, WorkerProcess
from disc.envs.rollout import collect
from disc.envs.workers import MOST, Remote
from disc.policy.exploration import Colored, Perturbed
from disc.policy.policies import Uniform
from disc.types import DiscError, Rollout
from tests.support import environments as probes
from tests.support import policies
from tests.support import workers as support
from tests.support.ddpg import CONFIG, settled
from tests.support.studies import ROOT, wait_for
from tests.support.transitions import SPEC
from tests.support.workers import batch


class Scripted(Pace):
    """Chooses these ways, one for each batch."""

    def __init__(self, *ways: Way) -> None:
        super().__init__(3, True)
        self.ways = list(ways)

    def way(self, *_: Any, **__: Any) -> Way:
        return self.ways.pop(0)


def made(source: Any, workers: str | None = None, num_envs: int = 3, **kwargs: Any) -> Environments:
    env = Environments(Maker(source, kwargs), num_envs, workers)
    env.reset(3, 0)
    return env


def same(found: Rollout, wanted: Rollout) -> None:
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def wanted() -> list[Rollout]:
    """Four batches, collected one environment after the other."""
    env = made(probes.wide)
    return [batch(env, i, threads=1) for i in range(4)]


# The same numbers


@pytest.mark.parametrize(
    "ways",
    [
        [IN_THREADS] * 4,
        [IN_TURN, IN_PROCESSES, IN_PROCESSES, IN_THREADS],
        [IN_PROCESSES, IN_TURN, IN_PROCESSES, IN_TURN],
    ],
)
def test_results_do_not_depend_on_the_trial(ways: list[Way], wanted: list[Rollout]) -> None:
    env = made(probes.wide)
    env.pace = Scripted(*ways)
    for i in range(4):
        same(batch(env, i), wanted[i])
    env.close()


def test_processes_give_the_same_results_after_resets_and_replays(wanted: list[Rollout]) -> None:
    env = made(probes.wide, "processes")
    assert env.lanes == []
    bound = support.policy(env.spec).bound
    for i in range(2):
        same(batch(env, i), wanted[i])
    actions, before = np.concatenate(env.actions_since_reset, axis=1), env.observations()
    env.reset(3, 100)  # another seed
    assert not np.array_equal(env.observations(), before)
    env.reset(3, 0)
    env.replay(actions, bound)
    np.testing.assert_array_equal(env.observations(), before)
    for i in range(2, 4):
        same(batch(env, i), wanted[i])
    env.close()


def arguments(policy: Any) -> dict[str, Any]:
    """Those with which the policy was constructed."""
    return {x.name: getattr(policy, x.name) for x in dataclasses.fields(policy) if x.init}


def test_every_exploring_policy_acts_in_a_worker() -> None:
    """The rewards say that no worker has imported JAX."""
    assert isinstance(ddpg.explore(CONFIG, SPEC, settled()), Perturbed)
    actors: list[Any] = [policies.make(kind)[0] for kind in policies.KINDS]
    env = made(support.telling, "processes", num_envs=1)
    gaussian = support.policy(env.spec)
    actors += [Perturbed(**arguments(actors[2]), spread=0.1, run_seed=1), gaussian]
    actors += [Colored(**arguments(gaussian), color=0.5)]
    actors += [Uniform(env.spec.action_low, env.spec.action_high, env.spec.action_shape)]
    state = types.SimpleNamespace(seed=1, iteration=0, step=0)
    for actor in actors:
        rows = collect(env, lambda _, x=actor: x, state, 40)
        np.testing.assert_array_equal(rows.reward, np.zeros(40))
    env.close()
    env = made(support.telling, "threads", num_envs=1)
    assert batch(env, 0).reward.min() > 0
    env.close()


def test_many_environments_share_few_workers() -> None:
    spec, maker = made(probes.wide).spec, Maker(probes.wide)
    for count in (1, MOST, MOST + 1, 1000):
        shares = Remote(Processes(), maker, spec, count, Past(), str).shares
        assert [e for share in shares for e in share] == list(range(count))
        assert len(shares) == min(count, MOST)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


# Workers that die


def test_killed_workers_are_replaced_with_the_same_result(wanted: list[Rollout]) -> None:
    env = made(probes.wide, "processes")
    same(batch(env, 0), wanted[0])
    assert env.remote is not None
    for worker in env.remote.workers[:2]:
        worker.process.kill()  # type: ignore[attr-defined]
    for i in range(1, 4):
        same(batch(env, i), wanted[i])
    notes = env.take_notes()
    assert len(notes) == 2
    assert "process of environment 0 died (SIGKILL, perhaps for lack of memory). A new" in notes[0]
    assert env.take_notes() == []
    env.close()


def test_worker_that_dies_while_it_collects_is_replaced(
    tmp_path: Path, wanted: list[Rollout]
) -> None:
    env = made(support.mortal, "processes", at=50, once=str(tmp_path / "died"))
    for i in range(4):
        same(batch(env, i), wanted[i])
    assert env.take_notes()
    env.close()


def test_worker_that_dies_repeatedly_stops_the_run() -> None:
    env = made(support.mortal, "processes", num_envs=1, at=50)
    batch(env, 0, n=40)
    with pytest.raises(DiscError, match=r"^mortal: .*environment 0 died 3 times in a row \(SIGK"):
        batch(env, 1, n=40)
    env.close()


def test_new_worker_that_cannot_restore_its_episodes_is_reported() -> None:
    env = made(support.Unseeded, "processes", num_envs=1)
    batch(env, 0)
    assert env.remote is not None
    env.remote.workers[0].process.kill()  # type: ignore[attr-defined]
    batch(env, 1)
    assert "not deterministic under a seed" in env.take_notes()[1]
    env.close()


def test_interrupted_batch_can_be_collected_again(
    wanted: list[Rollout], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = made(probes.wide, "processes")
    same(batch(env, 0), wanted[0])

    def interrupt(self: WorkerProcess) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WorkerProcess, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            batch(env, 1)
    for i in range(1, 3):
        same(batch(env, i), wanted[i])
    env.close()


# Errors


@pytest.mark.parametrize("fault", ["raise", "nan-observation", "inf-reward", "shape"])
def test_faults_in_a_worker_have_the_same_message(fault: str) -> None:
    messages = []
    for workers in ("threads", "processes"):
        probes.Bad.total = 0
        env = made(probes.bad, workers, num_envs=1, fault=fault, at=70)
        with pytest.raises(DiscError) as caught:
            batch(env, 0)
        messages.append(str(caught.value))
        env.close()
    assert messages[0] == messages[1]
    assert "step 70" in messages[0]


def test_requests_are_packed_as_bytes_not_views() -> None:
    """A view of a `BytesIO` in a traceback crashes the garbage collector of Python 3.12.1."""
    assert type(Processes().pack(("collect", np.zeros(3)))) is bytes


def test_policy_error_in_a_worker_shows_where_it_was_raised() -> None:
    env = made(probes.Follow, "processes", num_envs=1)
    broken = partial(collect, env, lambda _: Broken(np.zeros(1), np.ones(1), (1,)))
    with pytest.raises(RuntimeError, match=r"in a worker:(.|\n)*test_workers.py(.|\n)*on purpose"):
        broken(types.SimpleNamespace(seed=1, iteration=0, step=0), 4)
    env.close()


class Broken(Uniform):
    """Can't act."""

    def __call__(self, observation: Any, noise: Any) -> Any:
        raise ZeroDivisionError("on purpose")


def missing() -> Any:
    """A function of a module that only this process has."""
    module = types.ModuleType("only_here")
    sys.modules["only_here"] = module
    exec(
        "import tests.support.environments\ndef make(): return tests.support.environments.Wide()",
        module.__dict__,
    )
    return module.make


MISSING = missing()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (lambda: probes.Wide(), r"can't be sent to a worker \(.*package.module:factory, or define"),
        (MISSING, r"make: can't be imported in a worker \(ModuleNotFoundError: .*only_here"),
        (probes.Wide(), "is an object of this process.*pass a function"),
    ],
)
def test_environment_that_cannot_be_sent_to_a_worker_raises_one_sentence(
    source: Any, says: str
) -> None:
    with pytest.raises(DiscError, match=says) as caught:
        made(source, "processes", num_envs=1)
    assert "\n" not in str(caught.value)
    assert "threads" in str(caught.value)


@pytest.mark.parametrize("source", [lambda: probes.Wide(), MISSING])
def test_trial_skips_processes_if_they_cannot_make_the_environment(
    source: Any, wanted: list[Rollout]
) -> None:
    env = made(source)
    env.pace = Scripted(IN_PROCESSES, IN_TURN, IN_TURN)
    for i in range(2):
        same(batch(env, i), wanted[i])
    env.close()


SCRIPT = """
from tests.support.environments import Wide
from tests.support.workers import batch
from disc.envs.factory import Maker
from disc.envs.pool import Environments

class Mine(Wide):
    pass

def train():
    env = Environments(Maker(Mine), 2, "processes")
    env.reset(0, 0)
    print(batch(env, 0).reward.shape)

"""


@pytest.mark.parametrize("guarded", [True, False])
def test_environment_may_be_defined_in_the_script(guarded: bool, tmp_path: Path) -> None:
    last = "if __name__ == '__main__':\n    train()" if guarded else "train()"
    (tmp_path / "script.py").write_text(SCRIPT + last)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100
    )
    if guarded:
        assert (done.returncode, done.stdout.split("\n")[0]) == (0, "(96,)"), done.stderr
    else:
        assert "script.py: worker processes import this script" in done.stderr
        assert "`if __name__ == '__main__':`" in done.stderr


# No process is left


def test_workers_end_with_their_environments() -> None:
    env = made(probes.wide, "processes", num_envs=2)
    assert env.remote is not None
    pids = [worker.process.pid for worker in env.remote.workers]  # type: ignore[attr-defined]
    assert all(support.running(pid) for pid in pids)
    env.close()
    assert not any(support.running(pid) for pid in pids)
    env = made(probes.wide, "processes", num_envs=1)
    assert env.remote is not None
    pid = env.remote.workers[0].process.pid  # type: ignore[attr-defined]
    del env
    wait_for(lambda: not support.running(pid))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_if_their_parent_is_killed(number: signal.Signals) -> None:
    """In the middle of a batch that would take a minute."""
    code = (
        "from tests.support.workers import *; from disc.envs.factory import Maker; "
        "env = Environments(Maker(Slow), 2, 'processes'); env.reset(0, 0); "
        "print(*children(os.getpid()), flush=True); batch(env, 0, n=12_000)"
    )
    command = [sys.executable, "-c", code]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.send_signal(number)
    parent.wait(30)
    wait_for(lambda: not any(support.running(pid) for pid in pids))
