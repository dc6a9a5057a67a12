# The tasks of users and contributors. `make help` lists them.

CARGO ?= $(or $(shell command -v cargo 2>/dev/null),$(HOME)/.cargo/bin/cargo)
PREFIX ?= $(HOME)/.local
# The profile of the command line in all targets but `demo` and `install`. `quick` builds in half the time of `release`.
PROFILE ?= quick
WEIR = $(CARGO) run --locked --profile $(PROFILE) --quiet -p weir-cli --bin weir --
# The simulator alone: no coordinator, agents, testbed or papers' evaluations.
DEMO = --locked --profile quick -p weir-cli --no-default-features --bin weir
# The public coflow-benchmark trace.
TRACE = $(or $(WEIR_FB_TRACE),../shared/data/FB2010-1Hr-150-0.txt)
# Pages of results. FAST ones take four minutes together, LONG ones half an hour each; MEASURED ones are only checked for their structure.
FAST = netshare composition siphon fabrics
SLOW = saath saba django
LONG = weir
MEASURED = live bench allocator siphon-live django-live

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-python test-python-sweep notebooks bench-python check-api lint fmt bench bench-page criterion docs docs-check book results results-check build-check allocator live siphon-live django-live relay-cost test-spark test-spark-short spark-demo spark-measure build-simulator build-regions install clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):[^#]*## */  make \1#/' | column -t -s '#' 2>/dev/null || \
		grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST))

demo: ## Build the simulator and compare policies on the trace that ships with Weir
	@$(CARGO) build $(DEMO)
	@$(CARGO) run --quiet $(DEMO) -- compare examples/demo.txt --quiet --policies fair,aalo,saath,weir,varys,sincronia,pfp,django
	@printf '\nTry next:\n'
	@printf '  %-60s # %s\n' \
		'make install' 'all of weir, in $(PREFIX)/bin' \
		'weir explain examples/demo.txt --policy saath --coflow 148' 'why one coflow took as long as it did' \
		'weir compare examples/demo.txt' 'all policies; replace the file by your own trace' \
		'weir policies saath' 'what a policy does, and its parameters'

# Tests on networks mostly wait, so more of them run than there are processors.
test test-all: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))

test: ## Run all tests with short campaigns and fixed seeds; TEST_ARGS are those of the test programs
	$(CARGO) test --locked --workspace --lib --bins --tests $(if $(TEST_ARGS),-- $(TEST_ARGS))
	$(CARGO) test --locked --workspace --doc --quiet

test-python: ## Build the Python package, and run its tests and type checkers; the first run installs tools in target/tools; ARGS of unittest
	@CARGO=$(CARGO) tools/test-python $(ARGS)

test-python-sweep: ## Sweep 10,000 replays on Dask and Ray, and kill a worker; the first run installs both in target/tools; ARGS="Dask Ray"
	@CARGO=$(CARGO) tools/test-python-sweep $(ARGS)

test-all: ## Run everything: long campaigns with new seeds, all computed pages of results, the API, notebooks, the book and the Spark plugin
	@CARGO=$(CARGO) tools/test-long
	WEIR_TEST_LENGTH=long $(MAKE) --no-print-directory test-python
	$(MAKE) --no-print-directory lint test-python-sweep notebooks build-check docs-check check-api book test-spark-short
	$(MAKE) --no-print-directory results-check PAGES="$(FAST) $(SLOW) $(MEASURED)"

notebooks: ## Run the notebooks, and write them with their outputs to target/notebooks; the first run installs tools in target/tools
	@CARGO=$(CARGO) tools/notebooks

check-api: ## Check /openapi.json and the answers of a coordinator; needs Python; the first run installs tools in target/tools; ARGS="examples seed"
	@$(CARGO) build --locked --profile $(PROFILE) -p weir-cli
	@tools/check-api target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/weir $(ARGS)

lint: ## Check format, warnings, the code's documentation, and the style of names and sentences
	tools/check-style
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p weir-cli --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

fmt: ## Format the code
	$(CARGO) fmt --all

bench: ## Print the tables of docs/results/bench.md, or some: ARGS="policies reference simgrid growth hosts fabrics orders solver"
	@$(CARGO) bench --locked --quiet -p weir-sim --bench table -- $(ARGS)

criterion: ## Run the Criterion benches; ARGS="--save-baseline before" and the like
	$(CARGO) bench --locked -p weir-core --bench maxmin -- $(ARGS)
	$(CARGO) bench --locked -p weir-core --bench saba -- $(ARGS)
	$(CARGO) bench --locked -p weir-core --bench montecarlo -- $(ARGS)
	$(CARGO) bench --locked -p weir-sim --bench replay -- $(ARGS)
	$(CARGO) bench --locked -p weir-papers --bench saba -- $(ARGS)

docs: ## Make docs/cli.md, docs/combinations.md, docs/api-errors.md, the demo trace and the protocol's code again
	WEIR_WRITE_DOCS=1 $(CARGO) test --locked --quiet --workspace --test all -- reference:: generated:: problems:: combinations::
	$(CARGO) run --locked --quiet -p weir-trace --example demo_trace > examples/demo.txt.new
	mv examples/demo.txt.new examples/demo.txt

bench-python: ## Print the overhead of the Python package over the command line, and the memory of its results
	@CARGO=$(CARGO) PROFILE=$(PROFILE) tools/bench-python $(TRACE)

