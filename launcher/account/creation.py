"""What the creation of the job depends on: account, region, its name, queue, image and quotas.

A name is free again only if its job is deleted. Registries of ECR in other accounts, AWS's own included, answer only those they
allow. A repository that one of them does not know may only be hidden, so only a missing tag or digest in a repository that answers
is reported.

Service Quotas cannot look up a quota by name, and SageMaker has two thousand. So quota codes, which are the same everywhere, come
from a table (launcher/data/quota_codes.json), and each is asked about alone. A quota that the table lacks, or that running jobs
use up, CreateTrainingJob itself refuses at once and at no cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from launcher.account.check import Subject
from launcher.aws.ecr import EcrImage, ecr_image, read_config, read_manifest
from launcher.aws.session import AwsError
from launcher.errors import Problem, SpecPath, did_you_mean, first_names
from launcher.jobs.batch_queue import KIND
from launcher.jobs.lookup import name_taken
from launcher.request.instance_types import instance_type as facts_of
from launcher.request.view import Draft, machine_sets
from launcher.spec.names import place_of_name
from launcher.spec.own_keys import Queue
from launcher.tables import read_data

USES = ("training job usage", "spot training job usage", "training warm pool usage")
# Quotas of training jobs whatever their type.
_OF_JOBS = {
    "Longest run time for a training job": "L-33A961FD",
    "Size of EBS volume for a training job instance": "L-C5A266EB",
    "Maximum number of instances per training job": "L-622CFD70",
    "Maximum number of instances per spot training job": "L-DB62C864",
    "Number of instances across all training jobs": "L-00C91CB5",
    "Number of instances across all spot training jobs": "L-93958082",
}
_KEEP_ALIVE: SpecPath = ("resource_config", "keep_alive_period_in_seconds")
# Elastic Fabric Adapters: developer guide, train-vpc, and EC2's list of types with EFA whose training images use it.
_EFA = re.compile(r"ml\.(p3dn|p4de?|p5(e|en)?\.48xlarge|p6[a-z]*-[a-z0-9]+|trn1n?\.32xlarge|trn2[a-z]*)(\..*)?")


def account(subject: Subject) -> Iterator[Problem]:
    """Which account and region is the job for?"""
    subject.note((), f"account {subject.own_account}, region {subject.account.region}")
    yield from ()


def job_name(subject: Subject) -> Iterator[Problem]:
    """Is the job's name free?"""
    name = subject.draft.request["TrainingJobName"]
    job = subject.find("sagemaker", "describe_training_job", TrainingJobName=name)
    if job is not None:
        path, location = place_of_name(name, subject.draft.spec)
        message = name_taken(job, subject.account.region, is_in_spec=bool(path))
        yield Problem(path, message, "name-taken", location=location)


def training_image(subject: Subject) -> EcrImage | None:
    """Return the job's own image, if SageMaker pulls it from ECR and not from a registry in the VPC."""
    config = "AlgorithmSpecification.TrainingImageConfig"
    in_vpc = subject.draft.get(f"{config}.TrainingRepositoryAccessMode") == "Vpc"
    return None if in_vpc else ecr_image(subject.draft.image)


def images(subject: Subject) -> list[tuple[SpecPath, EcrImage]]:
    """Return the training image, if it is in ECR."""
    image = training_image(subject)
    return [(("image",), image)] if image else []


def image(subject: Subject, path: SpecPath, image: EcrImage) -> Iterator[Problem]:
    """Does the image in ECR exist?"""
    here = subject.account.region
    if image.region != here:
        if subject.draft.spec.region is None:  # else the rule image-region reports it
            message = f"is in {image.region}, but the job runs in {here}; use an image in {here}"
            yield Problem(path, message, "image-elsewhere")
        return
    try:
        subject.ask("ecr", "describe_images", **image.in_repository, imageIds=[image.identity])
    except AwsError as error:
        if error.code == "RepositoryNotFoundException" and image.account == subject.own_account:
            known = subject.try_to_ask("ecr", "describe_repositories").get("repositories", ())
            hint = did_you_mean(image.repository, [each["repositoryName"] for each in known]) or "; push the image"
            wrong = f"the registry has no repository {image.repository!r} in {here}{hint}"
        elif error.code != "ImageNotFoundException":
            raise
        else:
            answer = subject.try_to_ask("ecr", "list_images", **image.in_repository, filter={"tagStatus": "TAGGED"})
            tags = [each["imageTag"] for each in answer.get("imageIds", ()) if "imageTag" in each]
            wanted, has = image.digest or image.tag, f"; it has {', '.join(tags[:5])}" if tags else "; push the image"
            wrong = f"the repository {image.repository!r} has no image {wanted!r}{did_you_mean(wanted, tags) or has}"
        yield Problem(path, wrong, "image-missing")


