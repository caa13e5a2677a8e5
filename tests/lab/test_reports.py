"""The measure of the reports' lines and of the values in their actions."""

from __future__ import annotations

from lab import reports


def test_a_report_within_its_lines_whose_action_tells_the_value(monkeypatch, capsys, samples):
    monkeypatch.setattr(reports, "given", lambda: [[str(samples / "sick/lr-zero.sb3")]])
    reports.main()
    told = capsys.readouterr().out
    assert "unhealthy: 1 reports" in told
    assert "over their limit: 0" in told
    assert "is held: 1, with its value 1" in told


def test_every_sample_is_given_once():
    named = [files[-1] for files in reports.given()]
    assert len([name for name in named if "old-policy-aliased.sb3" in name]) == 1
