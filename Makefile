# `make` lists the commands. On a fresh machine `make demo` or `make test` is all it takes: both make the environment in .venv first.

PYTHON ?= python3
TORCH  ?= torch==2.13.0
BIN    := .venv/bin
PIP     = $(BIN)/python -m pip --disable-pip-version-check install
DEMO   := .launch/demo

# Without compiled modules, which the images of some CI systems ask for, each of some thousand processes compiles its own.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-fast test-lowest tests sdk-test s3-tests coverage coverage-all bench measure check format docs generate lock recording dist release env clean

help:  ## List these commands.
	@sed -n 's/^\([a-z0-9-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: env  ## Train a small model here, from all kinds of channels.
	$(BIN)/python -m launcher.demo $(DEMO)/data
	$(BIN)/launch channel_specs/image-classification.yaml --local --data $(DEMO)/data

test: check tests  ## Run every check and test.

test-fast: env  ## Run the tests that start no process; a minute.
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not processes"

# Old packages warn of what is to come. `datasets` needs a later pyarrow than ours.
test-lowest: .venv/lowest/ready  ## Run test-fast's tests with the oldest packages that pyproject.toml permits, on Python 3.10.
	.venv/lowest/bin/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not processes" -W default \
		--ignore tests/entrypoints/torch_data/test_pipelines.py

.venv/lowest/ready: UV = .venv/lowest/bin/uv --quiet --no-config pip
.venv/lowest/ready: requirements.lock pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10) and "Python 3.10 is needed: make test-lowest PYTHON=python3.10")'
	$(PYTHON) -m venv --clear $(@D) && $(@D)/bin/python -m pip install --quiet uv
	$(UV) compile pyproject.toml --extra torch --extra s3 --extra formats --extra plot --resolution lowest-direct --python $(@D) --output-file $(@D)/lowest.txt
	$(UV) install --python $(@D) --no-deps --require-hashes -r requirements.lock
	$(UV) install --python $(@D) -r $(@D)/lowest.txt
	$(UV) install --python $(@D) --no-deps --no-build-isolation --editable .
	@touch $@

tests: env  ## Run every test without the checks.
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# Measuring doubles the time of tests that compute, so CI measures the two halves without effects: from a spec to the request, and
# from bytes to samples.
MEASURED      := launcher/spec launcher/parsing launcher/request launcher/rules entrypoints/sagemaker_channels/formats
MEASURED_BY   := $(addprefix tests/,$(subst sagemaker_channels/,,$(MEASURED))) tests/launcher/importing -k "not (fuzz or corpus or trouble or augmented or peers or by_channel)"
COVERAGE_TEST  = $(BIN)/python -m pytest -q -n 2 --dist loadfile --cov-report=term
coverage: env  ## Measure branch coverage from a spec to the request and from bytes to samples.
	$(COVERAGE_TEST) $(addprefix --cov=,$(MEASURED)) $(MEASURED_BY) --cov-fail-under=90

coverage-all: env  ## Measure branch coverage of everything; takes twice as long as `make test`.
	$(COVERAGE_TEST) --cov=launcher --cov=entrypoints

# Trains with both majors of SageMaker's SDK against moto. They share no environment, and take 2 GB in .sdk and some minutes.
sdk-test: env .sdk/v2/ready .sdk/v3/ready  ## Train with both majors of SageMaker's SDK against moto.
	LAUNCHER_SDK_V2_PYTHON=$(CURDIR)/.sdk/v2/bin/python LAUNCHER_SDK_V3_PYTHON=$(CURDIR)/.sdk/v3/bin/python \
		$(BIN)/python -m pytest -m sdk

.sdk/v2/ready: SDK = . 'sagemaker<3'
.sdk/v3/ready: SDK = '.[sdk]'
.sdk/%/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet --editable $(SDK)
	@touch $@

# Runs the tests of tests/data/s3_tests.txt, out of Ceph's compatibility tests for S3, against the embedded S3 server; some minutes.
S3_TESTS := 8f0ae7b404a3a2fcf7038bf1e6bf29544fe9b6a3
s3-tests: env .s3-tests/$(S3_TESTS)/ready  ## Run Ceph's S3 tests against the local run's S3 server.
	LAUNCHER_S3_TESTS=$(CURDIR)/.s3-tests/$(S3_TESTS) $(BIN)/python -m pytest -m s3_tests --timeout 3600

.s3-tests/%/ready:
	git clone --quiet https://github.com/ceph/s3-tests $(@D)
	git -C $(@D) checkout --quiet $*
	$(PYTHON) -m venv $(@D)/.venv
	$(@D)/.venv/bin/python -m pip --disable-pip-version-check install --quiet boto3 httplib2 isodate lxml munch pytest pytz pyyaml requests
	@touch $@

# Whether the code uses what Python lacks on another system. It takes seconds, since other packages are unknown to it; what it would
# report because of that is not its business.
ELSEWHERE = $(BIN)/mypy --config-file= --python-version 3.10 --follow-imports=skip \
	--disable-error-code=arg-type --disable-error-code=import-untyped --disable-error-code=union-attr --disable-error-code=valid-type
