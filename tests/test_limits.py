"""The page of limits says what the code holds to."""

from __future__ import annotations

from importlib import import_module

MIB = 1 << 20
#: module, constant → how the page spells it
LIMITS = {
    ("model.opening", "PATIENCE"): (10.0, "10 s"),
    ("readers.source", "ENDLESS"): (1024 * MIB, "1 GiB"),
    ("readers.source", "LONGEST_LINE"): (16 * MIB, "one line | 16 MiB"),
    ("readers.values", "DEEPEST"): (16, "16 deep"),
    ("readers.json_log", "LARGEST"): (1024 * MIB, "one JSON document | 1 GiB"),
    ("readers.sb3_files", "LARGEST_MEMBER"): (256 * MIB, "a member of an archive | 256 MiB"),
    ("readers.parquet_log", "LARGEST"): (512 * MIB, "512 MiB"),
    ("readers.sb3_files", "LARGEST"): (512 * MIB, "512 MiB"),
    ("runs.layouts", "DEEPEST"): (12, "12 deep"),
    ("runs.layouts", "MOST_FOLDERS"): (5_000, "5,000 folders"),
    ("runs.layouts", "MOST_ENTRIES"): (20_000, "20,000 entries"),
    ("readers.sqlite_log", "LARGEST"): (256 * MIB, "compressed | 256 MiB"),
    ("readers.sqlite_log", "LARGEST_CELL"): (16 * MIB, "one cell | 16 MiB"),
    ("readers.sqlite_log", "MOST_JUMPS"): (1_000, "jumped over | 1,000"),
    ("trainers.config_files", "LARGEST"): (4 * MIB, "a configuration | 4 MiB"),
    ("trainers.config_files", "LARGEST_YAML"): (MIB // 2, "YAML 512 KiB"),
    ("trainers.config_yaml", "MOST_NODES"): (20_000, "20,000 |"),
    ("trainers.config_yaml", "MOST_UNFOLDED"): (100_000, "100,000"),
    ("trainers.configuration", "MOST_SETTINGS"): (50_000, "50,000"),
    ("readers.tensors.torch_files", "LARGEST_PICKLE"): (64 * MIB, "a pickle | 64 MiB"),
    ("readers.tensors.pickle_opcodes", "MOST_OPCODES"): (3_000_000, "3,000,000 steps"),
    ("readers.tensors.pickle_opcodes", "MOST_CONTAINERS"): (500_000, "500,000 containers"),
    ("readers.tensors.torch_files", "MOST_VISITS"): (500_000, "each occurrence counted | 500,000"),
    ("readers.tensors.torch_files", "LONGEST_NAME"): (4_096, "4,096 letters"),
    ("readers.tensors.torch_files", "DEEPEST"): (64, "64 deep"),
    ("readers.tensors.storages", "UNPACKED"): (1024 * MIB, "unpacks to | 1 GiB"),
    ("readers.tensors.storages", "RATIO"): (200, "200 times"),
    ("readers.tensors.rows", "LONGEST_LINE"): (32 * MIB, "32 MiB"),
}


def test_the_page_says_what_the_code_holds_to(root):
    page = (root / "docs" / "limits.md").read_text(encoding="utf-8")
    held = {key: getattr(import_module(f"ppo_doctor.{key[0]}"), key[1]) for key in LIMITS}
    assert held == {key: value for key, (value, _) in LIMITS.items()}
    assert not [words for _, words in LIMITS.values() if words not in page]