def image_architecture(subject: Subject, path: SpecPath, image: EcrImage) -> Iterator[Problem]:
    """Is the image built for the processors of the instances?"""
    names = {each.instance_type for choice in alternatives(subject.draft) for each in choice}
    needed = {name: facts for name in sorted(names) if (facts := facts_of(name).architecture)}
    if image.region != subject.account.region or not needed:
        return
    built = _architectures(subject, image)
    for name, architecture in needed.items():
        if built and architecture not in built:
            message = (
                f"is built for {first_names(sorted(built))}, but {name} is {architecture}, where its programs end with 'exec format"
                f" error'; build it with docker build --platform linux/{architecture}"
            )
            yield Problem(path, message, "image-architecture")
            return


def _architectures(subject: Subject, image: EcrImage) -> set[str]:
    """Return what an image has been built for, such as amd64; empty if that is not known. Raises AwsError."""
    manifest = read_manifest(subject.try_to_ask, image)
    if "manifests" in manifest:
        return {each.get("platform", {}).get("architecture", "unknown") for each in manifest["manifests"]} - {"unknown"}
    return {str(read_config(subject.try_to_ask, image, manifest).get("architecture", ""))} - {""}


def queues(subject: Subject) -> list[tuple[SpecPath, Queue]]:
    named = subject.draft.spec.queue
    return [] if named is None else [(("queue",), named)]


def queue(subject: Subject, path: SpecPath, queue: Queue) -> Iterator[Problem]:
    """Does the queue exist, and does it accept training jobs?"""
    name, where = str(queue.name), (*path, "name")
    answer = subject.ask("batch", "describe_job_queues", jobQueues=[name])
    if not answer["jobQueues"]:
        all_queues = subject.try_to_ask("batch", "describe_job_queues").get("jobQueues", ())
        known = [each["jobQueueName"] for each in all_queues if each.get("jobQueueType") == KIND]
        hint = did_you_mean(name, known) or f"; it has {', '.join(known[:5]) or 'none for training jobs'}"
        yield Problem(where, f"{subject.account.region} has no queue {name!r}{hint}", "queue-missing")
        return
    found = answer["jobQueues"][0]
    if (kind := found.get("jobQueueType")) != KIND:
        yield Problem(where, f"is a queue of the type {kind}; name one of the type {KIND}", "queue-type")
    elif found["state"] != "ENABLED" or found.get("status", "VALID") not in ("VALID", "UPDATING"):
        state = f"is {found['state']} and {found.get('status', 'VALID')}, so it accepts no job"
        yield Problem(where, f"{state}; ask its owner to enable it, or name another queue", "queue-disabled")


class Machines(NamedTuple):
    """Instances of one type, with the path in the spec that asks for them."""

    path: SpecPath
    instance_type: str
    instances: int
    plans: tuple[str, ...] = ()  # the ARNs of the training plans that reserve them; they count towards no quota then

    @property
    def has_efa(self) -> bool:
        """Whether the instances communicate through Elastic Fabric Adapters."""
        return _EFA.fullmatch(self.instance_type) is not None

    @property
    def addresses(self) -> int:
        """The free addresses that a subnet needs: 2 per instance, 5 with EFA."""
        return self.instances * (5 if self.has_efa else 2)


