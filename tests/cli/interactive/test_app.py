"""Every key, every view, the mouse and the command palette, driven without a terminal."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest
from textual.command import CommandPalette
from textual.events import Key, Paste
from textual.widgets import ContentSwitcher, Input, OptionList

from ppo_doctor.cli.interactive import terminal
from ppo_doctor.cli.interactive.app import Ask, Choose, Export, Help
from ppo_doctor.cli.interactive.findings import chain
from ppo_doctor.model.diagnosis import ChainLink
from ppo_doctor.report import FORMATS, RenderOptions
from ppo_doctor.report.layout import Page
from tests.cli.interactive.stage import Judge, Screen, drive, several

TITLES = ("Story", "Checks", "Metrics", "Config & K", "Source")


def test_a_digit_shows_its_view():
    async def script(screen: Screen) -> None:
        for key, title in zip("31245", (TITLES[2], *TITLES[:2], *TITLES[3:]), strict=True):
            await screen.press(key)
            assert f"[{key} {title}]" in screen.text()
            assert bool(screen.rows) == screen.app.split.listed == (title != "Story")

    drive(script)


def test_the_story_tells_all_in_a_small_terminal_scrolls_and_is_copied_from():
    async def script(screen: Screen) -> None:
        page = " ".join(screen.page.split())
        for part in (
            "Every advantage is zero – critical · since step 12",
            "likely: Advantages are exactly zero",
            "num_generations: 8 → 16",
        ):
            assert part in page
        assert page.index("do ") < page.index("Chain ") < page.index("onset 12")
        assert "frac_reward_zero_std" in page
        assert "≥0.95" in page
        text = screen.text()
        assert "Chain ? rollout" in text
        assert "do " in text
        assert screen.app.focused is screen.app.split.page
        await screen.press("j", "down")
        assert screen.app.split.page.scroll_offset.y == 2
        await screen.press("k", "up")
        assert screen.app.split.page.scroll_offset.y == 0
        await screen.press("c")
        await screen.wait_for(lambda: isinstance(screen.app.screen, Choose))
        assert "num_generations" in screen.text()
        await screen.press("enter")
        assert screen.app.clipboard == "num_generations"

    drive(script)


def chained(*links: ChainLink) -> list[tuple[str, str]]:
    """Return the words of a chain with their styles."""
    page = Page(width=200)
    chain(page, links)
    return [(span.text.strip(), span.style) for line in page.lines for span in line if span.text.strip()]


def test_a_chain_is_broken_from_what_is_dead_to_what_lives():
    states = {"rewards": "alive", "advantages": "dead", "loss": "unknown", "gradient": "unknown", "weights": "alive"}
    drawn = chained(*(ChainLink(link=name, state=state) for name, state in states.items()))
    told = " ".join(text for text, _ in drawn)
    assert told == "Chain ✓ rewards ─× ✗ advantages ─× ? loss ─× ? gradient ── ✓ weights"
    assert "reverse" in dict(drawn)["✗ advantages"]


def test_what_is_dead_by_another_link_is_struck_out():
    dead = ChainLink(link="advantages", state="dead")
    drawn = dict(chained(dead, ChainLink(link="gradient", state="dead", entailed_by="advantages")))
    assert "strike" in drawn["✗ gradient"]
    assert "strike" not in drawn["✗ advantages"]


def test_links_beside_the_chain_are_told_where_they_are_not_well():
    sick, sound = ChainLink(link="critic", state="wrong"), ChainLink(link="reference", state="alive")
    drawn = chained(ChainLink(link="rollout", state="alive"), sick, sound)
    assert drawn[-1][0] == "! critic"


def test_why_shows_all_that_is_behind_the_story_and_hides_it_again():
    async def script(screen: Screen) -> None:
        assert "prior: how common" not in screen.page
        await screen.press("w")
        for part in ("prior: how common", "+30  sum", "−10", "Checks", "Not ruled out", "truncated record"):
            assert part in screen.page
        await screen.press("w")
        assert "prior: how common" not in screen.page
        await screen.press("3", "w")
        assert screen.app.view == "story"

    drive(script)


def test_why_of_the_command_line_opens_the_account():
    async def script(screen: Screen) -> None:
        assert "prior: how common" in screen.page

    drive(script, options=RenderOptions(why=True))


def test_findings_show_outcomes_numbers_and_reasons():
    async def script(screen: Screen) -> None:
        await screen.press("2")
        assert screen.rows[0] == "advantages-all-zero"
        assert "400 of 401" in screen.page
        assert "+18 1 Advantages are exactly zero" in screen.page
        await screen.press("G")
        assert "The log lacks" in screen.page or "needs" in screen.page.lower()
        assert "skipped" in screen.page

    drive(script)


def test_the_filter_walks_through_the_outcomes():
    async def script(screen: Screen) -> None:
        await screen.press("f")
        assert screen.app.view == "findings"
        seen = []
        for _ in range(5):
            status = {f.rule: f.status for f in screen.app.session.diagnosis.findings}
            seen.append({status[rule] for rule in screen.rows})
            await screen.press("f")
        assert seen == [{"fired"}, set(), {"clear"}, {"skipped"}, {"fired", "clear", "skipped"}]

    drive(script)


def test_search_is_fuzzy_and_narrows_every_view():
    async def script(screen: Screen) -> None:
        await screen.press("3", "slash")
        await screen.type("frzs")
        assert screen.rows == ["frac_reward_zero_std"]
        assert screen.page.startswith("frac_reward_zero_std")
        await screen.press("enter", "escape")
        assert len(screen.rows) == 5
        await screen.press("slash")
        await screen.type("qqq")
        assert screen.rows == []
        assert "No metric fits" in screen.page
        await screen.press("escape", "1", "slash")
        assert screen.app.view == "findings"
        await screen.type("advzero")
        assert screen.rows[0] == "advantages-all-zero"

    drive(script)


def test_digits_and_letters_in_a_search_are_text():
    async def script(screen: Screen) -> None:
        await screen.press("slash")
        await screen.type("q2e?")
        assert screen.app.split.search.value == "q2e?"
        assert screen.app.view == "findings"
        assert screen.app.is_running

    drive(script)


def test_metrics_have_sparks_statistics_and_meaning():
    async def script(screen: Screen) -> None:
        await screen.press("3")
        assert "▁" in screen.text()
        await screen.press("slash")
        await screen.type("approx_kl")
        for part in ("KL of the old policy", "logged as kl", "8 not finite", "median", "412 records"):
            assert part in screen.page

    drive(script)


def test_a_setting_is_supposed_marked_as_hypothetical_and_dropped_again():
    async def script(screen: Screen) -> None:
        await screen.press("4")
        assert screen.rows[:3] == ["K", "clip_range", "target_kl"]
        await screen.press("enter")
        assert isinstance(screen.app.screen, Ask)
        screen.app.screen.query_one(Input).value = "1"
        await screen.press("enter")
        await screen.wait_for(lambda: bool(screen.app.session.overrides))
        assert cast("Judge", screen.app.session.case.rediagnose).asked == [{"K": 1}]
        text = screen.text()
        assert "HYPOTHETICAL: K = 1" in text
        assert "HEALTHY" in text.splitlines()[0]
        assert "As read UNHEALTHY" in screen.page
        assert "If so HEALTHY" in screen.page
        await screen.press("x")
        assert "HYPOTHETICAL" not in screen.text()
        assert "UNHEALTHY" in screen.text().splitlines()[0]

    drive(script)


def test_supposed_settings_add_up_and_no_value_can_be_supposed():
    async def script(screen: Screen) -> None:
        await screen.app.suppose("clip_range", "0.3")
        await screen.app.suppose("target_kl", "none")
        assert screen.app.session.overrides == {"clip_range": 0.3, "target_kl": None}

    drive(script)


def test_an_empty_answer_and_a_setting_that_no_rule_knows_change_nothing():
    async def script(screen: Screen) -> None:
        await screen.press("4", "enter")
        screen.app.screen.query_one(Input).value = " "
        await screen.press("enter")
        assert isinstance(screen.app.screen, Ask)
        assert "a value is needed" in screen.text()
        await screen.press("escape")
        assert screen.app.session.overrides == {}
        assert not isinstance(screen.app.screen, Ask)
        await screen.press("4", "G")
        assert "output_dir" in screen.page
        await screen.press("enter")
        assert not isinstance(screen.app.screen, Ask)

    drive(script)


def test_export_writes_every_format(tmp_path):
    async def script(screen: Screen) -> None:
        await screen.press("e")
        await screen.wait_for(lambda: isinstance(screen.app.screen, Export))
        offered = screen.app.screen.query_one(OptionList)
        assert offered.option_count == len(FORMATS)
        offered.highlighted = 1
        first, chosen, *others = FORMATS
        await screen.press("enter")
        screen.app.screen.query_one(Input).value = str(tmp_path / chosen)
        await screen.press("enter")
        assert not isinstance(screen.app.screen, Export)
        for format in (first, *others):  # what the dialog does with its answer
            screen.app.export(format, tmp_path / format)

    drive(script)
    assert all((tmp_path / format).stat().st_size > 100 for format in FORMATS)


def test_export_asks_before_it_replaces_a_file_and_tells_what_fails(tmp_path):
    target = tmp_path / "report.json"
    target.write_text("mine", encoding="utf-8")

    async def script(screen: Screen) -> None:
        await screen.press("e")
        await screen.wait_for(lambda: isinstance(screen.app.screen, Export))
        screen.app.screen.query_one(OptionList).highlighted = list(FORMATS).index("json")
        await screen.press("enter")
        field = screen.app.screen.query_one(Input)
        field.value = str(tmp_path / "no" / "folder.json")
        await screen.press("enter")
        assert "cannot write" in screen.text()
        field.value = str(target)
        await screen.press("enter")
        assert "replaces it" in screen.text()
        assert target.read_text(encoding="utf-8") == "mine"
        await screen.press("enter")

    drive(script, size=(160, 50))
    assert json.loads(target.read_text(encoding="utf-8"))["verdict"] == "unhealthy"


def test_runs_are_flipped_through_and_keep_their_suppositions_apart():
    async def script(screen: Screen) -> None:
        assert "1/3" in screen.text().splitlines()[0]
        await screen.press("right_square_bracket")
        assert screen.text().splitlines()[0].split()[:4] == ["✓", "HEALTHY", "2/3", "runs/exp2/run.jsonl"]
        await screen.press("left_square_bracket", "left_square_bracket")
        assert "INCONCLUSIVE 3/3" in " ".join(screen.text().splitlines()[0].split())
        await screen.press("r")
        await screen.wait_for(lambda: isinstance(screen.app.screen, Choose))
        await screen.press("home", "enter")
        assert "1/3" in screen.text().splitlines()[0]
        await screen.app.suppose("K", "1")
        await screen.press("right_square_bracket")
        assert screen.app.session.overrides == {}
        assert "HYPOTHETICAL" not in screen.text()

    drive(script, several())


def test_help_lists_every_key_that_is_bound():
    async def script(screen: Screen) -> None:
        await screen.press("question_mark")
        assert isinstance(screen.app.screen, Help)
        text = screen.text()
        for key in ("1 2 3 4 5", "w ", "f ", "x ", "c ", "e ", "[ ], r", "q, Ctrl-C", "Ctrl-P"):
            assert key in text
        await screen.press("escape")
        assert not isinstance(screen.app.screen, Help)

    drive(script, size=(120, 50))


def test_quitting():
    async def script(screen: Screen) -> None:
        await screen.press("3", "q")

    app = drive(script)
    assert not app.interrupted
    assert not app.is_running


@pytest.mark.parametrize("opener", ["slash", "e", "question_mark"])
def test_ctrl_c_quits_from_everywhere(opener):
    async def script(screen: Screen) -> None:
        await screen.press(opener, "ctrl+c")

    assert drive(script).interrupted


def test_enter_on_a_check_and_5_open_the_log_at_its_evidence():
    async def script(screen: Screen) -> None:
        for keys in (("5",), ("2", "enter")):
            await screen.press("1", *keys)
            assert screen.app.view == "places"
            assert screen.app.split.choices.chosen.startswith("advantages-all-zero")

    drive(script)


def test_tab_and_arrows_go_to_the_page_and_back():
    async def script(screen: Screen) -> None:
        await screen.press("2", "right")
        assert screen.app.focused is screen.app.split.page
        await screen.press("j", "j")
        assert screen.app.split.page.scroll_offset.y == 2
        await screen.press("left")
        assert screen.app.focused is screen.app.split.choices
        await screen.press("tab")
        assert screen.app.focused is screen.app.split.page

    drive(script)


def test_space_scrolls_the_page_without_leaving_the_list():
    async def script(screen: Screen) -> None:
        await screen.press("2", "space")
        await screen.wait_for(lambda: screen.app.split.page.scroll_offset.y > 5)
        assert screen.app.focused is screen.app.split.choices
        await screen.press("b")
        await screen.wait_for(lambda: screen.app.split.page.scroll_offset.y == 0)

    drive(script)


def test_the_mouse_chooses_tabs_rows_and_keys():
    async def script(screen: Screen) -> None:
        await screen.pilot.click("#tabs", offset=(14, 0))
        await screen.settle()
        assert screen.app.view == "findings"
        await screen.pilot.click(screen.app.split.choices, offset=(3, 4))
        await screen.settle()
        assert screen.app.split.choices.highlighted not in (None, 0)
        await screen.pilot.click("#title", offset=(3, 0))
        await screen.settle()
        assert screen.app.view == "story"

    drive(script)


def test_a_click_chooses_and_a_second_one_opens():
    async def script(screen: Screen) -> None:
        await screen.press("2")
        choices = screen.app.split.choices
        before = screen.app.view, choices.highlighted
        at = next(y for y in range(12) if choices.get_option_at_index(1) and choices._lines[y][0] == 1)
        await screen.pilot.click(choices, offset=(3, at))
        await screen.settle()
        assert (screen.app.view, choices.highlighted) == (before[0], 1)
        assert screen.app.focused is choices
        await screen.pilot.click(choices, offset=(3, at))
        await screen.settle()
        assert screen.app.view == "places" or screen.app.focused is screen.app.split.page

    drive(script)


def test_the_command_palette_does_what_keys_do():
    async def script(screen: Screen) -> None:
        await screen.press("ctrl+p")
        assert isinstance(screen.app.screen, CommandPalette)
        await screen.type("View 3")
        await screen.wait_for(lambda: "Metrics" in screen.text())
        await screen.press("enter", "enter")
        await screen.wait_for(lambda: screen.app.view == "metrics")

    drive(script)


@pytest.mark.parametrize(
    ("burst", "comes"),
    [
        (("3", "slash", *"loss", "enter"), lambda screen: "loss" in screen.rows and "learning_rate" not in screen.rows),
        (
            ("4", "slash", *"epsil", "backspace", "enter", "escape"),
            lambda screen: screen.app.view == "settings" and not screen.app.split.search.display,
        ),
        (("4", "enter", "ctrl+u", *"32", "enter"), lambda screen: screen.app.session.overrides == {"K": 32}),
        (("e", "escape", "2", "1", "q"), lambda screen: not screen.app.is_running),
    ],
)
def test_keys_that_come_all_at_once_do_what_they_do_one_by_one(burst, comes):
    async def script(screen: Screen) -> None:
        for key in burst:
            screen.app.post_message(Key(key, "/" if key == "slash" else key if len(key) == 1 else None))
        for _ in range(3000):  # half a minute, for a machine that is busy
            if comes(screen):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(screen.text())

    drive(script)


def test_what_is_pasted_goes_to_the_window_that_a_key_before_it_opens():
    async def script(screen: Screen) -> None:
        for event in (Key("slash", "/"), Paste("advzero")):
            screen.app.post_message(event)
        await screen.wait_for(lambda: screen.rows[:1] == ["advantages-all-zero"])
        assert screen.app.split.search.value == "advzero"

    drive(script)


def test_what_lists_still_say_while_a_report_closes_is_not_heard():
    async def script(screen: Screen) -> None:
        await screen.press("2")
        choices, search = screen.app.split.choices, screen.app.split.search
        highlighted = OptionList.OptionHighlighted(choices, choices.get_option_at_index(0), 0)
        await screen.app.query_one(ContentSwitcher).remove()
        for message in (highlighted, Input.Changed(search, "l"), Input.Submitted(search, "l")):
            screen.app.post_message(message)
        await screen.pilot.pause()
        assert screen.app.crash is None

    drive(script)


def test_ctrl_c_waits_for_no_key_before_it():
    async def script(screen: Screen) -> None:
        for key in (*"1234512345", "ctrl+c"):
            screen.app.post_message(Key(key, key if len(key) == 1 else None))
        for _ in range(500):
            if not screen.app.is_running:
                return
            await asyncio.sleep(0.01)

    assert drive(script).interrupted


def test_the_layout_follows_the_size_of_the_terminal():
    async def script(screen: Screen) -> None:
        for width, plots in ((80, False), (120, False), (200, True)):
            await screen.pilot.resize_terminal(width, 50)
            await screen.settle()
            assert screen.app.split.plots.display == plots
            assert ("frac_reward_zero_std  fraction" in screen.page) != plots
            assert "onset 12" in (screen.app.split.plots.text() if plots else screen.page)
        await screen.pilot.resize_terminal(60, 15)
        await screen.settle()
        assert max(map(len, screen.text().splitlines())) <= 60
        assert "✗ UNHEALTHY" in screen.text()

    drive(script)


@pytest.mark.parametrize(("colors", "light"), [("0;15", True), ("0;default;7", True), ("15;0", False), ("", False)])
def test_a_light_terminal_says_so(monkeypatch, colors, light):
    monkeypatch.setenv("COLORFGBG", colors)
    assert terminal.is_light() is light


def test_a_light_terminal_is_kept_light():
    async def script(screen: Screen) -> None:
        assert not screen.app.current_theme.dark
        await screen.press("2", "1")
        assert "Chain" in screen.text()

    drive(script, light=True)
