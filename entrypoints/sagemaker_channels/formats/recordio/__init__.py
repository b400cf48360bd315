"""MXNet's RecordIO and the content of its records: bytes, images with labels, and SageMaker's protobuf tensors."""
