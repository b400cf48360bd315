"""MXNet's RecordIO and what is stored in its records: bytes, images with labels, and SageMaker's protobuf tensors."""
