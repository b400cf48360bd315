"""A stand-in for AWS for tests and recordings: an HTTP server that speaks AWS's wire protocols, in front of moto.

    with aws_stand_in.running() as aws:            # a process of its own
        aws.client("s3").create_bucket(Bucket="data")
        subprocess.run([...], env={**os.environ, **aws.environ})

By hand: `python -m aws_stand_in --port 0`, from `tests`. Every request that is not named below goes to moto as it is.

It answers itself, as the AWS API reference and the developer guides describe it (each module names its pages):

- sagemaker: training jobs (create, describe, list, stop, delete, tags), which a test advances by hand or by a script;
- batch: queues of training jobs and their service jobs, whose attempts a test starts and ends;
- logs: DescribeLogStreams, GetLogEvents, FilterLogEvents of `/aws/sagemaker/TrainingJobs`, with late and throttled answers;
- iam: SimulatePrincipalPolicy, from the policies that moto holds; service-quotas; fsx: DescribeFileSystems; pricing: GetProducts;
- s3: buckets of other regions (301) and other accounts (403); ecr: images of other accounts; kms: keys of other accounts (denied);
- ssm: StartSession and TerminateSession for hosts of training jobs, without a stream to connect to;
- sts: GetCallerIdentity, for keys that moto has not issued; cloudtrail: LookupEvents.

It fails on command as AWS can (`faults`), and records every call (`calls`).

Tests call `StandIn`'s methods; over HTTP the same orders are POST /_stand_in/<order> with JSON: `reset`, `advance`, `calls`,
`calls/clear`, `faults`, `faults/clear`, `rate`, `sagemaker/script`, `sagemaker/jobs/NAME`, `sagemaker/jobs/NAME/step`,
`sagemaker/requests`, `logs/append`, `logs/delay`, `logs/empty_every`, `s3/bucket`, `s3/objects`, `service-quotas/quota`,
`cloudtrail/job`, `fsx/file_system`, `batch/queue`, `batch/jobs/NAME`, `ecr/image`, `ecr/config`, `pricing/price`,
`pricing/product`. `running` shows the parameters of each.

It differs from AWS: it checks no signature, and no permission unless a test denies one; it has one account, whose logs, quotas and
images are the same in all regions; a job does nothing, reads no data and costs nothing; it validates single members (type, bounds,
enumeration, pattern), not members against each other; quotas and prices are invented, and no quota is enforced; listing and
describing are consistent immediately, while AWS's can lag. Policies are evaluated by a subset, described in `iam`.
"""

from aws_stand_in.running import StandIn, running

__all__ = ["StandIn", "running"]
