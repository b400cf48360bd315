"""`launch diff SPEC NAME`: the differences between a spec and an earlier job."""

from __future__ import annotations

from launcher.commands import options
from launcher.commands.jobs import is_local
from launcher.console import counted, print_line, say
from launcher.errors import dotted
from launcher.jobs.lookup import describe, tags_of
from launcher.local.runs import local_run
from launcher.request.differences import as_text, differences, ran_request, shown_value
from launcher.spec.aws_model import shapes


@options.command("diff", "diff job.yaml digits-1")
@options.spec_argument
@options.job_argument
@options.secrets_option
@options.spec_options
@options.json_option
def diff(spec: str, name: str, show_secrets: bool, reading: options.SpecOptions, as_json: bool) -> None:
    """Show the differences between a spec and an earlier job.

    The request of SPEC is compared with that of the training job NAME, member by member: `-` is the job's value, `+` the spec's.
    The job's environment and hyperparameters named like secrets (token, key, password) are shown as ***, unless you pass
    --show-secrets. NAME can be that of a local run. The exit code is 0 also if there are differences.
    """
    plan = reading.plan(spec)
    if is_local(name, local=False, where=options.AccountOptions(None, None)):
        job = local_run(name)["Request"]
        tags, described = job.get("Tags", []), {*plan.request}
    else:
        account = options.open_account(plan.spec.region, plan.spec.profile)
        job = describe(account, name)
        tags = tags_of(account, job, lambda text: say(f"warning: {text}; they are not compared", "yellow"))
        described = {*shapes()["DescribeTrainingJobResponse"]["members"], *(["Tags"] if tags is not None else [])}
    ran, shown_ran = ran_request(job, tags, show_secrets=show_secrets)
    asked = {member: value for member, value in plan.request.items() if member in described - {"TrainingJobName"}}
    # The values are compared, and shown as the spec writes them; possible secrets of the job as ***.
    shown_asked = asked if show_secrets else plan.masked_request()
    found = [
        (path, shown_value(path, ran, shown_ran), shown_value(path, asked, shown_asked))
        for path in differences(ran, asked)
    ]
    if as_json:
        options.print_json([{"path": dotted(path), "job": before, "plan": after} for path, before, after in found])
        return
    for path, before, after in found:
        print_line(f"{dotted(path)}:")
        if before is not None:
            print_line(f"  - {as_text(before)}", "red")
        if after is not None:
            print_line(f"  + {as_text(after)}", "green")
    count = counted(len(found), "difference") if found else "no differences"
    say(f"{count} between {spec} and {name}")
