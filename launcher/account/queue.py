"""The AWS Batch queue that the job is submitted to."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.account.check import Subject
from launcher.errors import Problem, SpecPath, did_you_mean
from launcher.jobs.batch_queue import KIND
from launcher.spec.own_keys import Queue


def queues(subject: Subject) -> list[tuple[SpecPath, Queue]]:
    """Return the queue, if the spec names one."""
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