bench-page: ## Make docs/results/bench.md again, on a machine without other load
	{ printf '# Benchmarks\n\n'; tools/measured-by 'make bench'; printf '\nTimes depend on the machine, ratios less so.\n\n'; \
		for table in policies reference simgrid fabrics hosts orders solver growth; do $(MAKE) --no-print-directory bench ARGS=$$table || exit 1; done; } > docs/results/bench.md.new
	mv docs/results/bench.md.new docs/results/bench.md

docs-check: ## Check that what is made from the code is up to date, and what CONTRIBUTING lists
	$(CARGO) test --locked --quiet --workspace --test all -- reference:: generated:: problems:: combinations::
	$(CARGO) run --locked --quiet -p weir-trace --example demo_trace | cmp - examples/demo.txt
	@tools/check-dependencies

book: ## Build the documentation as a searchable book, target/book/index.html; the first run installs mdBook in target/tools
	@CARGO=$(CARGO) tools/book

results: ## Make the pages of results that follow from code and inputs again, with their pictures; PAGES="saath" names them
	@for page in $(or $(PAGES),$(FAST) $(SLOW)); do \
		case $$page in \
			live | bench | allocator | siphon-live | django-live) echo "$$page: a page of measurements; expected one of $(FAST) $(SLOW)"; exit 2 ;; \
			saath | siphon | django | weir) trace='--trace $(TRACE)' ;; \
			*) trace= ;; \
		esac; \
		$(WEIR) reproduce $$page $$trace --out docs/results/$$page.md --jobs 2 || exit 1; done

results-check: ## Compare pages of results with what the code computes now; PAGES="saath saba" names them
	@$(CARGO) build --locked --profile $(PROFILE) -p weir-cli --no-default-features --features papers
	@WEIR_FB_TRACE='$(TRACE)' tools/check-results target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/weir $(or $(PAGES),$(FAST) $(MEASURED))

build-check: ## Check that a second build compiles nothing, also without clang
	@tools/check-build

allocator: ## Make docs/results/allocator.md again: the central allocator's time, and how far its rates are from bottlenecks
	$(CARGO) bench --locked --quiet -p weir-core --bench hierarchy --no-run
	{ printf '# The central allocator\n\n'; tools/measured-by 'make allocator'; printf '\nTimes are those of one processor. They depend on the machine, ratios hardly do.\n\n'; \
		$(CARGO) bench --locked --quiet -p weir-core --bench hierarchy; } > docs/results/allocator.md.new
	mv docs/results/allocator.md.new docs/results/allocator.md

live: ## Make docs/results/live.md again: real traffic over a testbed of namespaces; needs root, and takes an hour
	$(WEIR) reproduce live --out docs/results/live.md

django-live: ## Make docs/results/django-live.md again: Django, Aalo+ and DCTCP over a testbed; needs root and clang, and takes an hour
	$(WEIR) reproduce django-live --trace $(TRACE) --out docs/results/django-live.md

siphon-live: build-regions ## Make docs/results/siphon-live.md again: relays, coflows and Spark; needs root, Java and Maven; takes an hour and a half
	tools/siphon-live > docs/results/siphon-live.md.new
	mv docs/results/siphon-live.md.new docs/results/siphon-live.md

# WEIR_BINARY names another binary.
test-spark test-spark-short: build-simulator

build-simulator:
	@[ -n "$$WEIR_BINARY" ] || $(CARGO) build --locked --profile $(PROFILE) --quiet -p weir-cli --no-default-features --bin weir

test-spark: ## Run Spark jobs on clusters of two regions with and without the plugin; needs Java and Maven, and takes half an hour
	spark/test-cluster

test-spark-short: ## The same on one version of Spark, without faults, in at most 3 minutes
	spark/test-cluster --short

spark-demo: build-regions ## Sort on Spark clusters of five regions, with and without Weir; needs root, Java and Maven; ARGS="megabytes rounds"
	spark/demo $(ARGS)

spark-measure: build-regions ## Measure Spark in five regions, and print Markdown; ARGS="sort", "workloads", "faults" or "small", and the runs
	@spark/measure $(ARGS)

# WEIR_BINARY and WEIR_LAB_BINARY name other binaries.
build-regions:
	@packages=; \
	[ -n "$$WEIR_BINARY" ] || packages="-p weir-cli"; \
	[ -n "$$WEIR_LAB_BINARY" ] || packages="$$packages -p weir-lab"; \
	[ -z "$$packages" ] || $(CARGO) build --locked --profile $(PROFILE) --quiet $$packages

relay-cost: ## Measure relays in namespaces; needs root. ARGS="--cases saturated --rounds 5" and the like
	@$(CARGO) build --locked --profile $(PROFILE) --quiet -p weir-cli
	@$(CARGO) run --locked --profile $(PROFILE) --quiet -p weir-lab -- relay-cost $(ARGS)

install: ## Install weir, its man pages and completions under PREFIX (default ~/.local)
	$(CARGO) install --locked --path crates/cli --root $(PREFIX)
	$(PREFIX)/bin/weir man --out $(PREFIX)/share/man/man1
	mkdir -p $(PREFIX)/share/bash-completion/completions
	$(PREFIX)/bin/weir completions bash > $(PREFIX)/share/bash-completion/completions/weir

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf spark/target spark/live/target
