"""The local run: a Plan carried out on this machine as SageMaker would carry it out."""