check: env  ## Run ruff, mypy, and the contract of what may import what.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(ELSEWHERE) --cache-dir=.mypy_cache/darwin --platform darwin launcher entrypoints
	$(ELSEWHERE) --cache-dir=.mypy_cache/win32 --platform win32 launcher --exclude launcher/local
	$(BIN)/lint-imports

format: env  ## Fix what ruff can fix.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Warnings are errors: links, anchors and pages that are missing, and pages that no other leads to.
docs: .docs/ready  ## Build the documentation in .docs/site.
	.docs/bin/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env -b html -d .docs/doctrees docs .docs/site

.docs/ready: docs/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make docs PYTHON=python3.12")'
	@$(PYTHON) -m venv --clear .docs
	@.docs/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes -r $<
	@touch $@

env: .venv/ready  ## Make the environment in .venv.

# torch comes first and without hashes: its build differs by machine (CPU, CUDA), and the rest is content with any.
# Python compiles what is imported, a sixth of the modules; to compile all takes a minute.
.venv/ready: requirements.lock pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed: make PYTHON=python3.12")'
	@echo 'Making the environment in .venv. This takes a minute or more.'
	@$(PYTHON) -m venv --clear .venv
	@$(PIP) --no-compile '$(TORCH)'
	@echo 'Installing the packages of requirements.lock'
	@$(PIP) --quiet --no-compile --no-deps --require-hashes -r requirements.lock
	@$(PIP) --quiet --no-deps --no-build-isolation --editable .
	@touch $@

generate: env  ## Update the generated parts of the documentation, the schema and the golden requests.
	$(BIN)/python tests/data/make_docs.py
	$(BIN)/launch --schema > channel_specs/schema.json
	$(BIN)/python -m pytest -q tests/project/test_channel_specs.py -k golden --rewrite-golden

# Pins every package but torch, for every Python and platform at once.
lock:  ## Pin the packages again, in requirements.lock.
	$(PYTHON) -m venv .venv/lock && .venv/lock/bin/python -m pip install --quiet uv
	.venv/lock/bin/uv pip compile pyproject.toml --group dev --group bench --group torch-needs --extra torch --extra s3 --extra formats --universal \
		--python-version 3.10 --generate-hashes --no-emit-package torch --no-annotate --no-header --quiet --output-file requirements.lock
	.venv/lock/bin/uv pip compile pyproject.toml --group docs --universal --python-version 3.11 --generate-hashes --no-annotate \
		--no-header --quiet --output-file docs/requirements.txt

# Installs the wheel from the index's packages, which no test does.
dist:  ## Build sdist and wheel into dist/, check them as an index does, and plan with the wheel.
	$(PYTHON) -m venv --clear .venv/dist && .venv/dist/bin/python -m pip install --quiet build==1.6.1 twine==7.0.0
	rm -rf dist && .venv/dist/bin/python -m build
	.venv/dist/bin/twine check --strict dist/*
	$(PYTHON) -m venv --clear .venv/dist/empty && .venv/dist/empty/bin/python -m pip install --quiet dist/*.whl
	cd .venv/dist/empty && bin/sagemaker-launch --example s3-file > job.yaml && bin/launch job.yaml --dry-run

release:  ## Set the version and its section of CHANGELOG.md: make release VERSION=0.2.0.
	$(PYTHON) .ci/release.py $(VERSION)

# Submits to the stand-in for AWS on a terminal of its own, and writes what a user sees into docs/howto/submit.md and docs/terminal.svg.
recording: env  ## Record the session that docs/howto/submit.md shows.
	PYTHONPATH=tests $(BIN)/python tests/record.py docs/howto/submit.md docs/terminal.svg

# Measures us beside the peers and writes the results into docs/benchmarks.md; takes 4 GB in .bench and .sdk, 5 GB in the temporary folder
# and half an hour. The peers have an environment of their own, since some of them pin what we do not; the SDK's is sdk-test's.
bench: env .bench/ready .sdk/v2/ready  ## Measure reading speed beside other packages; half an hour.
	LAUNCHER_BENCH_PYTHON=$(CURDIR)/.bench/bin/python LAUNCHER_SDK_V2_PYTHON=$(CURDIR)/.sdk/v2/bin/python \
		AWS_COMMAND=$(CURDIR)/.bench/bin/aws $(BIN)/python tests/benchmarks/run.py docs/benchmarks.md

# Packages and programs of ways that are missing are named in their rows.
measure: env  ## Measure every way to read samples, by `launch measure`; half an hour.
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python tests/benchmarks/ways.py docs/benchmarks.md

.bench/ready: tests/benchmarks/peers.txt
	$(PYTHON) -m venv --clear .bench
	.bench/bin/python -m pip --disable-pip-version-check install '$(TORCH)'
	.bench/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r $<
	@touch $@

clean:  ## Remove the environments and everything else that these commands made.
	rm -rf .venv .docs .sdk .s3-tests .bench .launch .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
