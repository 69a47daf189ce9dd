# The door for people: `make setup`, `make train`, `make test`. What is behind each target is one script or one command.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?=
LOCK ?= requirements.lock
VENV := .venv
MPCA := $(VENV)/bin/mpca
PYTEST := $(VENV)/bin/python -m pytest
# For what runs on a machine that was not set up.
ANY_PYTHON = $(or $(PYTHON),$(wildcard $(VENV)/bin/python),python3)
# Two files of tests at a time, in their usual order: those of a folder share what its fixtures have started.
TWO := -n 2 --dist loadfile --no-loadscope-reorder
JARS := mpca/jars/mpca-spark_2.12.jar mpca/jars/mpca-spark_2.13.jar
JVM_SOURCES := jvm/pom.xml $(shell find jvm/src -type f 2>/dev/null)

# Some machines forbid .pyc files: then each agent compiles torch and mpca anew, which takes longer than importing them.
unexport PYTHONDONTWRITEBYTECODE

# Every test is in one of these four; tests/test_tools.py holds that.
LOCAL := not hadoop and not docker and not root and not slow and not browser
HADOOP := not docker and not root and not browser and (hadoop or slow)
DOCKER := not browser and (docker or root)
BROWSER := browser

.PHONY: help setup train test test-hadoop test-hadoop-full test-docker test-docker-full test-secure test-browser test-spark4 test-gpu quick junit lint format clean test-yarn

help:
	@echo "make setup    .venv with everything in it, and the jars; a JDK too when root on Debian"
	@echo "make train    train the digits on this machine with four agents; ARGS='--set method.name=sync' changes it"
	@echo "make test     JUnit, and the tests that need no root, docker, Hadoop or browser, but for the long ones"
	@echo "make test-hadoop       those with Hadoop's daemons, which are downloaded, and all long ones"
	@echo "make test-hadoop-full  faults of HDFS, which CI leaves out: ten minutes"
	@echo "make test-docker       those that need root: clusters of containers, damaged networks, bare Debians"
	@echo "make test-docker-full  more of them, which CI leaves out: 30 minutes and 25 GB of disk"
	@echo "make test-secure       those with Kerberos, and more of them, which CI leaves out: two hours"
	@echo "make test-yarn         two ResourceManagers, other schedulers, labels, which CI leaves out: fifteen minutes"
	@echo "make test-browser      those of reports in Debian's Chromium, half a minute"
	@echo "make test-spark4       those with pyspark 4 alone, which test-hadoop has too: a few minutes"
	@echo "make test-gpu          those of agents on a GPU, which needs one and no \`make setup\`: a few minutes"
	@echo "make quick    the tests that start no Spark and no Hadoop, but for the long ones: two minutes"
	@echo "make lint     ruff, mypy, the format of the Java, and the rules of this project"
	@echo "make test-examples    each script of examples/ on executors of this machine, which CI leaves out: ten minutes"
	@echo "make bench    all benches into one JSON below benchmarks/, beside the last committed one: 75 minutes on a quiet machine;"
	@echo "              make bench SHORT=1 leaves most of them out and ends in fourteen minutes;"
	@echo "              make bench GPU=1 has those on a GPU, in a Python with torch, click, rich and psutil, without \`make setup\`"
	@echo "make soak HOURS=2     a run on the cluster of containers with a fault every two minutes, and what grows; SEED=7 repeats one"
	@echo "make twins MINUTES=20  three pairs of runs on executors of this machine, one of each with a fault a minute: whether they learn"
	@echo "              the same from as many updates; an hour"
	@echo "make classes  an archive of Java classes in .venv: sessions on this machine start in half the time; tests make it themselves"
	@echo "make docs     the documentation site, into site/; a dead link fails"
	@echo "make lock     requirements.lock anew, with the newest versions that pyproject.toml allows"
	@echo "make audit    known vulnerabilities of what requirements.lock names"
	@echo "make sbom     what is installed in .venv, as CycloneDX, into sbom.json"
	@echo "make clean    remove what was built here (not your runs)"

# A stamp or a jar that is newer than its sources is left alone, so that a second `make setup` prints one line.
setup: $(VENV)/.installed $(JARS)
	@echo "ready: make train, or $(MPCA) --help"

$(VENV)/.installed: pyproject.toml requirements.lock tools/setup-python
	@PYTHON="$(PYTHON)" LOCK="$(LOCK)" tools/setup-python $(VENV)
	@touch $@

$(JARS): $(JVM_SOURCES) tools/setup-jdk
	@tools/setup-jdk
	@echo "building $@"
	@cd jvm && ./mvnw -q -B -DskipTests $(if $(findstring 2.13,$@),-Pspark4) package
	@touch $@
mpca/jars/mpca-spark_2.13.jar: | mpca/jars/mpca-spark_2.12.jar  # both are built in the same folder

