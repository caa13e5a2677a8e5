"""What PyTorch and safetensors write is read equal to what they read back themselves, without either."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.readers.tensors import read_archive
from ppo_doctor.readers.tensors.tensor import Archive

FIXTURES = Path(__file__).resolve().parents[2] / "runs" / "dumps" / "fixtures"


EXPECTED = sorted(path.stem for path in FIXTURES.glob("*.npz"))


def fixture(stem: str) -> Path:
    (path,) = (path for path in FIXTURES.glob(f"{stem}.*") if path.suffix != ".npz")
    return path


def flat(pieces, kind=np.float64):
    found = [np.asarray(piece) for piece in pieces]
    return np.concatenate(found) if found else np.empty(0, kind)


def check_against_library(archive: Archive, stem: str, elements: int) -> None:
    stored = np.load(FIXTURES / f"{stem}.npz")
    values, bits = stored["values"], stored["bits"]
    index = json.loads(str(stored["index"]))
    lists = ("params", "base_lrs", "_last_lr")  # of plain numbers, which are tensors to us
    assert [entry[0] for entry in index] == [name for name in archive.tensors if not name.endswith(lists)]
    partners: dict[int, str] = {}
    at = byte = 0
    for name, dtype, shape, storage, count, width in index:
        tensor = archive.tensors[name]
        assert (tensor.dtype, list(tensor.shape), tensor.size) == (dtype, shape, int(np.prod(shape)))
        np.testing.assert_array_equal(flat(tensor.chunks(elements)), values[at : at + count], err_msg=name)
        raw = flat(tensor.bits(elements), np.uint8)
        assert raw.tobytes() == bits[byte : byte + count * width].tobytes(), name
        array = tensor.array()
        assert array.shape == tuple(shape)
        assert array.astype(raw.dtype).tobytes() == raw.tobytes()
        assert not array.flags.writeable or array.size == 0
        assert partners.setdefault(storage, tensor.storage) == tensor.storage
        at, byte = at + count, byte + count * width
    used = {entry[3] for entry in index if entry[4]}
    assert len({partners[storage] for storage in used}) == len(used)


def test_there_is_something_to_read():
    assert len(EXPECTED) >= 17


@pytest.mark.parametrize("elements", [7, 1 << 20])
@pytest.mark.parametrize("stem", EXPECTED)
def test_read_equal_to_the_library(stem, elements):
    check_against_library(read_archive(fixture(stem)), stem, elements)


def test_reading_needs_no_torch():
    """Every fixture, in an interpreter of its own that could not import torch."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from ppo_doctor.readers.tensors import read_archive\n"
        "for path in sys.argv[1:]: [list(t.bits()) for t in read_archive(Path(path)).tensors.values()]\n"
        "assert sys.modules['torch'] is None and 'pickle' in sys.modules\n"
    )
    paths = [str(fixture(stem)) for stem in EXPECTED]
    subprocess.run([sys.executable, "-c", code, *paths], check=True)


@pytest.mark.parametrize("left", [0.3, 0.45, 0.6, 0.99])
def test_a_file_of_the_old_format_that_is_cut_off_is_refused(left, tmp_path):
    whole = fixture("legacy").read_bytes()
    path = tmp_path / "cut.pt"
    path.write_bytes(whole[: int(left * len(whole))])
    with pytest.raises(DoctorError, match="cut off"):
        read_archive(path)


def test_tied_weights_and_optimizer_state():
    archive = read_archive(fixture("trained"))
    tied, head = archive.tensors["model.0.weight"], archive.tensors["model.2.weight"]
    assert tied.storage == head.storage
    assert archive.tensors["model.1.weight"].storage != tied.storage
    assert archive.tensors["optimizer.state.0.exp_avg"].shape == tied.shape
    assert next(archive.tensors["optimizer.state.0.step"].chunks())[0] == 2
    assert list(next(archive.tensors["optimizer.param_groups.0.params"].chunks())) == [0, 1, 2]
    assert archive.scalars["optimizer.param_groups.0.lr"] == pytest.approx(1e-3)
    assert archive.scalars["optimizer.param_groups.0.betas.1"] == 0.999
    assert archive.scalars["scheduler.last_epoch"] == 2


def test_scalars_of_nested_containers():
    scalars = read_archive(fixture("nested")).scalars
    wanted = {"epoch": 3, "lr": 1e-4, "name": "run", "nothing": None, "flag": True, "shape.1": 3, "device": "cpu"}
    assert wanted.items() <= scalars.items()
    assert scalars["dtype"] == "torch.bfloat16"


def test_settings_of_a_namespace():
    archive = read_archive(fixture("settings"))
    assert archive.scalars == {"args.lr": 0.5, "args.nested.k": 2}


def test_what_is_no_plain_tensor_is_named():
    archive = read_archive(FIXTURES / "left-out.pt")
    assert list(archive.tensors) == ["dense"]
    assert {note.text.split()[0] for note in archive.notes} == {"sparse", "conj"}


def test_metadata_of_safetensors():
    assert read_archive(FIXTURES / "safe.safetensors").scalars == {"format": "pt", "step": "12"}


@pytest.mark.parametrize(("stem", "word"), [("module", "state_dict"), ("script", "state_dict")])
def test_programs_are_refused_with_the_way_out(stem, word):
    with pytest.raises(DoctorError) as caught:
        read_archive(FIXTURES / f"{stem}.pt")
    assert word in caught.value.hint
