"""Runs edgewise_file_tool, the C++ side of the interchange tests."""

import os
import subprocess


def run_file_tool(*arguments):
    """The completed process; fails the test when the tool is not there."""
    tool = os.environ.get("EDGEWISE_FILE_TOOL")
    assert tool, "set EDGEWISE_FILE_TOOL to the built tests' edgewise_file_tool (ctest does)"
    return subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, timeout=120)
