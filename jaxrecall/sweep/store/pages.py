"""Reads the headers of the pages of a Parquet file. Unlike the footer, they cannot be
wrong about the number and the size of the values: Arrow reads the pages by them.

A header is a struct in the compact form of Thrift.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO


def check_pages(chunk: Any, source: BinaryIO) -> int:
    """Returns the number of bytes of a column chunk after decompression.

    The pages are visited as Arrow visits them. Raises ValueError if they contain more
    values than the footer says, or an exception of another type if a header is damaged.
    """
    start = chunk.data_page_offset
    source.seek(min(start, chunk.dictionary_page_offset or start))
    n_values = n_bytes = 0
    while n_values < chunk.num_values:
        header = _read_struct(source)
        n_bytes += header[2]
        # a data page of version 1 or 2, or none
        page = header.get(5) or header.get(8) or {1: 0}
        n_values += page[1]
        source.seek(header[3], os.SEEK_CUR)
    if n_values > chunk.num_values:
        raise ValueError("a page has more values than the footer says")
    return n_bytes


def _read_struct(source: BinaryIO) -> dict[int, Any]:
    """Returns the numbers and the structs in a struct, by the ids of their fields."""
    fields, name = {}, 0
    while head := source.read(1)[0]:
        step, kind = divmod(head, 16)
        name += step
        match step and kind:
            case 1 | 2:  # a bool, which is in the kind
                pass
            case 5 | 6:
                fields[name] = _read_number(source) // 2  # the last bit is a sign
            case 8:
                source.seek(_read_number(source), os.SEEK_CUR)
            case 12:
                fields[name] = _read_struct(source)
            case _:
                raise ValueError("the header of a page is damaged")
    return fields


def _read_number(source: BinaryIO) -> int:
    byte = source.read(1)[0]
    return byte if byte < 128 else byte - 128 + 128 * _read_number(source)
