"""Layouts as people print them: every number of theirs arrives under its name."""

from __future__ import annotations

import pytest

_GRID = "+-----+------+--------+---------+\n"


def numbers(n):
    """What the records of all layouts hold, by the letters that stand for it in their lines."""
    return {
        "n": n,
        "r": n / 4 - 3,
        "k": (n + 1) / 1000,
        "milli": n + 1,
        "e": 2 - n / 16,
        "p": 12.5 + n,
        "share": (12.5 + n) / 100,
        "g": 0.75 + n / 64,
        "h": 0.5,
        "big": 1_000_000 + n,
        "kilo": 1000 + 500 * n,
        "half": 1 + n / 2,
        "ten": 10,
    }


R, K, E = ("r", "k", "e")
#: what stands above all records, a record, and which number each name of it holds
LAYOUTS = {
    "middle dots": (
        "",
        "[{n:03d}] ⟨G⟩ {r:.2f} · tip {p:.1f}cm ‖ σ̄ {e:.4f} · D {milli:.3f}mnat · χ {p:.2f}% · ∇π {g:e}→{h:e} · n {n}/10\n",  # noqa: E501
        {
            "step": "n",
            "⟨G⟩": R,
            "tip cm": "p",
            "σ̄": E,
            "D mnat": "milli",
            "χ": "share",
            "∇π": "g",
            "∇π after": "h",
            "n": "n",
            "n planned": "ten",
        },
    ),
    "a grid with a bar in a name": (
        _GRID + "| rnd |  R % | |pull| | kl·1e3  |\n" + _GRID,
        "| {n:3d} | {p:4.1f} | {e:6.4f} | {milli:7.1f} |\n",
        {"rnd": "n", "R %": "p", "|pull|": E, "kl·1e3": "milli"},
    ),
    "a grid in every update": (
        "",
        "+---+---+---+\n| update | return | kl |\n+---+---+---+\n| {n} | {r} | {k} |\n+---+---+---+\n",
        {"update": "n", "return": R, "kl": K},
    ),
    "wide letters": (
        "┏━━━━┳━━━━━━┳━━━━━━┓\n┃ it ┃ 奖励 ┃ KL   ┃\n┡━━━━╇━━━━━━╇━━━━━━┩\n",
        "│ {n:2d} │ {r:5.2f} │ {k} │\n",
        {"it": "n", "奖励": R, "KL": K},
    ),
    "Markdown": ("| it | R | H |\n|---:|:-:|---|\n", "| {n} | {r} | {e} |\n", {"it": "n", "R": R, "H": E}),
    "no rule": ("| it | R | H |\n", "| {n} | {r:5.2f} | {e} |\n", {"it": "n", "R": R, "H": E}),
    "psql": (" it | R | H | kl\n----+---+---+----\n", " {n} | {r} | {e} | {k}\n", {"it": "n", "R": R, "H": E, "kl": K}),
    "a rule of equals signs": (
        "====  =======  ======\n  it        R      kl\n====  =======  ======\n",
        "{n:4d}  {r:7.2f}  {k:6.3f}\n",
        {"it": "n", "R": R, "kl": K},
    ),
    "loguru": (
        "",
        "2026-11-27 10:00:00.123 | INFO     | ppo.train:log:42 - update={n} R={r} kl={k}\n",
        {"update": "n", "R": R, "kl": K},
    ),
    "absl": ("", "I1127 10:00:00.123456 140 t.py:42] update: {n}, R: {r}, kl: {k}\n", {"update": "n", "R": R, "kl": K}),
    "colours": (
        "",
        "\x1b[1mupdate {n}\x1b[0m \x1b[2m|\x1b[0m R \x1b[33m{r}\x1b[0m | kl {k}\n",
        {"update": "n", "R": R, "kl": K},
    ),
    "a bar": ("", "\rtrain:  9%|█  | 9/99 [00:01<00:10,  9.9it/s, R={r}, kl={k}]", {"R": R, "kl": K}),
    "a line drawn again": ("", "\r[{n}/100] R {r} kl {k} H {e}   ", {"step": "n", "R": R, "kl": K, "H": E}),
    "Chinese": ("", "平均奖励：{r}，KL散度：{k}，策略熵：{e}\n", {"平均奖励": R, "KL散度": K, "策略熵": E}),
    "thousands": ("", "steps: {big:,} | R: {r} | kl: {k}\n", {"steps": "big", "R": R, "kl": K}),
    "thousands by letter": ("", "upd {n} | frames {half:.1f}k | R {r} | kl {k}\n", {"upd": "n", "frames": "kilo"}),
    "typographers": ("", "update {n}: R {r:.2f}, kl {k}, H {e}\n", {"update": "n", "R": R, "kl": K, "H": E}),
    "two lines": (
        "",
        "=== update {n} ===\n  R {r} // kl {k} // H {e}\n  clipped {p} % // len {big}\n",
        {"update": "n", "R": R, "kl": K, "H": E, "clipped": "share", "len": "big"},
    ),
    "before and after": (
        "",
        "it={n} R={r} grad={g} -> {h} kl={k} sgd={n}/10\n",
        {"R": R, "grad": "g", "grad after": "h", "kl": K, "sgd": "n", "sgd planned": "ten"},
    ),
    "after in brackets": (
        "",
        "it {n} | R {r} | grad {g} ({h} after clipping) | kl {k} nats | H {e} bits\n",
        {"it": "n", "R": R, "grad": "g", "grad after clipping": "h", "H bits": E},
    ),
    "units": (
        "",
        "t={n}; err={p}cm; KL={milli}mnats; SNR={e}dB; clip={p}%\n",
        {"t": "n", "err cm": "p", "KL mnats": "milli", "SNR dB": E, "clip": "share"},
    ),
    "colons": ("", "epoch {n} :: R {r} :: kl {k} :: |g| {g}\n", {"epoch": "n", "R": R, "kl": K, "‖g‖": "g"}),
    "tabs": ("", "it {n}\tR {r}\tΔθ {k}\t‖∇‖ {g}\n", {"it": "n", "R": R, "Δθ": K, "‖∇‖": "g"}),
    "Greek": ("", "k={n} η={k} R̂={r} D̄ₖₗ={k} ℋ={e}\n", {"k": "n", "η": K, "R̂": R, "D̄ₖₗ": K, "ℋ": E}),
    "two loggers": (
        "",
        "[a.train] cycle {n}/150 done, {big} moves so far; profit {r} EUR on average, {h} EUR worst\n"
        "[a.optim] gain: {k}, spread: {e} bit, cut samples: {p}%\n",
        {
            "cycle": "n",
            "moves": "big",
            "profit": R,
            "profit min": "h",
            "gain": K,
            "spread bit": E,
            "cut samples": "share",
        },
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_number_arrives_under_its_name(reading, layout):
    head, line, held = LAYOUTS[layout]
    told = [numbers(n) for n in range(12)]
    text = head + "".join(line.format(**each) for each in told) + "\n"
    got = reading(text.replace("-", "\N{MINUS SIGN}") if layout == "typographers" else text)
    assert len(got.records) == len(told)
    for name, number in held.items():
        assert [record[name] for record in got.records] == pytest.approx([each[number] for each in told]), name


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1,234,567", 1_234_567), ("1.5M", 1.5e6), ("12.5%", 0.125), ("3 mnat", 0.003), ("+∞", float("inf"))],
)
def test_a_cell_in_a_unit(reading, cell, value):
    text = "| it | R | x |\n|----|---|---|\n" + "".join(f"| {n} | {n / 4} | {cell} |\n" for n in range(8))
    assert [record["x"] for record in reading(text).records] == [value] * 8
