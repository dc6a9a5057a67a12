# What people do with Weir. `make help` lists it.

CARGO ?= $(or $(shell command -v cargo 2>/dev/null),$(HOME)/.cargo/bin/cargo)
PREFIX ?= $(HOME)/.local
# `dev` builds in half the time, and replays at a fraction of the speed.
PROFILE ?= release
WEIR = $(CARGO) run --locked --profile $(PROFILE) --quiet -p weir-cli --bin weir --

.DEFAULT_GOAL := help
.PHONY: help demo test lint fmt bench criterion docs docs-check results allocator live install clean

help: ## List what can be made
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):[^#]*## */  make \1#/' | column -t -s '#' 2>/dev/null || \
		grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST))

demo: ## Build Weir and compare all policies on the trace that ships with it
	@$(CARGO) build --locked --profile $(PROFILE) -p weir-cli
	@$(WEIR) compare examples/demo.txt --quiet

test: ## Run all tests
	$(CARGO) test --locked --workspace

lint: ## Check format, warnings and the code's documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

fmt: ## Format the code
	$(CARGO) fmt --all

bench: ## Print the tables of docs/results/bench.md, or some: ARGS="policies reference growth hosts orders solver"
	@$(CARGO) bench --locked --quiet -p weir-sim --bench table -- $(ARGS)

criterion: ## Run the Criterion benches; ARGS="--save-baseline before" and the like
	$(CARGO) bench --locked -p weir-core --bench maxmin -- $(ARGS)
	$(CARGO) bench --locked -p weir-core --bench saba -- $(ARGS)
	$(CARGO) bench --locked -p weir-core --bench montecarlo -- $(ARGS)
	$(CARGO) bench --locked -p weir-sim --bench replay -- $(ARGS)
	$(CARGO) bench --locked -p weir-sim --bench saba -- $(ARGS)

docs: ## Make docs/cli.md, the demo trace and docs/results/bench.md anew
	WEIR_WRITE_DOCS=1 $(CARGO) test --locked --quiet -p weir-cli --test reference
	$(CARGO) run --locked --quiet -p weir-trace --example demo_trace > examples/demo.txt.new
	mv examples/demo.txt.new examples/demo.txt
	mkdir -p docs/results
	{ printf '# Benchmarks\n\n<!-- Made by `make docs`. -->\n\nTimes depend on the machine, ratios less so. `make bench` prints these tables.\n\n'; \
		printf 'Made with %s on %s, %s, table by table.\n\n' "$$(rustc --version | cut -d' ' -f1-2)" "$$(uname -sm)" \
			"$$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | sort | uniq -c | sed 's/^ *//; s/ / x /')"; \
		for table in policies reference hosts orders solver growth; do $(MAKE) --no-print-directory bench ARGS=$$table || exit 1; done; } > docs/results/bench.md.new
	mv docs/results/bench.md.new docs/results/bench.md

docs-check: ## Check that what is made from the code is up to date
	$(CARGO) test --locked --quiet --workspace --test reference
	$(CARGO) run --locked --quiet -p weir-trace --example demo_trace | cmp - examples/demo.txt
	$(WEIR) compare examples/demo.txt --quiet --no-timing | sed -n '/^policy .*makespan/,/^$$/p' | \
		while IFS= read -r line; do grep -qxF -e "$$line" README.md || { echo "README.md lacks: $$line"; exit 1; }; done
	$(WEIR) policies --format csv | cut -d, -f1 | tail -n +2 | sort -u | \
		while IFS= read -r name; do grep -qF "| \`$$name\` |" README.md || { echo "README.md lacks the policy $$name"; exit 1; }; done

results: ## Make docs/results/saath.md, netshare.md, saba.md, siphon.md, django.md and composition.md anew; WEIR_FB_TRACE=FILE names the public trace
	$(WEIR) reproduce netshare --out docs/results/netshare.md --jobs 2
	$(WEIR) reproduce saath --trace $(or $(WEIR_FB_TRACE),../shared/data/FB2010-1Hr-150-0.txt) --out docs/results/saath.md --jobs 2
	$(WEIR) reproduce saba --out docs/results/saba.md --jobs 2
	$(WEIR) reproduce siphon --trace $(or $(WEIR_FB_TRACE),../shared/data/FB2010-1Hr-150-0.txt) --out docs/results/siphon.md --jobs 2
	$(WEIR) reproduce django --trace $(or $(WEIR_FB_TRACE),../shared/data/FB2010-1Hr-150-0.txt) --out docs/results/django.md --jobs 2
	$(WEIR) reproduce composition --out docs/results/composition.md --jobs 2

allocator: ## Make docs/results/allocator.md anew: what the central allocator takes, and how far its rates are from bottlenecks
	$(CARGO) bench --locked --quiet -p weir-core --bench hierarchy --no-run
	{ printf '# The central allocator, measured\n\n<!-- Made by `make allocator`. -->\n\n'; \
		printf 'Made with %s on %s. Times are of one processor and depend on the machine; ratios hardly do.\n\n' "$$(rustc --version | cut -d' ' -f1-2)" "$$(uname -sm)"; \
		$(CARGO) bench --locked --quiet -p weir-core --bench hierarchy; } > docs/results/allocator.md.new
	mv docs/results/allocator.md.new docs/results/allocator.md

live: ## Make docs/results/live.md anew: real traffic over a testbed of namespaces; needs root, and takes half an hour
	$(WEIR) reproduce live --out docs/results/live.md

install: ## Install weir, its man pages and completions under PREFIX (default ~/.local)
	$(CARGO) install --locked --path crates/cli --root $(PREFIX)
	$(PREFIX)/bin/weir man --out $(PREFIX)/share/man/man1
	mkdir -p $(PREFIX)/share/bash-completion/completions
	$(PREFIX)/bin/weir completions bash > $(PREFIX)/share/bash-completion/completions/weir

clean: ## Remove what was built
	$(CARGO) clean
