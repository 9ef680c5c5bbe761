"""The real TensorBoard reads what our writer writes (the values are in tests/io/file_tool.cpp)."""

import math

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from file_tool import run_file_tool


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    done = run_file_tool("tensorboard-write", folder)
    assert done.returncode == 0, done.stderr
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def test_tags(events):
    assert set(events.Tags()["scalars"]) == {"train/loss", "square", "not a number", "large step"}


def test_values_and_steps(events):
    # The second file says that the run restarted at step 200: what the first said about later steps is gone.
    loss = events.Scalars("train/loss")
    assert [e.step for e in loss] == list(range(201))
    assert [e.value for e in loss[:200]] == pytest.approx([1 / (1 + step) for step in range(200)], rel=1e-7)
    assert loss[200].value == -1
    assert [e.value for e in events.Scalars("square")] == [step * step for step in range(200)]


def test_wall_times_rise(events):
    times = [e.wall_time for e in events.Scalars("train/loss")]
    assert times == sorted(times) and times[0] > 1.6e9


def test_unusual_values(events):
    assert math.isnan(events.Scalars("not a number")[0].value)