# Java classes as the tests' many JVMs want them: they start with half of the CPU time. Half a minute, once.
.PHONY: classes
classes: setup
	@$(VENV)/bin/python tools/class_archive.py

train: setup
	@$(MPCA) train conf/digits.toml $(ARGS)

# JUnit mostly waits, for a minute; it says nothing unless a test fails.
test: classes
	@$(MAKE) --no-print-directory -j2 junit local

.PHONY: local
local: setup
	$(PYTEST) $(TWO) -m "$(LOCAL)"

# pytest collects this file only when it is named
.PHONY: test-examples
test-examples: classes
	$(PYTEST) tests/spark/all_examples.py

# The machine with the GPU was not set up.
.PHONY: bench-python
bench-python:
	@$(ANY_PYTHON) -c 'import click, cloudpickle, msgpack, numpy, psutil, rich, torch' || \
	  { echo "make bench: install that for $(ANY_PYTHON), or name another Python by PYTHON=/path/to/python" >&2; exit 2; }

# A second call goes on where the first was interrupted. HDFS and YARN are those of HADOOP_CONF_DIR; shaped links need root.
.PHONY: bench
bench: $(if $(GPU),bench-python,classes)
	@$(if $(GPU),$(ANY_PYTHON),$(VENV)/bin/python) -m mpca.cli.bench.suite $(if $(SHORT),--short) $(if $(GPU),--gpu)

test-hadoop: classes
	$(PYTEST) -m "$(HADOOP)"

# pytest collects this file only when it is named
test-hadoop-full: classes
	$(PYTEST) -s tests/hadoop/full_faults.py

test-docker: classes
	$(PYTEST) -s -m "$(DOCKER)"

# pytest collects these files only when they are named
test-docker-full: classes
	$(PYTEST) -s tests/docker/full_faults.py tests/docker/full_locality.py tests/docker/full_environment.py tests/docker/full_realm.py

# needs root, docker and 8 GiB, as test-docker does; Ctrl-C ends it with the table so far
.PHONY: soak
soak: setup
	@PYTHONPATH=docker $(VENV)/bin/python -m tests.docker.soak $(HOURS) $(SEED)

.PHONY: twins
twins: classes
	@$(VENV)/bin/python -m tests.spark.twins $(MINUTES) $(SEED)

# pytest collects the other files only when they are named; each has a cluster of its own, and full_tenants.py needs root
test-secure: classes
	$(PYTEST) -s tests/hadoop/test_secure.py tests/hadoop/full_secure.py tests/hadoop/full_doctor.py tests/hadoop/full_tokens.py \
	  tests/hadoop/full_long_tokens.py tests/hadoop/full_identities.py tests/hadoop/full_tenants.py tests/hadoop/full_story.py

# nor this one
test-yarn: classes
	$(PYTEST) -s tests/hadoop/full_yarn.py

test-browser: setup
	$(PYTEST) -m "$(BROWSER)"

# in an environment of their own, which takes seconds: pyspark 4 before the packages of .venv
test-spark4: setup
	$(PYTEST) tests/hadoop/test_spark4.py

# with .venv where there is one, or any Python that has torch, numpy, msgpack, cloudpickle and pytest
test-gpu:
	@$(ANY_PYTHON) -m tests.gpu

quick: setup
	$(PYTEST) $(TWO) -m "not long and not spark and not hadoop and not docker and not slow and not root and not browser"

# with Spark 4 only what touches Spark: the rest is the same byte code
junit: $(JARS)
	cd jvm && ./mvnw -q -B test
	cd jvm && ./mvnw -q -B -Pspark4 -Dtest=YieldContextTest test

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@tools/setup-jdk
	cd jvm && ./mvnw -q -B spotless:check
	$(VENV)/bin/python tools/check_real_tests.py
	$(PYTEST) -q tests/test_layers.py

# the variable: its theme warns of a successor at each build
.PHONY: docs
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict

# Holds for Python 3.10 to 3.13 on Linux. Names no index: each has the same files, or is refused by their hashes.
.PHONY: lock
lock:
	$(VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --extra dev --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" pyproject.toml --output-file requirements.lock

# Two programs that nothing else needs; uv keeps them in its cache.
.PHONY: audit sbom
audit: $(VENV)/.installed
	@$(VENV)/bin/python tools/audit.py $(VENV)/bin/uv requirements.lock

sbom: $(VENV)/.installed
	@$(VENV)/bin/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment $(VENV)/bin/python \
	  --pyproject pyproject.toml --output-reproducible --output-file sbom.json
	@echo "written: sbom.json"

format: $(VENV)/.installed
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	@tools/setup-jdk
	cd jvm && ./mvnw -q -B spotless:apply

clean:
	rm -rf $(VENV) $(JARS) jvm/target dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find mpca tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf site
