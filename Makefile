# Every target does its own set-up; the second time that costs about a second.

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-unit test-python test-rust test-e2e test-recipes example check fix bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install packages, build the agent and the warden, fetch a guest kernel
	@scripts/setup.sh

demo: setup ## boot one VM, warm it, fork it, branch a running child
	@./forkd demo

test: ## every check and every test
	@scripts/setup.sh --tests
	@scripts/test.sh check unit python rust e2e recipes

test-unit: setup ## tests that need no VM
	@scripts/test.sh unit

test-python: ## tests of the Python SDK that need no VM
	@scripts/test.sh python

test-rust: setup ## tests of the agent and the warden
	@scripts/test.sh rust

test-e2e: ## tests on real VMs
	@scripts/setup.sh --tests
	@scripts/test.sh e2e

test-recipes: ## tests of the recipes and the examples, on real VMs
	@scripts/setup.sh --tests
	@scripts/test.sh recipes

example: setup ## run an example: make example NAME=langgraph
	@examples/run $(NAME)

check: setup ## types, lint, format, dead code, docs, Rust, Python, shell
	@scripts/check.sh

fix: setup ## format and mend what can be mended
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
