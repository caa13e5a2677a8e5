"""Settings that columns beside inferred metrics show."""

from __future__ import annotations

import numpy as np

from ppo_doctor.trainers.guessing.leftovers import settings_shown
from ppo_doctor.trainers.phrases import PLANNED


def test_settings_that_columns_show():
    steps, norm = np.full(40, 3.0), 0.5 + 0.1 * np.arange(40)
    columns = {"turns": steps, f"turns {PLANNED}": np.full(40, 12.0), "gust": norm, "gust after": np.full(40, 1e-3)}
    shown = settings_shown(columns, {"optimizer_steps": "turns", "grad_norm": "gust"})
    assert shown == {"updates_per_batch": 12.0, "max_grad_norm": 1e-3}
    changing = {**columns, f"turns {PLANNED}": np.arange(40.0), "gust after": norm / 2}
    assert settings_shown(changing, {"optimizer_steps": "turns", "grad_norm": "gust"}) == {}
    assert settings_shown(columns, {}) == {}
