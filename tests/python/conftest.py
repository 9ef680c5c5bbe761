"""Settings of all tests: compiled graphs are made anew, and nothing depends on what an earlier test drew."""

import os

os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")  # its disk cache survives a changed operation

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
