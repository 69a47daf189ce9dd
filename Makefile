# The door for people: `make setup`, `make train`, `make test`. What is behind each target is one script or one command.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?=
VENV := .venv
MPCA := $(VENV)/bin/mpca
PYTEST := $(VENV)/bin/python -m pytest
# Two files of tests at a time, in their usual order: those of a folder share what its fixtures have started.
TWO := -n 2 --dist loadfile --no-loadscope-reorder
JAR := mpca/jars/mpca-spark_2.12.jar
JVM_SOURCES := jvm/pom.xml $(shell find jvm/src -type f 2>/dev/null)

# Some machines forbid .pyc files: then each agent compiles torch and mpca anew, which takes longer than importing them.
unexport PYTHONDONTWRITEBYTECODE

# Every test is in one of these three; tests/test_tools.py holds that.
LOCAL := not hadoop and not docker and not root and not slow
HADOOP := not docker and not root and (hadoop or slow)
DOCKER := docker or root

.PHONY: help setup train test test-hadoop test-docker test-docker-full test-gpu quick junit lint format clean

help:
	@echo "make setup    .venv with everything in it, and the jar; a JDK too when root on Debian"
	@echo "make train    train the digits on this machine with four agents; ARGS='--set method.name=sync' changes it"
	@echo "make test     JUnit, and the tests that need no root, docker or Hadoop, but for the long ones"
	@echo "make test-hadoop       those with Hadoop's daemons, which are downloaded, and all long ones"
	@echo "make test-docker       those that need root: clusters of containers, damaged networks, bare Debians"
	@echo "make test-docker-full  more of them, which CI leaves out: 20 minutes and 25 GB of disk"
	@echo "make test-gpu          those of agents on a GPU, which needs one and no \`make setup\`: a few minutes"
	@echo "make quick    the tests that start no Spark and no Hadoop, some minutes"
	@echo "make lint     ruff, mypy, the format of the Java, and the rules of this project"
	@echo "make clean    remove what was built here (not your runs)"

# A stamp or a jar that is newer than its sources is left alone, so that a second `make setup` prints one line.
setup: $(VENV)/.installed $(JAR)
	@echo "ready: make train, or $(MPCA) --help"

$(VENV)/.installed: pyproject.toml tools/setup-python
	@PYTHON="$(PYTHON)" tools/setup-python $(VENV)
	@touch $@

$(JAR): $(JVM_SOURCES) tools/setup-jdk
	@tools/setup-jdk
	@echo "building $(JAR)"
	@cd jvm && ./mvnw -q -B -DskipTests package
	@touch $@

train: setup
	@$(MPCA) train conf/digits.toml $(ARGS)

test: setup junit
	$(PYTEST) $(TWO) -m "$(LOCAL)"

test-hadoop: setup
	$(PYTEST) -m "$(HADOOP)"

test-docker: setup
	$(PYTEST) -s -m "$(DOCKER)"

# pytest collects these files only when they are named
test-docker-full: setup
	$(PYTEST) -s tests/docker/full_faults.py tests/docker/full_locality.py tests/docker/full_environment.py

# with .venv where there is one, or any Python that has torch, numpy, msgpack, cloudpickle and pytest
test-gpu:
	@$(or $(PYTHON),$(wildcard $(VENV)/bin/python),python3) -m tests.gpu

quick: setup
	$(PYTEST) $(TWO) -m "not spark and not hadoop and not docker and not slow and not root"

junit: $(JAR)
	cd jvm && ./mvnw -q -B test

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@tools/setup-jdk
	cd jvm && ./mvnw -q -B spotless:check
	$(VENV)/bin/python tools/check_real_tests.py
	$(PYTEST) -q tests/test_layers.py

format: $(VENV)/.installed
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	@tools/setup-jdk
	cd jvm && ./mvnw -q -B spotless:apply

clean:
	rm -rf $(VENV) $(JAR) jvm/target dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find mpca tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
