"""Our decoder and TensorBoard's own read the same from files that TensorBoard's own writer wrote."""

import math
import random
import warnings
from collections import defaultdict

import numpy as np
import pytest

from ppo_doctor.readers import read
from tests.readers.conftest import gather

pytestmark = pytest.mark.filterwarnings("ignore")  # TensorBoard's own
pytest.importorskip("tensorboard", reason="the reference implementation is not installed")

TAGS = ["loss", "train/approx_kl", "损失/ü", "a b (c)", "x" * 200, "charts/episodic_return", ".", "A"]
NUMBERS = [0.0, -0.0, 1.0, 0.1, 3e-4, 1e-45, -3.4e38, math.nan, math.inf, -math.inf, 2.0**24 + 1]


@pytest.fixture(scope="module")
def board():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        from tensorboard.util import tensor_util

    class Board:
        event, summary, value = Event, Summary, Summary.Value
        tensor = staticmethod(tensor_util.make_tensor_proto)

        def write(self, folder, events):
            writer = EventFileWriter(str(folder))
            for event in events:
                writer.add_event(event)
            writer.close()
            (path,) = folder.glob("*tfevents*")
            return path

        def scalars(self, path):
            accumulator = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
            accumulator.Reload()
            found = {t: [(e.step, e.value) for e in accumulator.Scalars(t)] for t in accumulator.Tags()["scalars"]}
            for tag in accumulator.Tags()["tensors"]:
                found[tag] = [
                    (e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in accumulator.Tensors(tag)
                ]
            return found

    return Board()


def ours(path):
    series = defaultdict(list)
    container, items = read(path)
    assert container == "tfevents"
    reading = gather(container, items)
    assert reading.notes == []
    for record in reading.records:
        for tag, value in record.items():
            if tag not in ("step", "wall_time"):
                series[tag].append((int(record["step"]), value))
    return series


def same(first, second):
    return np.array_equal(
        np.array(first, dtype=np.float64).astype(np.float32),
        np.array(second, dtype=np.float64).astype(np.float32),
        equal_nan=True,
    )


def agree(path, board):
    found, expected = ours(path), board.scalars(path)
    assert found.keys() == expected.keys()
    for tag, points in expected.items():
        ordered = sorted(points, key=lambda point: point[0])  # both keep the order of equal steps
        assert [step for step, _ in found[tag]] == [step for step, _ in ordered]
        assert same([value for _, value in found[tag]], [value for _, value in ordered]), tag


@pytest.mark.parametrize("seed", range(4))
def test_scalars_as_simple_values(tmp_path, board, seed):
    numbers = random.Random(seed)
    events, step = [], 0
    for _ in range(400):
        step += numbers.choice([0, 1, 1, 128, 10_000])
        value = numbers.choice([*NUMBERS, numbers.gauss(0, 1)])
        held = board.value(tag=numbers.choice(TAGS), simple_value=value)
        events.append(board.event(wall_time=numbers.random(), step=step, summary=board.summary(value=[held])))
    agree(board.write(tmp_path, events), board)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint8", "bool"])
def test_scalars_as_tensors(tmp_path, board, dtype):
    from tensorboard.plugins.scalar.metadata import create_summary_metadata

    events = []
    for step, number in enumerate([0, 1, 2, 100, 1, 0]):
        held = board.value(tag="a", tensor=board.tensor(np.array(number).astype(dtype)))
        if step == 0:
            held.metadata.CopyFrom(create_summary_metadata("", ""))
        events.append(board.event(step=step, summary=board.summary(value=[held])))
    agree(board.write(tmp_path, events), board)


def test_the_settings_that_the_hparams_plugin_holds(tmp_path, board):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    held = HParamsPluginData()
    started = held.session_start_info.hparams
    started["lr"].number_value = 0.0003
    started["n_epochs"].number_value = 10
    started["algorithm"].string_value = "PPO"
    started["anneal"].bool_value = True
    value = board.value(tag="_hparams_/session_start_info")
    value.metadata.plugin_data.plugin_name = "hparams"
    value.metadata.plugin_data.content = held.SerializeToString()
    path = board.write(tmp_path, [board.event(summary=board.summary(value=[value]))])
    (config,) = gather(*read(path)).configs
    assert config.values == {"lr": 0.0003, "n_epochs": 10, "algorithm": "PPO", "anneal": True}


def test_the_table_of_settings_that_torch_s_writer_writes(tmp_path, board):
    """As torch.utils.tensorboard.SummaryWriter.add_text builds it."""
    value = board.value(tag="hyperparameters/text_summary")
    value.metadata.plugin_data.plugin_name = "text"
    value.tensor.dtype = 7
    value.tensor.string_val.append(b"|param|value|\n|-|-|\n|learning_rate|0.0003|\n|anneal_lr|True|")
    value.tensor.tensor_shape.dim.add().size = 1
    path = board.write(tmp_path, [board.event(summary=board.summary(value=[value]))])
    (config,) = gather(*read(path)).configs
    assert config.values == {"learning_rate": 0.0003, "anneal_lr": True}


def test_after_a_flipped_bit_we_read_on_where_tensorboard_stops(tmp_path, board):
    events = [
        board.event(step=s, summary=board.summary(value=[board.value(tag="a", simple_value=s)])) for s in range(100)
    ]
    path = board.write(tmp_path, events)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    assert len(board.scalars(path)["a"]) < 60
    reading = gather(*read(path))
    assert len(reading.records) == 99
    assert reading.skipped == 1
