# Every target sets up what it needs by itself, on a bare Debian machine too. Plain `make` lists them.
SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)

ARCH := $(shell uname -m)
TARGET := $(ARCH)-unknown-linux-musl
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
DIST := target/dist/steplet
ENTER := tests/e2e/world/enter
# The throw-away node takes all it wrote with it; the tape of `make run` stays.
TAPES := $(CURDIR)/target/tapes

# RUN=20s make run ends by itself; without it, Ctrl-C does.
RUN ?=
ONLY ?=
# make bench ROWS="memory replay" measures these rows only; make soak HOURS=8.
ROWS ?=
HOURS ?= 1

.DEFAULT_GOAL := help
.PHONY: help build run test unit e2e twin lint bench soak proto clean setup

help:
	@sed -n 's/^\([a-z0-9]*\):.*## /\1 /p' $(MAKEFILE_LIST) | awk '{n=$$1; $$1=""; printf "  make %-7s%s\n", n, $$0}'

build: ## the shipped program: static, stripped, at target/dist/steplet
	@tests/e2e/deps.sh build
	@echo "build: $(DIST), optimised for size (minutes the first time)"
	@cargo build --release --locked --bin steplet --target $(TARGET)
	@mkdir -p $(dir $(DIST))
	@cp $(CARGO_TARGET_DIR)/$(TARGET)/release/steplet $(DIST).new && mv $(DIST).new $(DIST)
	@echo "build: $(DIST) $$(stat -c %s $(DIST)) bytes"

run: build ## hello.yaml on real containerd until Ctrl-C (RUN=20s ends by itself), on tape in target/tapes
	@tests/e2e/deps.sh node
	@echo "run: making a throw-away node with containerd and a home-made image"
	@$(ENTER) $(DIST) run fixtures/manifests/hello.yaml --tape-dir $(TAPES) $(if $(RUN),--for $(RUN))

test: setup lint unit e2e ## everything: lint, unit tests, scenes, swarm, and real pods on real containerd

setup:
	@tests/e2e/deps.sh

unit:
	@tests/e2e/deps.sh build
	@echo "test: cargo test, all rooms"
	@cargo test --locked --no-fail-fast

e2e: build ## only the tests on real containerd and a real cluster (CASES="hello logs" picks some)
	@tests/e2e/deps.sh node guest cluster
	@tests/e2e/run $(CASES)

twin: build ## what the reference did with 85 pods, beside what we do with them (ONLY="02* 14*" picks some)
	@tests/e2e/deps.sh node cluster twin
	@tests/e2e/twin/run $(ONLY)

lint: ## format and clippy, warnings are errors
	@tests/e2e/deps.sh build
	@echo "lint: cargo fmt, cargo clippy"
	@cargo fmt --all -- --check -l || { echo 'lint: the files above need cargo fmt'; exit 1; }
	@cargo clippy --locked --workspace --all-targets --quiet -- -D warnings

bench: build ## the figures, beside the reference kubelet (ROWS="memory replay" picks some)
	@tests/e2e/deps.sh node
	@tests/bench/run $(ROWS)

soak: build ## pods come and go, the runtime and the agent are killed, for HOURS=1
	@tests/e2e/deps.sh node
	@tests/e2e/run --soak $(HOURS)

proto: ## write the committed Rust of proto/ again
	@tests/e2e/deps.sh build
	@cargo run --quiet --locked --manifest-path tests/protogen/Cargo.toml -- .
	@cargo fmt --all

clean: ## remove what was built (the cache in ~/.cache/steplet stays)
	@rm -rf target tests/protogen/target
