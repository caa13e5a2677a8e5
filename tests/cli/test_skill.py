"""The page for agents: what it names exists, and it is installed where clients look for it."""

from __future__ import annotations

import re

import pytest
import typer
import yaml

from ppo_doctor.cli.application import COMMANDS, application_of


def commands_of(page: str) -> list[str]:
    return re.findall(r"`(?:ppo-doctor )?([a-z-]+(?: [^`]*)?)`", page)


def options_of(command: str) -> set[str]:
    made = typer.main.get_command(application_of(command))
    ours = getattr(made, "commands", {}).get(command, made)
    return {name for each in ours.params for name in each.opts}


def test_every_command_and_option_on_the_page_exists(cli):
    page = cli("skill").out
    named = [words.split() for words in commands_of(page)]
    called = [words for words in named if words[0] in COMMANDS]
    assert {words[0] for words in called} >= {"analyze", "inspect", "compare", "explain"}
    for command, *words in called:
        assert {word for word in words if word.startswith("--")} <= options_of(command), command
    whole = [found.split()[0] for found in re.findall(r"`ppo-doctor ([^`]+)`", page)]
    assert set(whole) <= set(COMMANDS)


@pytest.mark.parametrize("times", [1, 2])
def test_it_is_installed_as_a_folder_with_its_name(cli, tmp_path, times):
    for _ in range(times):
        out = cli("skill", "--install", str(tmp_path / "skills"))
    page = tmp_path / "skills" / "ppo-doctor" / "SKILL.md"
    assert out.out.strip() == str(page)
    head = yaml.safe_load(page.read_text(encoding="utf-8").split("---")[1])
    assert head["name"] == "ppo-doctor"
    assert 40 < len(head["description"]) <= 1024
    assert page.read_text(encoding="utf-8") == cli("skill").out
