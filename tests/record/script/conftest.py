import pytest

from .stage import Stage


@pytest.fixture
def stage(tmp_path, samples):
    return Stage(tmp_path, samples / "sick" / "lr-zero.canonical" / "run.jsonl")
