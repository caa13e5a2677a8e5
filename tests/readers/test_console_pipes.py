"""Tables of numbers below a line of names, among words."""

from __future__ import annotations

from ppo_doctor.pipeline import load_run

TABLE = """It does not learn, see below.

```csv
step,ep_rew_mean,approx_kl,entropy_loss
1,-200.0,,
2,-199.5,0.0031,-1.09
3,-198.0,0.0042,-1.08
4,-197.0,0.0040,-1.07
```

Any idea?
"""


def test_a_csv_file_pasted_among_words_is_read_with_its_empty_cells(tmp_path):
    (tmp_path / "question.md").write_text(TABLE)
    run = load_run(tmp_path)
    assert run.series["episode_return"].values.tolist() == [-200.0, -199.5, -198.0, -197.0]
    assert run.series["approx_kl"].values.tolist() == [0.0031, 0.0042, 0.0040]
