"""`launch import` of what is no plain request: scripts, jobs of the account, templates, pipelines and shell files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import launcher
from aws_stand_in import StandIn
from launcher.errors import InputError
from launcher.importing.imports import import_file
from launcher.rules.examples import laid_over_base
from launching import launch

ARN = "arn:aws:iam::123456789012:role/Trainer"
REQUEST: dict[str, Any] = {
    "TrainingJobName": "digits",
    "AlgorithmSpecification": {
        "TrainingImage": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/x:1",
        "TrainingInputMode": "File",
    },
    "RoleArn": ARN,
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}
SCRIPT = """\
import json, multiprocessing, os, socket, subprocess, sys
import boto3

account = boto3.client("sts", endpoint_url="https://sts.eu-west-1.amazonaws.com").get_caller_identity()["Account"]
role = boto3.client("iam").get_role(RoleName="Trainer")["Role"]["Arn"]
bucket = f"sagemaker-eu-west-1-{account}"
s3 = boto3.Session(profile_name="team").client("s3", aws_access_key_id="own", aws_secret_access_key="own")
s3.create_bucket(Bucket=bucket)
s3.put_object(Bucket=bucket, Key="code.tar.gz", Body=b"code")
request = json.loads(sys.argv[1]) | {"RoleArn": role, "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/out"}}
request["Environment"] = {"HF_TOKEN": os.environ["HF_TOKEN"], "HOME_OF": "${HOME}"}
client = boto3.client("sagemaker")
for name in (each.replace("ACCOUNT", account) for each in sys.argv[2:]):
    client.create_training_job(**request | {"TrainingJobName": name})
    client.get_waiter("training_job_completed_or_stopped").wait(TrainingJobName=name)
tried = {
    "connect": lambda: socket.create_connection(("192.0.2.1", 80), 1),
    "look up": lambda: socket.getaddrinfo("sagemaker.eu-west-1.amazonaws.com", 443),
    "program": lambda: subprocess.run(["true"]),
    "shell": lambda: os.system("true"),
    "process": lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
}
refused = []
for what, do in tried.items():
    try:
        do()
    except PermissionError:
        refused.append(what)
