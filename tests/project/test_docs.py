"""The documentation is true: what is generated is current, every YAML block plans, every code and option is named."""

from __future__ import annotations

import inspect
import json
import re
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import click
import jsonschema
import pytest
import yaml

import launcher
import make_docs
import sagemaker_channels
from launcher import bundled, cli
from launcher.reference import schema
from launcher.reference.problem_codes import account_codes, all_codes, explanation
from launcher.rules import RULES, find_problems
from launcher.rules.codes import offline_codes, without_ignored
from launcher.rules.examples import details, examples, laid_over_base
from make_reference import members

ROOT = Path(launcher.__file__).parents[1]
PAGES = {page: (ROOT / page).read_text(encoding="utf-8") for page in make_docs.PAGES}
HOWTO = [page for page in PAGES if page.startswith("docs/howto/")]
TEXT = "\n".join(PAGES.values())
EXAMPLES = examples()


@pytest.mark.parametrize("page", make_docs.PAGES)
def test_generated_parts_are_current(page: str) -> None:
    assert make_docs.updated(PAGES[page]) == PAGES[page], "make generate"


def test_schema_is_current() -> None:
    kept = (ROOT / "channel_specs/schema.json").read_text(encoding="utf-8")
    assert json.loads(kept) == schema.schema(), "make generate"


@pytest.fixture(scope="module")
def editor() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema.schema())


@pytest.mark.parametrize("name", bundled.spec_names())
def test_editors_accept_the_bundled_specs(name: str, editor: jsonschema.Draft202012Validator) -> None:
    editor.validate(yaml.safe_load(bundled.spec_path(name).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_nam": "x"},
        {"channels": {"train": {"source": "EBS"}}},
        {"channels": {"train": {"s3_uri": "s3://bkt/", "input_mode": "Fastfile"}}},
        {"resource_config": {"instance_type": "ml.m5.xlarg"}},
        {"role_arn": "nobody"},
    ],
)
def test_editors_refuse_what_the_parser_refuses(wrong: dict[str, Any], editor: jsonschema.Draft202012Validator) -> None:
    with pytest.raises(jsonschema.ValidationError):
        editor.validate(wrong)


@pytest.mark.parametrize("pages", [["README.md"], ["docs/reference/spec.md", *HOWTO]], ids=["readme", "docs"])
def test_every_yaml_block_plans(pages: list[str], tmp_path: Path) -> None:
    """The first is a whole spec, job.yaml; another one extends it, or is added to it."""
    blocks = [block for page in pages for block in re.findall(r"```yaml\n(.*?)```", PAGES[page], re.DOTALL)]
    first, *others = filter(plans, blocks)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    if "requirements:" in first:
        (tmp_path / "src/requirements.txt").touch()
    (tmp_path / "job.yaml").write_text(first)
    # Its image's end of patch is judged by the day of the table, not by today's.
    assert launcher.plan(tmp_path / "job.yaml", ignore=("image-out-of-patch",)).warnings == ()
    day = json.loads((ROOT / "launcher/data/image_support.json").read_text())["date"]
    assert find_problems(launcher.load(tmp_path / "job.yaml"), today=date.fromisoformat(day)) == []
    for number, block in enumerate(others):
        job = tmp_path / f"job-{number}.yaml"
        job.write_text(block if "extends:" in block else f"{first}{block}")
        assert launcher.plan(job).request["RoleArn"]


def plans(block: str) -> bool:
    """Return whether a block is a spec: not a comment alone, a request, a workflow or a configuration of pre-commit."""
    return not {"TrainingJobName", "jobs", "repos"} & set(yaml.safe_load(block) or ["jobs"])


@pytest.mark.parametrize("module", [launcher, sagemaker_channels], ids=lambda module: module.__name__)
def test_every_public_name_and_method_has_a_docstring(module: ModuleType) -> None:
    """Their pages derive from it. Tests of the tables ask for the docstrings of rules, account checks and commands."""
    public = {name: getattr(module, name) for name in module.__all__}
    generated = [name for name, value in public.items() if (value.__doc__ or f"{name}(").startswith(f"{name}(")]
    assert generated == [], "a class of data without a docstring has its signature as one"
    classes = {name: value for name, value in public.items() if inspect.isclass(value)}
    assert [(name, call) for name, value in classes.items() for call, text in members(value) if not text] == []


