# Every target does its own set-up; the second time that costs about a second.

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-unit test-python test-rust test-e2e test-recipes test-cluster fuzz coverage example check fix bench clean

RUN_TESTS = node_modules/.bin/node --disable-warning=ExperimentalWarning scripts/test/main.ts $(if $(FILE),--file '$(FILE)') $(if $(NAME),--name '$(NAME)')

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install packages, build the agent and the warden, fetch a guest kernel
	@scripts/setup.sh

demo: setup ## boot one VM, warm it, fork it, branch a running child
	@./forkd demo

test: ## every check and every test that guards a behaviour, once
	@scripts/setup.sh --tests
	@$(RUN_TESTS) check rust python unit e2e

test-all: ## the same, and what proves it again at length: recipes, examples, long runs, Kubernetes
	@scripts/setup.sh --tests
	@$(RUN_TESTS) --all $(if $(AGAIN),--again) check rust python unit e2e recipes cluster

test-unit: setup ## tests that need no VM; FILE=part of a path
	@$(RUN_TESTS) unit

test-python: setup ## tests of the Python SDK that need no VM
	@$(RUN_TESTS) python

test-rust: setup ## tests of the agent and the warden
	@$(RUN_TESTS) rust

test-e2e: ## tests on real VMs; FILE=branch runs one file
	@scripts/setup.sh --tests
	@$(RUN_TESTS) e2e

test-recipes: ## tests of the recipes and the examples, on real VMs; FILE=part of a path
	@scripts/setup.sh --tests
	@$(RUN_TESTS) --all recipes

test-cluster: ## tests with a real Kubernetes API server, which is built once; FILE=part of a path
	@scripts/setup.sh --tests
	@$(RUN_TESTS) cluster

fuzz: ## look for inputs that break a parser: make fuzz TARGET=tar SECONDS=60
	@scripts/setup.sh --tests
	@node_modules/.bin/node --disable-warning=ExperimentalWarning scripts/fuzz/main.ts $(TARGET) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

coverage: ## lines and branches that the unit and e2e tests execute, and the largest places that they do not
	@scripts/setup.sh --tests
	@node_modules/.bin/node --disable-warning=ExperimentalWarning scripts/coverage/main.ts $(if $(FILE),--file '$(FILE)')

example: setup ## run an example: make example NAME=langgraph
	@examples/run $(NAME)

check: setup ## types, lint, format, dead code, docs, Rust, Python, shell
	@scripts/check.sh

fix: setup ## format, and apply the automatic fixes of the linters
	@PATH="$(CURDIR)/node_modules/.bin:$$PATH" && oxfmt && oxlint --type-aware --fix && cargo fmt --all
	@if [ -e dist/python-tools/installed ]; then cd python && ../dist/python-tools/bin/ruff check --fix --quiet . ../examples && ../dist/python-tools/bin/ruff format --quiet . ../examples; fi
	@python3 python/tools/unasync.py

bench: setup ## measure this machine
	@./forkd bench fanout
	@./forkd bench branch
	@./forkd bench eval
	@./forkd bench daemon

clean: ## remove what set-up made in this folder (FORKD_HOME stays)
	@rm -rf node_modules target dist