def alternatives(draft: Draft) -> list[list[Machines]]:
    """Return the sets of machines that the job may run on: one of them."""
    found = []
    for choice in machine_sets(draft.get("ResourceConfig") or {}):
        machines = []
        for path, each in choice:
            name, count = each.get("InstanceType"), each.get("InstanceCount")
            plans = each.get("TrainingPlanArns") or [arn for arn in (each.get("TrainingPlanArn"),) if arn]
            if isinstance(name, str) and isinstance(count, int):
                machines.append(Machines(("resource_config", *path, "instance_type"), name, count, tuple(plans)))
        found += [machines] * bool(machines)
    return found


class Wanted(NamedTuple):
    """What the job needs of one quota: its name in Service Quotas and in CreateTrainingJob's refusal, and an amount."""

    path: SpecPath
    quota: str
    amount: int
    unit: str = ""
    remedy: str = "use another type"
    code: str = "quota-exceeded"


def wanted_quotas(subject: Subject) -> list[tuple[SpecPath, Wanted]]:
    """Return what the job needs of the quotas whose code is known, each with the path that needs it first.

    AWS checks the quota of each type in a list of preferences, and refuses the job if one of them is too small. Without the quota
    of a warm pool the job runs, but its machines are not kept (developer guide, train-warm-pools-resource-limits).
    """
    draft = subject.draft
    kind, choices = "spot training job" if draft.is_spot else "training job", alternatives(draft)
    machines = [each for choice in choices for each in choice if not each.plans]
    found = [Wanted(each.path, f"{each.instance_type} for {kind} usage", each.instances) for each in machines]
    for each in machines if draft.get("ResourceConfig.KeepAlivePeriodInSeconds") else ():
        pool, remedy = f"{each.instance_type} for training warm pool usage", "delete the key, since none is kept warm"
        found.append(Wanted(_KEEP_ALIVE, pool, each.instances, remedy=remedy, code="warm-pool-quota"))
    if seconds := draft.get("StoppingCondition.MaxRuntimeInSeconds"):
        path: SpecPath = ("stopping_condition", "max_runtime_in_seconds")
        found.append(Wanted(path, "Longest run time for a training job", seconds, " s", "ask for less"))
    has_volume = any(facts_of(each.instance_type).storage != "NVMe" for choice in choices for each in choice)
    if has_volume and (size := draft.get("ResourceConfig.VolumeSizeInGB")):
        path = ("resource_config", "volume_size_in_gb")
        found.append(Wanted(path, "Size of EBS volume for a training job instance", size, " GB", "ask for less"))
    sizes = (sum(each.instances for each in choice if not each.plans) for choice in choices)
    if instances := max(sizes, default=0):
        has_count = draft.get("ResourceConfig.InstanceCount") is not None
        path = ("resource_config", "instance_count") if has_count else ("resource_config",)
        names = (f"Maximum number of instances per {kind}", f"Number of instances across all {kind}s")
        found += [Wanted(path, name, instances, remedy="ask for less") for name in names]
    sums: dict[str, Wanted] = {}
    for one in found:
        before = sums.get(one.quota)
        sums[one.quota] = one if before is None else before._replace(amount=before.amount + one.amount)
    return [(each.path, each) for each in sums.values() if each.quota in codes()]


def quotas(subject: Subject, path: SpecPath, wanted: Wanted) -> Iterator[Problem]:
    """Do the account's quotas suffice for the job?"""
    _, name, amount, unit, remedy, code = wanted
    asked = {"ServiceCode": "sagemaker", "QuotaCode": codes()[name]}
    quota = (subject.find("service-quotas", "get_service_quota", **asked) or {}).get("Quota", {})
    # AWS may have the code for another quota: the table is not from AWS, and a wrong value would refuse a job.
    if quota.get("QuotaName") == name and (value := int(quota["Value"])) < amount:
        short = f"the quota {name!r} is {value:,}{unit} in {subject.account.region}"
        more = f"request more in the Service Quotas console, or {remedy}"
        yield Problem(path, f"{short}, and the job needs {amount:,}{unit}; {more}", code)


@cache
def codes() -> dict[str, str]:
    return _OF_JOBS | {
        f"{instance_type} for {use}": f"L-{code}"
        for instance_type, known in read_data("quota_codes")["codes"].items()
        for use, code in zip(USES, known, strict=True)
        if code is not None
    }
