"""CRC-32C (Castagnoli) of bytes, as snapshots state it, by numpy.

A CRC that starts at 0 is linear over the bits of what it reads, and zeros before the data do not change it. So the data are
cut into rows of one length, all rows are read at once, and their CRCs are put together: crc(a b) = shift(crc(a)) ^ crc(b),
where shift reads as many zeros as b is long.
"""

from __future__ import annotations

import numpy as np

__all__ = ["crc32c"]

_POLYNOMIAL = 0x82F63B78


def _byte_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


_TABLE = _byte_table()


def _read(state: np.ndarray, byte) -> np.ndarray:
    return _TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)


def crc32c(data: bytes) -> int:
    """
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    given = np.frombuffer(data, np.uint8)
    if given.size < 4:
        state = np.uint32(0xFFFFFFFF)
        for byte in given:
            state = _read(state, byte)
        return int(state) ^ 0xFFFFFFFF
    width = max(4, int(given.size**0.5))
    rows = -(-given.size // width)
    bytes_of = np.zeros(rows * width, np.uint8)
    bytes_of[-given.size:] = given
    bytes_of[-given.size:][:4] ^= 0xFF  # as a CRC that starts at all ones
    table = bytes_of.reshape(rows, width)
    state = np.zeros(rows, np.uint32)
    for column in range(width):
        state = _read(state, table[:, column])
    # What every byte of a state becomes when `width` zeros are read.
    shifted = (np.arange(256, dtype=np.uint32)[None, :] << np.array([[0], [8], [16], [24]], np.uint32)).astype(np.uint32)
    for _ in range(width):
        shifted = _read(shifted, 0)
    lists = shifted.tolist()
    whole = 0
    for row in state.tolist():
        whole = (lists[0][whole & 255] ^ lists[1][whole >> 8 & 255] ^ lists[2][whole >> 16 & 255] ^ lists[3][whole >> 24]) ^ row
    return whole ^ 0xFFFFFFFF
