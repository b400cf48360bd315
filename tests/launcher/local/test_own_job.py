"""What a script of a local run gets from SageMaker about its own job, by boto3; and that nobody else is answered."""

from __future__ import annotations

import json
from pathlib import Path

from local_jobs import launch, result, write_job

OVERLAY = """\
channels: {train: s3://bucket/train/}
tags: {team: vision}
hyperparameters: {lr: 0.1}
experiment_config: {experiment_name: birds, trial_name: first, run_name: birds-run}
"""
# The calls of load_run in SageMaker's SDK 2 follow those about the job.
SCRIPT = """\
import json, os, time, urllib.error, urllib.request
import boto3
from botocore.exceptions import ClientError

boto3.setup_default_session(region_name=os.environ["AWS_REGION"])
sm, name, arn = boto3.client("sagemaker"), os.environ["TRAINING_JOB_NAME"], os.environ["TRAINING_JOB_ARN"]
seen = sm.describe_training_job(TrainingJobName=name)
out = {"arn": seen["TrainingJobArn"] == arn, "lr": seen["HyperParameters"]["lr"], "status": seen["SecondaryStatus"]}
out["created"] = time.time() - seen["CreationTime"].timestamp() < 60
sm.add_tags(ResourceArn=arn, Tags=[{"Key": "epoch", "Value": "1"}])
sm.delete_tags(ResourceArn=arn, TagKeys=["team"])
out["tags"] = sm.list_tags(ResourceArn=arn)["Tags"]

config = seen["ExperimentConfig"]
component = config["RunName"]
out["run"] = sm.describe_trial_component(TrialComponentName=component)["TrialComponentName"]
for create, words in (
    (sm.create_experiment, {"ExperimentName": config["ExperimentName"]}),
    (sm.create_trial, {"TrialName": config["TrialName"], "ExperimentName": config["ExperimentName"]}),
):
    try:
        create(**words)
    except ClientError as error:
        assert error.response["Error"]["Code"] == "ValidationException" and "already exists" in str(error), error
sm.associate_trial_component(TrialComponentName=component, TrialName=config["TrialName"])
sm.update_trial_component(TrialComponentName=component, Parameters={"lr": {"NumberValue": 0.1}})
out["parameters"] = sm.describe_trial_component(TrialComponentName=component)["Parameters"]
metric = {"MetricName": "loss", "Timestamp": time.time(), "Value": 1.5}
out["metrics"] = boto3.client("sagemaker-metrics").batch_put_metrics(TrialComponentName=component, MetricData=[metric])["Errors"]

def code(do):
    try:
        do()
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["Error"]["Message"]

out["other"] = code(lambda: sm.describe_training_job(TrainingJobName="other"))
out["list"] = code(lambda: sm.list_training_jobs())
stranger = boto3.client("sagemaker", aws_access_key_id="LOCALSTRANGER", aws_secret_access_key="secret")
out["stranger"] = code(lambda: stranger.describe_training_job(TrainingJobName=name))
forger = boto3.client("sagemaker", aws_secret_access_key="wrong", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"])
out["forger"] = code(lambda: forger.describe_training_job(TrainingJobName=name))
request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL_SAGEMAKER"], b"{}", {"X-Amz-Target": "SageMaker.ListTags"})
try:
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
except urllib.error.HTTPError as error:
    out["unsigned"] = json.loads(error.read())["__type"]
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "seen.json"), "w") as file:
    json.dump(out, file)
print("seen " + json.dumps(out))
"""


def test_script_of_local_run_is_answered_about_its_own_job_alone(here: Path) -> None:
    write_job(here, SCRIPT, OVERLAY)
    output = launch(here, "--no-namespaces", "-v")
    [line] = [line for line in output.splitlines() if "| seen " in line]
    seen = json.loads(line.partition("seen ")[2])
    assert seen["arn"] and seen["created"]
    assert (seen["lr"], seen["status"], seen["run"]) == ("0.1", "Training", "birds-run")
    assert seen["tags"] == [{"Key": "epoch", "Value": "1"}]
    assert seen["parameters"] == {"lr": {"NumberValue": 0.1}}
    assert seen["metrics"] == []
    assert seen["other"][0] == "ValidationException"
    assert seen["list"][0] == "UnsupportedOperation"
    assert "a local run does not answer ListTrainingJobs, but only DescribeTrainingJob, ListTags" in seen["list"][1]
    assert (seen["stranger"][0], seen["forger"][0]) == ("InvalidAccessKeyId", "SignatureDoesNotMatch")
    assert seen["unsigned"] == "AccessDenied"
    facts = result(here)["Fidelity"]
    answered = {"Here": "answered from the plan", "InSageMaker": "answered by SageMaker", "Same": False}
    assert facts["sagemaker:DescribeTrainingJob"] == facts["sagemaker:AddTags"] == answered
    assert "differs    sagemaker:ListTags: answered from the plan, not answered by SageMaker" in output
