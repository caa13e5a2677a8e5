import json

import pytest

from ppo_doctor.readers import READERS
from ppo_doctor.readers.sniffing import sniff

RECORD = {"loss": 0.5, "kl": 0.01}
CASES = [
    ("jsonl", json.dumps(RECORD) + "\n"),
    ("jsonl", (json.dumps(RECORD) + "\n") * 100),
    ("jsonl", 'junk\n"torn}\n' + (json.dumps(RECORD) + "\n") * 5),
    ("jsonl", '{"loss": NaN}\n{"loss": Infinity}\n'),
    ("jsonl", json.dumps({"a": 1, "hist_stats": {"x": list(range(20_000))}}) + "\n"),
    ("jsonl", '{"loss": 0.5, "k'),
    ("json", json.dumps(RECORD, indent=2)),
    ("json", json.dumps([RECORD])),
    ("json", json.dumps({"log_history": [RECORD]})),
    ("json", json.dumps({"loss": [0.1] * 50_000})),
    ("json", json.dumps({"best": None, "log_history": [RECORD] * 9_000})),
    ("csv", "step,loss\n1,0.5\n"),
    ("csv", "step\tloss\n1\t0.5\n"),
    ("csv", "step;loss\n1;0,5\n"),
    ("csv", "step,env,loss\n1,a,0.5\n2,b,nan\n"),
    ("csv", "step,loss\n"),
    ("csv", "1,2,3\n4,5,6\n"),
    ("csv", '#{"t_start": 1}\nr,l,t\n1,2,3\n'),
    ("csv", ",loss,kl\n0,0.5,\n"),
    ("console", "{'loss': 0.5, 'kl': 0.01}\n"),
    ("console", "'loss': 0.5, 'kl': 0.01}\n"),
    ("console", "[V7] ep=1/200 reward=-3, kl=0.1\n"),
    ("console", "[2023-04-18 08:52:24,220] [INFO] step=70, skipped=6\n"),
    ("console", "2026-04-04 19:24:11,442 [INFO] x\n2026-04-04 19:24:12,442 [INFO] y\n"),
    ("console", "| kl | 0.1 |\n| loss | 0.2 |\n"),
    ("console", "a | b\n-- | --\n1 | 2\n"),
    ("console", "hello, world\n"),
    ("console", "loss, kl\nnow we begin\nand go on\nand on\nand on\n3, 4\n"),
    ("console", "Traceback (most recent call last):\n  x\n"),
    (None, ""),
    (None, " \n\t\n"),
    (None, "\0\0\0\0"),
    (None, "\x18\x00\x00\x00events"),
]


@pytest.mark.parametrize(("container", "text"), CASES)
def test_content_decides(container, text):
    assert sniff(text.encode()[: 1 << 16]) == container


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.txt", "events.out.tfevents"])
def test_the_name_never_decides(name):
    assert sniff(b'{"a": 1}\n{"a": 2}\n', name) == "jsonl"


def test_binary_data_is_nothing_that_we_read():
    for head in (b"PK\x03\x04\x14\0\0\0", b"\x80\x04\x95\x10\0", b":W&B\x01\x02\0", bytes(range(256))):
        assert sniff(head * 20) is None


def test_text_in_an_old_encoding_is_text():
    assert sniff("Schritt=1, Verlust=0.5, größe=3\n".encode("latin-1")) == "console"


def test_a_preallocated_tail_of_zeros_does_not_matter():
    assert sniff(b'{"a": 1}\n{"a": 2}\n' + b"\0" * 5_000) == "jsonl"


def test_every_container_names_a_function():
    from importlib import import_module

    for target in READERS.values():
        module, _, function = target.partition(":")
        assert callable(getattr(import_module(module), function))
