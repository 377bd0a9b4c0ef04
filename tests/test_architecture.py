"""Import rules between sub-packages, read from the source, including type-checking blocks."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import disc

PACKAGE = Path(disc.__file__).parent
GROUND = {"_version", "types", "options", "storage", "host", "seeding"}
MAY_IMPORT = {
    "types": set[str](),
    "options": {"types"},
    "storage": {"types", "host"},
    "host": {"types", "_version"},
    "seeding": {"types"},
    "equations": GROUND,
    "policy": {"types", "storage", "seeding"},
    "policy.formats": {"_version", "types", "storage", "policy"},
    "envs": GROUND | {"equations", "policy"},
    "learning": GROUND | {"equations", "policy"},
    "algos": GROUND | {"equations", "policy", "learning"},
    "video": GROUND | {"policy", "envs"},
    "run": GROUND | {"equations", "policy", "envs", "learning", "algos"},
    "study": GROUND | {"equations", "policy", "envs", "learning", "algos", "run"},
    "report": GROUND | {"equations", "policy", "envs", "learning", "algos", "run", "study"},
    "cli": GROUND
    | {"policy", "policy.formats", "envs", "learning", "algos", "run", "study", "report", "video"},
}
LIMIT = 11  # the most modules of the package that one module may import
MORE = {
    "disc.algos": 12,  # the registry: it imports the ten algorithms
    "disc.learning.actor_critic": 12,  # the state of PPO, PPO-AMBER and DISC, and their iteration
}


def modules() -> dict[str, ast.Module]:
    """All modules of the package by name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def imports(name: str) -> Iterator[str]:
    """The package's modules that a module imports, at any level."""
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                target = inner if inner in MODULES else node.module
                if target in MODULES:
                    yield str(target)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)


def room(name: str) -> str:
    """The sub-package of a module, or its own name at the top level."""
    if f"{name}.".startswith("disc.policy.formats."):
        return "policy.formats"  # exports policies, which do not import it
    return name.split(".")[1] if "." in name else ""


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"disc", "disc.__main__"}))
def test_imports_follow_the_dependency_rule(name: str) -> None:
    own = room(name)
    allowed = MAY_IMPORT.get(own, set()) | {own}
    wrong = {target for target in imports(name) if room(target) not in allowed}
    assert not wrong, f"{name} imports {', '.join(sorted(wrong))}"


def test_modules_have_no_import_cycles() -> None:
    packages = {name for name in MODULES if any(x.startswith(f"{name}.") for x in MODULES)}
    graph = {name: set(imports(name)) - packages - {name} for name in set(MODULES) - packages}
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"disc"}))
def test_modules_import_few_other_modules(name: str) -> None:
    assert len(set(imports(name))) <= MORE.get(name, LIMIT)


def test_package_top_level_stays_small() -> None:
    modules = {name.split(".")[1] for name in MODULES if "." in name} | {"__init__"}
    others = {path.name for path in PACKAGE.iterdir() if path.stem not in modules}
    assert len(modules) <= 18
    assert others <= {"py.typed", "__pycache__"}


def test_loading_a_policy_imports_numpy_only() -> None:
    code = (
        "import sys, disc; disc.load(sys.argv[1]).predict([0.0] * 3); "
        "print(*sorted(x for x in sys.modules if x.partition('.')[0] in "
        "('disc', 'jax', 'jaxlib', 'gymnasium', 'mujoco', 'rich', 'tyro')))"
    )
    sample = PACKAGE.parent / "tests" / "samples" / "version-1" / "disc" / "policy.disc"
    done = subprocess.run([sys.executable, "-c", code, str(sample)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "disc",
        "disc._version",
        "disc.policy",
        "disc.policy.file",
        "disc.policy.layout",
        "disc.policy.policies",
        "disc.storage",
        "disc.types",
    ]


def test_public_names_exist() -> None:
    assert set(disc.__all__) == {
        "ACKTR", "DDPG", "DISC", "PPO", "PPOAMBER", "SAC", "SQL", "TD3", "TRPO", "TrustPCL",
        "Agent", "Algorithm", "DiscError", "Policy", "Rollout", "Spec", "__version__",
        "equations", "export", "load", "register", "resume",
    }  # fmt: skip
    for name in disc.__all__:
        assert getattr(disc, name) is not None
    assert disc.TrustPCL.__name__ == "TrustPCL"
    with pytest.raises(AttributeError):
        disc.nothing  # noqa: B018
