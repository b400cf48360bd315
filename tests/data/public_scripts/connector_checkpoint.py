"""The S3 connector's checkpoints, saved and loaded without a local file."""

import torch
from s3torchconnector import S3Checkpoint

CHECKPOINT_URI = "s3://bucket/checkpoints/"
REGION = "us-east-1"
checkpoint = S3Checkpoint(region=REGION)

model = torch.nn.Linear(6, 2)
with checkpoint.writer(CHECKPOINT_URI + "epoch0.ckpt") as writer:
    torch.save(model.state_dict(), writer)
with checkpoint.reader(CHECKPOINT_URI + "epoch0.ckpt") as reader:
    state_dict = torch.load(reader)
other = torch.nn.Linear(6, 2)
other.load_state_dict(state_dict)
print("connector_checkpoint", torch.equal(model.weight, other.weight))
