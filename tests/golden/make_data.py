# SPDX-License-Identifier: Apache-2.0
"""make_data.py - Parquet files as users of pyarrow, Polars, DuckDB and
fastparquet write them.

    python3 tests/golden/make_data.py        writes tests/golden/data/*.parquet

Every file has the same rows; tests/unit/corpus/test_parquet.c makes them again
by the same rule. Names say how a file was written.
"""
import os

import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
ROWS = 300


def text(i):
    if i % 7 == 3:
        return None
    return f"row {i} " + "é" * (i % 5) + " the ship" * (i % 11 % 4)


def ids(i):
    return None if i % 10 == 9 else [i * 1000 + k for k in range(i % 6)]


def table():
    return pa.table({
        "url": pa.array([f"u{i}" for i in range(ROWS)]),
        "text": pa.array([text(i) for i in range(ROWS)], pa.string()),
        "ids": pa.array([ids(i) for i in range(ROWS)], pa.list_(pa.int32())),
        "wide": pa.array([ids(i) for i in range(ROWS)], pa.list_(pa.int64())),
        "few": pa.array([f"kind {i % 3}" for i in range(ROWS)]),
        "score": pa.array([i / 3 for i in range(ROWS)]),
    })


def write(name, **options):
    options = {"row_group_size": 120, "data_page_size": 600,
               "write_batch_size": 32, **options}
    pq.write_table(table(), os.path.join(HERE, name + ".parquet"), **options)


def write_odd():
    """What a reader may stumble over."""
    path = os.path.join(HERE, "empty_group.parquet")
    rows = table().select(["text", "ids", "wide", "few"])
    with pq.ParquetWriter(path, rows.schema) as writer:
        for first, last in ((0, 100), (100, 100), (100, ROWS)):
            writer.write_table(rows.slice(first, last - first))
    pq.write_table(pa.table({"ids": pa.array([[1, 2], [3, None, 4]])}),
                   os.path.join(HERE, "null_id.parquet"))


def write_others():
    import duckdb
    import fastparquet
    import pandas
    import polars

    rows = table().select(["text", "ids", "wide", "few"])
    place = os.path.join(HERE, "{}.parquet").format
    frame = polars.from_arrow(rows)
    frame.write_parquet(place("polars_zstd"), compression="zstd",
                        row_group_size=120)
    frame.write_parquet(place("polars_snappy"), compression="snappy",
                        data_page_size=600)
    lake = duckdb.connect()
    lake.register("rows", rows)
    for name, how in (("duckdb_v1", "compression snappy, parquet_version v1"),
                      ("duckdb_v2", "compression zstd, parquet_version v2")):
        lake.execute(f"copy rows to '{place(name)}' (format parquet, {how})")
    plain = pandas.DataFrame({
        "text": pandas.Series([text(i) for i in range(ROWS)], dtype=object),
        "few": pandas.Series([f"kind {i % 3}" for i in range(ROWS)],
                             dtype="category")})
    fastparquet.write(place("fastparquet"), plain, compression="GZIP",
                      row_group_offsets=120, object_encoding="utf8")


def main():
    os.makedirs(HERE, exist_ok=True)
    plain = {"use_dictionary": False}
    write("snappy", compression="snappy")
    write("snappy_v2", compression="snappy", data_page_version="2.0",
          write_page_checksum=True)
    write("none_plain", compression="none", **plain)
    write("none_plain_v2", compression="none", data_page_version="2.0", **plain)
    write("gzip", compression="gzip", write_page_checksum=True)
    write("zstd_v2", compression="zstd", data_page_version="2.0")
    write("zstd_plain", compression="zstd", **plain)
    deltas = {"ids.list.element": "DELTA_BINARY_PACKED",
              "wide.list.element": "DELTA_BINARY_PACKED", "url": "PLAIN",
              "score": "PLAIN"}
    write("delta_length", compression="snappy", use_dictionary=False,
          column_encoding={**deltas, "text": "DELTA_LENGTH_BYTE_ARRAY",
                           "few": "DELTA_LENGTH_BYTE_ARRAY"})
    write("delta_bytes_v2", compression="none", use_dictionary=False,
          data_page_version="2.0",
          column_encoding={**deltas, "text": "DELTA_BYTE_ARRAY",
                           "few": "DELTA_BYTE_ARRAY"})
    write("brotli", compression="brotli")
    write_odd()
    write_others()


if __name__ == "__main__":
    main()
