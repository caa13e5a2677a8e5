"""Files that installed libraries write in the test are read equal, bit for bit, to what they read back themselves.

Needs torch or safetensors for the parts that are theirs, and skips those without; `fixtures/` holds what they wrote
once, for machines that have neither.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import zipfile
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.readers.tensors import read_archive

TORCH = importlib.util.find_spec("torch") is not None
with_torch = pytest.mark.skipif(not TORCH, reason="needs torch")
pytestmark = pytest.mark.filterwarnings("default")

#: How torch.save may be asked to write: the zip of 1.6 and later, and what came before it.
WAYS = [{}, *({"pickle_protocol": protocol} for protocol in (2, 3, 4, 5))]
LEGACY = [{"_use_new_zipfile_serialization": False, **way} for way in WAYS[:2]]


def leaves(value, name=""):
    """Yield the tensors in nested containers with their dotted names."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from leaves(below, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        for at, below in enumerate(value):
            yield from leaves(below, f"{name}.{at}" if name else str(at))


def bits_of(tensor):
    """Return a torch tensor's elements in logical order, as bytes."""
    import torch

    flat = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach()).reshape(-1)
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def values_of(tensor):
    import torch

    flat = tensor.detach().contiguous().reshape(-1)
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    return flat.to(torch.float64).numpy()


def check_torch(path, loaded):
    """Hold what we read against what torch loads: names, types, shapes, values, bits, and who shares memory."""
    archive = read_archive(path)
    theirs = dict(leaves(loaded))
    assert theirs
    storages = {}
    for name, tensor in theirs.items():
        ours = archive.tensors[name or "tensor"]
        assert ours.dtype == str(tensor.dtype).removeprefix("torch."), name
        assert ours.shape == tuple(tensor.shape), name
        for elements in (3, 1 << 16):
            pieces = [np.array(piece) for piece in ours.bits(elements)]
            assert b"".join(piece.tobytes() for piece in pieces) == bits_of(tensor), name
            values = [np.array(piece, np.float64) for piece in ours.chunks(elements)]
            np.testing.assert_array_equal(np.concatenate([np.empty(0), *values]), values_of(tensor), err_msg=name)
        if tensor.numel():
            memory = (tensor.untyped_storage if hasattr(tensor, "untyped_storage") else tensor.storage)().data_ptr()
            assert storages.setdefault(memory, ours.storage) == ours.storage, name
    assert len(set(storages.values())) == len(storages), "two storages of torch are one to us"


def saved(path, value, **way):
    import torch

    torch.save(value, path, **way)
    return torch.load(path, weights_only=False)  # it was written a moment ago


def views():
    import torch

    base, half = torch.randn(4, 5, 12), torch.randn(6, 7).half()
    return {
        "base": base,
        "views": [base.transpose(0, 2), base[1:3, ::2, 3:], base[:, 2, 5], base.permute(1, 2, 0)],
        "half": (half, half[:, :1].expand(6, 4), half.diagonal(), half.t().bfloat16()),
        "windows": torch.arange(20).unfold(0, 5, 3),
        "scalar": base[-1, -1, -1],
        "empty": torch.empty(3, 0, 2),
    }


def types():
    import torch

    names = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64"
    wide = torch.tensor([0.0, 1.0, 3.0, 100.0])
    eight = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    known = [name for name in (*names.split(), "complex128", *eight) if hasattr(torch, name)]
    return {name: wide.to(getattr(torch, name)) for name in known}


def tied():
    import torch

    model = torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 16, bias=False))
    model[2].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)
    model(torch.arange(16)).square().mean().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "args": argparse.Namespace(lr=1.0)}


def nested():
    import torch

    return collections.OrderedDict(
        log_probs=[torch.randn(n) for n in (3, 0, 5)],
        pair=(torch.tensor(3), {"deep": [{"er": torch.tensor([True])}], 7: torch.ones(2)}),
        parameter=torch.nn.Parameter(torch.randn(2, 2)),
        buffer=torch.nn.Linear(2, 2).state_dict(),
        size=torch.Size([2, 3]),
        kind=torch.bfloat16,
        nothing=None,
    )


def flattened():
    """Return a rank's part of a sharded model as FSDP keeps it: flat parameters, and views of them by name."""
    import torch

    flat = torch.randn(1000).bfloat16()
    state = {f"_fsdp_wrapped_module.layers.{n}._flat_param": flat[n * 250 : (n + 1) * 250] for n in range(4)}
    state["_fsdp_wrapped_module.layers.0.q_proj.weight"] = flat[:200].view(10, 20)
    return {"model": state, "shard_metadata": {"world_size": 4, "rank": 0}}


MADE = {"views": views, "types": types, "tied": tied, "nested": nested, "flattened": flattened}


@with_torch
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", MADE)
def test_zips_of_torch_are_read_equal(name, way, tmp_path):
    check_torch(tmp_path / "t.pt", saved(tmp_path / "t.pt", MADE[name](), **way))


@with_torch
@pytest.mark.parametrize("way", LEGACY, ids=str)
@pytest.mark.parametrize("name", ["views", "tied", "flattened"])
def test_the_old_format_of_torch_is_read_equal(name, way, tmp_path):
    import torch

    if not hasattr(torch.Tensor, "untyped_storage"):
        pytest.skip("torch itself reads this format, from 2.0 on")
    held = MADE[name]()
    held.pop("args", None)  # torch.load(weights_only=True), which reads this format, takes no Namespace
    loaded = saved(tmp_path / "t.pt", held, **way)
    check_torch(tmp_path / "t.pt", loaded)