open("seen.json", "w").write(json.dumps([refused, dict(os.environ)]))
client.create_model(ModelName="x", ExecutionRoleArn=role)
"""
SECRETS = {"HF_TOKEN": "hf_of-the-user", "AWS_SECRET_ACCESS_KEY": "real-secret", "AWS_SESSION_TOKEN": "real-session"}


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config").write_text("[profile team]\nregion = eu-west-1\nrole_arn = arn:x\nsource_profile = team\n")
    environ = {**SECRETS, "AWS_REGION": "eu-west-1", "HTTPS_PROXY": "http://192.0.2.1:1", "AWS_CONFIG_FILE": "config"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def test_script_becomes_the_spec_of_the_request_that_it_sends(script: Path) -> None:
    name = "digits-2026-01-31-23-59-59-123"  # as SDK v2 makes one
    done = launch("import", "train.py", "--", json.dumps(REQUEST), name)
    assert done.returncode == 0, done.stderr
    assert "train.py got made-up answers: nothing reached AWS" in done.stderr
    Path("job.yaml").write_text(done.stdout)
    spec = launcher.load("job.yaml", environ={"ACCOUNT_ID": "123456789012", "HF_TOKEN": "hf_1"})
    assert (spec.base_name, spec.region, "request:" in done.stdout) == ("digits", "eu-west-1", False)
    assert launcher.plan(spec, name=name).request == {
        **REQUEST,
        "TrainingJobName": name,
        "OutputDataConfig": {"S3OutputPath": "s3://sagemaker-eu-west-1-123456789012/out"},
        "Environment": {"HF_TOKEN": "hf_1", "HOME_OF": "${HOME}"},
    }
    assert done.stdout.splitlines()[-2:] == [
        "# ${ACCOUNT_ID}: the number of the account",
        "# ${HF_TOKEN}: the environment variable HF_TOKEN",
    ]
    assert "train.py ended with exit code 1 after" in done.stderr  # create_model is not answered


def test_name_of_a_job_of_a_script_may_hold_the_account(script: Path) -> None:
    done = launch("import", "train.py", "--", json.dumps(REQUEST), "digits-ACCOUNT")
    assert "training_job_name: 'digits-${ACCOUNT_ID}'" in done.stdout.splitlines(), done.stderr


def test_script_reaches_nothing_and_has_no_credentials(script: Path) -> None:
    launch("import", "train.py", "--", json.dumps(REQUEST), "digits")
    refused, environ = json.loads(Path("seen.json").read_text())
    assert refused == ["connect", "look up", "program", "shell", "process"]
    assert "HTTPS_PROXY" not in environ
    assert not set(SECRETS.values()) & set(environ.values())


def test_script_with_several_jobs_asks_which(script: Path) -> None:
    arguments = (json.dumps(REQUEST), "first", "second")
    done = launch("import", "train.py", "--", *arguments)
    assert (done.returncode, "has 2 requests: 1 first, 2 second; choose one" in done.stderr) == (2, True)
    done = launch("import", "train.py", "--pick", "2", "--", *arguments)
    assert "training_job_name: second" in done.stdout.splitlines()


def test_script_without_a_job_is_refused_with_its_exit_code(script: Path) -> None:
    script.write_text("import sys\nsys.exit(7)\n")
    done = launch("import", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "train.py: created no training job, and ended with exit code 7; " in done.stderr
    assert "--region" not in done.stderr
    script.write_text("import sagemaker\n!pip install x\n")
    assert "train.py: created no training job, and ended with exit code 1; " in launch("import", "train.py").stderr


def test_script_without_a_region_is_answered_by_the_option_for_it(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION")
    script.write_text("import boto3\nboto3.client('sagemaker')\n")
    assert "no region is configured, and --region sets one; --python names" in launch("import", "train.py").stderr


def test_job_of_the_account_is_imported_under_a_base_name(aws: StandIn, tmp_path: Path) -> None:
    parameters = {
        "sagemaker_submit_directory": '"s3://bucket/digits/sourcedir.tar.gz"',
        "sagemaker_program": '"fit.py"',
    }
    algorithm = REQUEST["AlgorithmSpecification"] | {
        "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/x:1"
    }
    request = REQUEST | {
        "TrainingJobName": "digits-20260131235959",  # as SDK v3 makes one
        "AlgorithmSpecification": algorithm,
        "Environment": {"API_KEY": "hush-hush"},
        "HyperParameters": parameters,
        "Tags": [{"Key": "team", "Value": "vision"}],
    }
    aws.client("sagemaker").create_training_job(**request)
    done = launch("import", "digits-20260131235959")
    assert done.returncode == 0, done.stderr
    assert "hush-hush" not in done.stdout
    assert done.stdout.startswith("# yaml-language-server: $schema=")
    assert "aws s3 cp s3://bucket/digits/sourcedir.tar.gz - | tar xz -C src" in done.stdout.splitlines()[1]
    (tmp_path / "job.yaml").write_text(done.stdout)
    spec = launcher.load(tmp_path / "job.yaml", environ={"API_KEY": "hush-hush"})
    assert (spec.base_name, spec.code and (spec.code.directory, spec.code.entry_point)) == ("digits", ("src", "fit.py"))
    spec = spec.model_copy(update={"code": None})
    del request["HyperParameters"]
    assert launcher.plan(spec, name=str(request["TrainingJobName"])).request == request | {
        # What moto's answer adds:
        "OutputDataConfig": {**REQUEST["OutputDataConfig"], "CompressionType": "GZIP", "KmsKeyId": ""},
        **dict.fromkeys(
            ("EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining", "EnableNetworkIsolation"), False
        ),
    }
    assert aws.writing_calls() == ["sagemaker:CreateTrainingJob"]


@pytest.mark.parametrize(
    "keys",
    [
        "entry_point: train.py, requirements: requirements.txt, argument_style: json",
        "command: [torchrun, train.py, 'a b'], arguments: --name=value, s3_uri: s3://mine/elsewhere",
        "entry_point: entrypoints/read_channels.py",
    ],
)
def test_code_of_a_job_that_launch_has_submitted_is_code_again(
    keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("src").mkdir()
    Path("src/train.py").touch()
    Path("src/requirements.txt").touch()
    kind = "s3_data_type: AugmentedManifestFile, attribute_names: [x], record_wrapper_type: RecordIO"
    more = f"more: {{s3_uri: s3://mine/a.manifest, input_mode: Pipe, {kind}}}"
    overlay = f"code: {{directory: src, {keys}}}\nchannels: {{train: s3://mine/train/, {more}}}"
    spec = launcher.parse_spec(laid_over_base(overlay), "job.yaml")
    request = launcher.plan(spec, name="digits").request
    Path("request.json").write_text(json.dumps({**request, "Tags": [{"Key": "git-commit", "Value": "1f"}]}))
    found = import_file("request.json")
    assert found.notes[-1].startswith("Get the code: ")
    again = launcher.parse_spec(found.as_yaml(), "job.yaml")
    assert again.code == spec.code
    assert again.tags is None and again.environment is None
    assert launcher.plan(again, name="digits").request == request


STATE = {"Type": "Task", "Resource": "arn:aws:states:::sagemaker:createTrainingJob.sync", "Parameters": REQUEST}
DEFINITION = json.dumps({"StartAt": "Train", "States": {"Train": STATE}})


def changed(**members: Any) -> dict[str, Any]:
    return REQUEST | members


@pytest.mark.parametrize(
    ("data", "environ"),
    [
        (
            STATE | {"Parameters": {"RoleArn.$": "$.role", **{k: v for k, v in REQUEST.items() if k != "RoleArn"}}},
            {"ROLE": ARN},
        ),
        (
            {
                "Steps": [
                    {
                        "Name": "Train",
                        "Type": "Training",
                        "Arguments": changed(
                            RoleArn={"Get": "Parameters.RoleToUse"},
                            ResourceConfig=REQUEST["ResourceConfig"] | {"InstanceCount": {"Get": "Parameters.Count"}},
                            OutputDataConfig={
                                "S3OutputPath": {
                                    "Std:Join": {"On": "/", "Values": ["s3:/", {"Get": "Execution.Bucket"}, "out/"]}
                                }
                            },
                        ),
                    }
                ]
            },
            {"ROLE_TO_USE": ARN, "COUNT": "2", "EXECUTION_BUCKET": "bucket"},
        ),
        (
            {
                "Resources": {
                    "Machine": {
                        "Properties": {
                            "DefinitionString": {
                                "Fn::Join": [
                                    "",
                                    [
                                        *DEFINITION.replace(ARN, "|").split("|")[:1],
                                        {"Ref": "Trainer"},
                                        *DEFINITION.split(ARN)[1:],
                                    ],
                                ]
                            }
                        }
                    }
                }
            },
            {"TRAINER": ARN},
        ),
        ({"resource": {"definition": DEFINITION}}, {}),
    ],
    ids=["state", "pipeline", "template", "definition"],
)
def test_unknown_value_becomes_a_listed_variable(data: Any, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps(data))
    text = import_file(tmp_path / "data.json").as_yaml()
    (tmp_path / "job.yaml").write_text(text)
    assert launcher.plan(launcher.load(tmp_path / "job.yaml", environ=environ)).request == REQUEST
    listed = {line.partition("}")[0].removeprefix("# ${") for line in text.splitlines() if line.startswith("# ${")}
    assert listed == set(environ)
    assert "request:" not in text.splitlines()


def test_short_forms_of_a_template_are_read(tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text(
        "Resources:\n  Machine:\n    Type: AWS::StepFunctions::StateMachine\n    Properties:\n      RoleArn: !GetAtt Own.Arn\n"
        "      Definition:\n        States:\n          Train:\n            Parameters:\n"
        "              RoleArn: !GetAtt [Trainer, Arn]\n              TrainingJobName: digits\n"
        "              AlgorithmSpecification:\n                TrainingInputMode: File\n"
        "                TrainingImage: !Sub '${AWS::AccountId}.dkr.ecr.eu-west-1.amazonaws.com/x:1'\n"
        "              OutputDataConfig: {S3OutputPath: !Sub 's3://${Bucket}/out/'}\n"
        "              ResourceConfig: {InstanceType: ml.m5.large, InstanceCount: !Ref Count, VolumeSizeInGB: 30}\n"
        "              StoppingCondition: {MaxRuntimeInSeconds: 3600}\n"
        "              VpcConfig: !Ref Network\n"
    )
    text = import_file(tmp_path / "template.yaml").as_yaml()
    (tmp_path / "job.yaml").write_text(text)
    environ = {"AWS_ACCOUNT_ID": "123456789012", "BUCKET": "bucket", "COUNT": "2", "TRAINER_ARN": ARN}
    assert launcher.plan(launcher.load(tmp_path / "job.yaml", environ=environ)).request == REQUEST
    assert text.startswith("# Left out, since it is unknown as a whole: VpcConfig (Network)\n")


def test_commands_of_the_aws_cli_are_read(tmp_path: Path) -> None:
    (tmp_path / "algorithm.json").write_text(json.dumps(REQUEST["AlgorithmSpecification"]))
    (tmp_path / "train.sh").write_text(
        "#!/bin/bash\nset -e\nNAME=digits  # the job\naws s3 ls s3://bucket\n"
        'aws sagemaker create-training-job --region eu-west-1 --training-job-name "$NAME" \\\n'
        "  --algorithm-specification file://algorithm.json --role-arn $ROLE \\\n"
        "  --output-data-config 'S3OutputPath=s3://bucket/out/' --environment A=1,B='$HOME' \\\n"
        '  --hyper-parameters \'{"a": "\'"$(date)"\'"}\' --vpc-config Subnets=[subnet-1,subnet-2],SecurityGroupIds=sg-1,sg-2 \\\n'
        "  --resource-config InstanceType=ml.m5.large,InstanceCount=2,VolumeSizeInGB=30 \\\n"
        "  --tags Key=team,Value=vision Key=run,Value=1 --no-enable-network-isolation \\\n"
        "  --stopping-condition MaxRuntimeInSeconds=3600 && echo done\n"
    )
    (tmp_path / "job.yaml").write_text(import_file(tmp_path / "train.sh").as_yaml())
    spec = launcher.load(tmp_path / "job.yaml", environ={"ROLE": ARN, "DATE": "today"})
    assert spec.region == "eu-west-1"
    assert launcher.plan(spec).request == REQUEST | {
        "Environment": {"A": "1", "B": "$HOME"},
        "HyperParameters": {"a": "today"},
        "VpcConfig": {"Subnets": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1", "sg-2"]},
        "Tags": [{"Key": "team", "Value": "vision"}, {"Key": "run", "Value": "1"}],
        "EnableNetworkIsolation": False,
    }


def test_commands_within_quotes_and_backquotes_are_unknown_values(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(
        'ID="$(aws sts get-caller-identity --query "Account" --output text)"\n'
        "aws sagemaker create-training-job --training-job-name a --role-arn arn:aws:iam::$ID:role/r \\\n"
        "  --algorithm-specification TrainingImage=x,TrainingInputMode=File --tags Key=on,Value=`date`\n"
    )
    found = import_file(tmp_path / "train.sh")
    assert (found.spec["tags"], len(found.variables)) == ({"on": "${DATE}"}, 2)
    assert re.fullmatch(r"arn:aws:iam::\$\{\w+\}:role/r", found.spec["role_arn"])


@pytest.mark.parametrize("end", ["$(date +%s)", "`date +%Y`-`date +%m`", "$TIME", "$(date)-$RANDOM"])
def test_time_that_a_shell_appends_to_a_name_is_left_to_the_next_submission(end: str, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(
        f"TIME=$(date -u +%Y%m%d)\naws sagemaker create-training-job --training-job-name digits-{end} --role-arn $ROLE"
        " --algorithm-specification TrainingImage=x,TrainingInputMode=File"
    )
    found = import_file(tmp_path / "train.sh")
    assert (found.spec["base_name"], "training_job_name" in found.spec) == ("digits", False)
    assert found.variables.keys() == {"ROLE"}


def test_file_of_an_option_that_does_not_exist_is_named_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "request.json").touch()
    (tmp_path / "train.sh").write_text("aws sagemaker create-training-job --cli-input-json file://reqest.json\n")
    with pytest.raises(
        InputError, match=r"train\.sh: --cli-input-json: \S+/reqest\.json: .*; did you mean request\.json"
    ):
        import_file(tmp_path / "train.sh")


@pytest.mark.parametrize("tags", ["Key=[a}", "Key=a}b,Value=c", "Key=[a"])
def test_wrong_shorthand_is_refused(tmp_path: Path, tags: str) -> None:
    (tmp_path / "train.sh").write_text(f"aws sagemaker create-training-job --tags '{tags}'\n")
    with pytest.raises(InputError, match=r"--tags: cannot be read at .*; write it as JSON"):
        import_file(tmp_path / "train.sh")
