"""Parquet files, read by pyarrow: each row is one sample, or each record batch."""
