"""A single file in the style of PureJaxRL (`purejaxrl_ppo.py`): sound runs of several kinds, and a fault each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.cases import Case, main, write_settings

from .purejaxrl_ppo import CONFIG, run

CARTPOLE, ACROBOT, CATCH = "CartPole-v1", "Acrobot-v1", "Catch-bsuite"
#: What a fork logs: everything in a table, four losses to wandb, or prints alone.
TABLE, HISTORY, CONSOLE = frozenset({"table"}), frozenset({"history"}), frozenset({"console", "losses"})
#: Most faults show within fewer steps than a sound run takes.
SHORT = {"TOTAL_TIMESTEPS": 6e4}
CONSTANT = {"ANNEAL_LR": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from the script."""

    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    forks: frozenset[str] = frozenset()
    """What lines of the script were changed."""
    logs: frozenset[str] = TABLE

    @property
    def env(self) -> str:
        """The environment's name in gymnax."""
        return str(self.settings.get("ENV_NAME", CARTPOLE))

    def train(self, folder: Path) -> None:
        """Run the script in the folder."""
        config = {**CONFIG, **self.settings, "SEED": self.seed}
        write_settings(folder, config)
        run(folder, config, self.forks, self.logs)


def _runs() -> Iterator[tuple[str, str, str, Recipe]]:
    """Yield (cause, name, how it is made, recipe)."""
    yield "healthy", "history", "the script's settings", Recipe(seed=1, logs=HISTORY)
    catch = {**CONSTANT, "ENV_NAME": CATCH, "TOTAL_TIMESTEPS": 8e4}
    yield "healthy", "catch", "a task that is solved and stays so", Recipe(seed=2, settings=catch)
    acrobot = {"ENV_NAME": ACROBOT, "TOTAL_TIMESTEPS": 8e4, "LR": 5e-4}
    yield "healthy", "acrobot", "prints alone", Recipe(seed=3, settings=acrobot, logs=CONSOLE)
    once = {**CONSTANT, "UPDATE_EPOCHS": 1, "NUM_MINIBATCHES": 1, "LR": 3e-3, "TOTAL_TIMESTEPS": 2e5, "NUM_ENVS": 8}
    yield "healthy", "single-update", "one epoch over one minibatch", Recipe(seed=4, settings=once)
    yield "healthy", "table", "the script's settings, everything logged", Recipe(seed=30)
    yield "lr-too-high", "1", "a rate of 0.2", Recipe(seed=5, settings={**CONSTANT, "LR": 0.2})
    flipped = frozenset({"flipped"})
    yield "advantage-sign-flipped", "1", "values minus returns", Recipe(seed=6, forks=flipped, logs=HISTORY)
    yield (
        "old-policy-aliased",
        "1",
        "the loss computes the old log-probs anew",
        Recipe(seed=7, settings={**CONSTANT, "LR": 1e-3}, forks=frozenset({"resynced"})),
    )
    bonus = {**SHORT, "ENT_COEF": 3.0}
    yield "entropy-explosion", "1", "an entropy bonus of 3", Recipe(seed=8, settings=bonus, logs=HISTORY)
    yield "clip-range-too-small", "1", "a clip of 0.0001", Recipe(seed=9, settings={**SHORT, "CLIP_EPS": 1e-4})
    yield "critic-not-learning", "1", "no weight for the value loss", Recipe(seed=10, settings={"VF_COEF": 0.0})
    yield "grad-clip-starves", "1", "a clip of 1e-10", Recipe(seed=11, settings={**SHORT, "MAX_GRAD_NORM": 1e-10})
    far = {**SHORT, "GAMMA": 0.999}
    ignored = Recipe(seed=12, settings=far, forks=frozenset({"done-ignored"}), logs=HISTORY)
    yield "gae-boundary-bug", "1", "advantages flow over the ends of episodes", ignored
    broken = Recipe(seed=13, settings=SHORT, forks=frozenset({"nan-reward"}), logs=HISTORY)
    yield "nan-inf", "1", "a normalised reward that divides 0 by 0", broken
    never = Recipe(seed=14, settings=SHORT, forks=frozenset({"never-synced"}))
    yield "weights-not-synced", "1", "the sampler keeps the weights of the beginning", never
    frozen = Recipe(seed=15, settings={**SHORT, **CONSTANT}, forks=frozenset({"actor-frozen"}), logs=CONSOLE)
    yield "no-grad-path", "1", "the optimizer sets the actor's updates to zero", frozen


def cases() -> Iterator[Case]:
    """Yield every run."""
    for fault, name, made, recipe in _runs():
        title, daily = f"{fault}/{name}", fault in ("lr-too-high", "clip-range-too-small") or name == "catch"
        told = {"name": title, "fault": fault, "made": made, "task": recipe.env, "seed": recipe.seed}
        yield Case(**told, train=recipe.train, daily=daily)


if __name__ == "__main__":
    main("purejaxrl", cases())
