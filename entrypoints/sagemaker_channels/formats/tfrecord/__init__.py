"""TFRecord and the content of its records: bytes, and `tf.train.Example`."""