@with_torch
@pytest.mark.parametrize("alignment", [64, 4096])
def test_other_alignments_of_torch_are_read_equal(alignment, tmp_path):
    import torch

    if not hasattr(getattr(torch.utils, "serialization", None), "config"):
        pytest.skip("this version of torch aligns to 64 bytes")
    save = torch.utils.serialization.config.save
    before = save.storage_alignment
    save.storage_alignment = alignment
    try:
        check_torch(tmp_path / "t.pt", saved(tmp_path / "t.pt", views()))
    finally:
        save.storage_alignment = before


@with_torch
@given(st.data())
def test_any_view_of_torch_is_read_equal(tmp_path_factory, data):
    import torch

    kinds = ["float32", "float16", "bfloat16", "int64", "bool", "float8_e4m3fn"]
    kind = data.draw(st.sampled_from([name for name in kinds if hasattr(torch, name)]))
    shape = data.draw(st.lists(st.integers(0, 5), max_size=4))
    stride = [data.draw(st.integers(0, 7)) for _ in shape]
    offset = data.draw(st.integers(0, 4))
    size = 1 + offset + sum(max(n - 1, 0) * step for n, step in zip(shape, stride, strict=True))
    storage = torch.randn(size + data.draw(st.integers(0, 3))).to(getattr(torch, kind))
    value = {"v": storage.as_strided(shape, stride, offset), "s": [storage[: offset + 1], storage.clone()]}
    path = tmp_path_factory.mktemp("views") / "t.pt"
    check_torch(path, saved(path, value))


@with_torch
@pytest.mark.parametrize("name", ["types", "flattened", "tied"])
def test_safetensors_are_read_equal(name, tmp_path):
    torch = pytest.importorskip("safetensors.torch")

    held = {key: tensor.detach().clone() for key, tensor in leaves(MADE[name]())}
    held.pop("complex128", None)  # of which the format knows nothing
    path = tmp_path / "t.safetensors"
    torch.save_file(held, path, metadata={"format": "pt"})
    theirs = torch.load_file(path)
    assert set(theirs) == set(held)
    archive = read_archive(path)
    for key, tensor in theirs.items():
        ours = archive.tensors[key]
        assert (ours.dtype, ours.shape) == (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        assert b"".join(piece.tobytes() for piece in ours.bits()) == bits_of(tensor), key


def test_safetensors_of_numpy_are_read_equal(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    held = {kind: np.arange(6).astype(kind).reshape(2, 3) for kind in KINDS if "complex" not in kind}
    library.save_file(held, tmp_path / "t.safetensors")
    archive = read_archive(tmp_path / "t.safetensors")
    for name, theirs in library.load_file(tmp_path / "t.safetensors").items():
        np.testing.assert_array_equal(archive.tensors[name].array(), theirs, err_msg=name, strict=True)


# NumPy

KINDS = (
    *("float64", "float32", "float16", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8", "bool", "complex64", "complex128"),
)


def arrays():
    """Return arrays of every type in C and Fortran order, of no dimension, empty, strided and of the other endian."""
    base = np.arange(24).reshape(2, 3, 4)
    found = {}
    for kind in KINDS:
        plain = base.astype(kind)
        found |= {
            f"{kind}_c": plain,
            f"{kind}_fortran": np.asfortranarray(plain),
            f"{kind}_scalar": plain[1, 2, 3],
            f"{kind}_empty": plain[:, :0],
            f"{kind}_strided": plain[:, ::2, ::-1],
            f"{kind}_swapped": plain.astype(plain.dtype.newbyteorder()),
        }
    return found


def check_numpy(path, theirs):
    tensors = read_archive(path).tensors
    for name, array in theirs.items():
        plain = np.ascontiguousarray(array).reshape(array.shape).astype(array.dtype.newbyteorder("="))
        if not array.shape and name not in tensors:
            continue  # single numbers are settings, held to in test_reading_numpy
        ours = tensors[name]
        assert (ours.dtype, ours.shape) == (plain.dtype.name, plain.shape), name
        assert b"".join(piece.tobytes() for piece in ours.bits(5)) == plain.tobytes(), name


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_type_and_layout_of_numpy_is_read_equal(save, tmp_path):
    save(tmp_path / "a.npz", **arrays())
    with np.load(tmp_path / "a.npz") as held:
        check_numpy(tmp_path / "a.npz", dict(held))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_header_of_npy_is_read_equal(version, tmp_path):
    for name, array in arrays().items():
        if array.shape:
            path = tmp_path / f"{name}_{version[0]}.npy"
            with path.open("wb") as file:
                np.lib.format.write_array(file, array, version=version)
            (ours,) = read_archive(path).tensors.values()
            assert np.array_equal(np.load(path), ours.array()), name


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_zip64_is_read_equal(method, tmp_path):
    """Members whose sizes stand in the fields of 64 bits, as archives of more than 4 GiB have them."""
    path = tmp_path / "a.npz"
    held = {"log_probs": np.linspace(-3, 0, 5000), "advantages": np.arange(5.0)}
    with zipfile.ZipFile(path, "w", method, allowZip64=True) as archive:
        for name, array in held.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array)
    check_numpy(path, held)
    assert b"PK\x01\x02" in path.read_bytes()
    starts = [tensor.array().ctypes.data for tensor in read_archive(path).tensors.values()]
    assert all(one != other for one, other in pairwise(starts))
