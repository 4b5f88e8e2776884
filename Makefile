# The front page. `make help` lists what there is; CI runs the same recipes.

CARGO ?= cargo
CONFIG ?=
# A server that `make run` starts keeps its data where `tidegate serve` would.
SERVE = $(if $(CONFIG),--config $(CONFIG),)
FUZZ_SECONDS ?= 60

.PHONY: help run test check fmt fuzz conformance bench release setup

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

run: ## build and serve; CONFIG=FILE for a configuration of your own
	$(CARGO) run --release --locked -p tidegate -- serve $(SERVE)

# One command, so that one set of features is built once; the conformance tests
# run the binary that it builds.
test: setup ## unit, integration and conformance tests
	$(CARGO) test --locked --workspace

conformance: setup ## real clients against a running tidegate only
	$(CARGO) test --locked --workspace --no-run
	$(CARGO) test --locked --workspace --test 'git_*' --test crash --test bad_input --test oracle

setup: ## what the tests need: git, nginx, the Go client
	@if [ -x conformance/setup.sh ]; then conformance/setup.sh; \
	else echo "NOT RUN: conformance/setup.sh is missing" >&2; [ -z "$$CI" ]; fi

check: ## format, lints, floor plan, crypto provider, licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) test --locked --workspace --test layering
	@echo "one TLS crypto provider in the graph:"
	@if $(CARGO) tree --locked --workspace -i ring 2>/dev/null | grep -q '^ring '; then \
		echo "ring is in the graph; aws-lc-rs is the one provider" >&2; exit 1; fi
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --offline check licenses bans sources; \
	else echo "NOT RUN: cargo deny is not installed, so licences, bans and sources are unchecked" >&2; fi

fmt: ## format everything
	$(CARGO) fmt --all

fuzz: ## every wire parser for FUZZ_SECONDS each (needs nightly and cargo-fuzz)
	@command -v cargo-fuzz >/dev/null || { echo "NOT RUN: cargo-fuzz is not installed" >&2; exit 1; }
	@cd proxy/git && for target in $$($(CARGO) +nightly fuzz list); do \
		$(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

bench: setup ## tidegate beside nginx with git http-backend
	$(CARGO) build --release --locked -p tidegate
	bench/run.sh

release: ## the binary as it ships
	$(CARGO) build --release --locked -p tidegate
	@ls -l $${CARGO_TARGET_DIR:-target}/release/tidegate
