"""The spec that tests submit."""

SPEC = """\
training_job_name: digits-1
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1
role_arn: arn:aws:iam::123456789012:role/trainer
region: us-east-1
code: {directory: src, entry_point: train.py}
hyperparameters: {epochs: 5}
environment: {TOKEN: "${TOKEN:-hidden-value}"}
resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 10}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://mine/out/}
channels:
  train: s3://mine/train/
"""
