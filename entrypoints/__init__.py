"""The end of the wire that runs in the training container: what SageMaker put under /opt/ml, turned back into samples."""
