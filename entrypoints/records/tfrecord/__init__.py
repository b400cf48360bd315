"""TFRecord and what is stored in its records: bytes, and `tf.train.Example`."""