def test_every_code_is_documented() -> None:
    used = {*offline_codes()}
    # The local run's S3 server has encodings of such names.
    files = [file for file in (ROOT / "launcher").rglob("*.py") if "local" not in file.parts]
    sources = [file.read_text(encoding="utf-8") for file in files]
    written = set(re.findall(r'"((?:yaml|aws|unknown|wrong|duplicate|invalid|code)-[a-z-]+)"', "\n".join(sources)))
    assert written <= used | {f"aws-{bound}" for bound in ("min", "max")}
    pages = "".join(make_docs.with_site_parts(text) for page, text in PAGES.items() if page.endswith("-codes.md"))
    assert [code for code in all_codes() if f"`{code}`" not in pages] == []


@pytest.mark.parametrize("code", [code for code in EXAMPLES if code not in {rule.code for rule in RULES}])
def test_wrong_example_of_a_code_without_a_rule_has_it_and_the_right_one_lacks_it(code: str) -> None:
    for example, is_wrong in zip(EXAMPLES[code], (True, False), strict=True):
        try:
            spec = launcher.parse_spec(laid_over_base(example))
            problems = find_problems(spec) + without_ignored([], spec, ())
        except launcher.SpecError as error:
            problems = list(error.problems)
        assert [problem.code for problem in problems] == [code] * is_wrong, example
    assert details(code) in (explanation(code) or "")


def test_unknown_value_names_the_option_that_accepts_it() -> None:
    (problem,) = find_problems(launcher.parse_spec(laid_over_base(EXAMPLES["aws-enum"][0])))
    assert "--ignore aws-enum" in problem.message


def test_explanation_of_an_account_code_names_the_option_that_suppresses_it() -> None:
    for code in account_codes():
        assert f"--ignore {code}" in (explanation(code) or "")


def test_every_option_is_documented() -> None:
    commands = [cli.cli, *make_docs.all_commands().values()]
    parameters = [each for command in commands for each in command.params]
    options = [option for each in parameters if isinstance(each, click.Option) for option in each.opts]
    assert [option for option in options if option not in TEXT] == []


@pytest.mark.parametrize("page", [*make_docs.OUTSIDE, "CHANGELOG.md", "SECURITY.md"])
def test_links_exist(page: str) -> None:
    """Of the pages outside of the site; `make docs` checks those of the site. Files, and the headings that links name."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\(([^)#: ]*)(?:#([^)]+))?\)", text):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), target
        assert not heading or heading in anchors(file.read_text(encoding="utf-8")), f"{target}#{heading}"


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    """The modules, folders and tests that the text names; those of the library also by their place in it."""
    text, library = PAGES[page], ROOT / "entrypoints/sagemaker_channels"
    named = re.findall(r"`((?:launcher|entrypoints|channel_specs|tests)/[\w./-]*)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []
    inside = "|".join(folder.name for folder in library.iterdir() if folder.is_dir())
    assert [path for path in re.findall(rf"`((?:{inside})/(?:\w+\.py)?)`", text) if not (library / path).exists()] == []
    tests = re.findall(r"`(?:tests/)?(test_[\w*]+\.py)`", text)
    assert [name for name in tests if not any((ROOT / "tests").rglob(name))] == []


def anchors(text: str) -> set[str]:
    """Return the addresses of a page's headings: lower case, without punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_picture_shows_beginning_of_recorded_session() -> None:
    texts = ElementTree.parse(ROOT / "docs/terminal.svg").getroot().iter("{http://www.w3.org/2000/svg}text")
    _, *lines = ("".join((text.text or "").split()) for text in texts)
    session = re.findall(r"```console\n(.*?)```", PAGES["docs/howto/submit.md"], re.DOTALL)[0]
    assert len(lines) > 20
    assert "".join(session.split()).startswith("".join(lines)), "make recording"
