"""A stand-in for AWS for tests and recordings: an HTTP server that speaks AWS's wire protocols, in front of a real moto server.

    with aws_stand_in.running() as aws:            # two processes: this package's server, and moto's behind it
        aws.client("s3").create_bucket(Bucket="data")
        subprocess.run([...], env={**os.environ, **aws.environ})

By hand: `python -m aws_stand_in --port 0`, from `tests`. Every request that is not named below goes to moto byte for byte.

It answers itself, as the AWS API reference and the developer guides describe it (each module names its pages):

- sagemaker: training jobs (create, describe, list, stop, tags), whose life a test moves on by hand or by a script;
- logs: DescribeLogStreams, GetLogEvents, FilterLogEvents of `/aws/sagemaker/TrainingJobs`, with late and throttled answers;
- iam: SimulatePrincipalPolicy, from the policies that moto holds; service-quotas; fsx: DescribeFileSystems; pricing: GetProducts;
- s3: buckets of other regions (301) and of other people (403); ecr: images of other accounts; kms: keys of other accounts (denied).

And it does on command what AWS does on a bad day (`faults`), and keeps a record of every call (`calls`).

Tests order by `StandIn`'s methods; over HTTP the same orders are POST /_stand_in/<order> with JSON: `reset`, `advance`, `calls`,
`calls/clear`, `faults`, `faults/clear`, `rate`, `sagemaker/script`, `sagemaker/jobs/NAME`, `sagemaker/jobs/NAME/step`,
`sagemaker/requests`, `logs/append`, `logs/delay`, `logs/empty_every`, `s3/bucket`, `s3/objects`, `service-quotas/quota`,
`fsx/file_system`, `ecr/image`, `pricing/price`, `pricing/product`. `running` shows what each one takes.

Where it differs from AWS: nobody's signature or permission is checked, unless a test says what is denied; one account, and job
names are unique over all regions; a job does nothing, reads no data and costs nothing; validation is that of single members
(type, bounds, enumeration, pattern), not of members against each other; quotas and prices are numbers made up, and no quota is
enforced; listing and describing are consistent at once, where AWS's can lag. Policies are judged by a subset, named in `iam`.
"""

from aws_stand_in.running import StandIn, running

__all__ = ["StandIn", "running"]
