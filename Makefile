# The front door: everything a person or a robot starts by hand. CMake and ninja do the building.
#
#   make demo            installs what is missing, builds, shows the main job step by step
#   make test            everything that proves it, one closing line
#   make lint            layout, layers, limits, warnings, clang-tidy
#
#   make build           the release preset, into build/release/bin
#   make install         programs and man pages below PREFIX (/usr/local); DESTDIR stages
#   make package         a Debian package of it, build/package/leasehold_VERSION_ARCH.deb
#   make deps            installs what builds, tests and lint need
#   make format          lays out C
#   make tidy            clang-tidy alone
#   make test-unit       the unit tests
#   make test-asan       unit and integration tests under ASan and UBSan
#   make test-tsan       the same under ThreadSanitizer
#   make test-valgrind   unit tests and the programs under memcheck
#   make fuzz            each fuzzer for T seconds (60)
#   make soak            memcheck, then ROUNDS (100, and 500 for data) of kills under load (SEED replays), and
#                        ten minutes of an agent that races against every operation on its files
#   make bench           all benchmarks; make bench-NAME one of them
#   make clean           removes build/
#   make help            this
#
# V=1 shows the output of passing tests too; ONLY=REGEX runs the test files whose name matches.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

PYTHON := /usr/bin/python3
PREFIX ?= /usr/local
BIN := build/release/bin
T ?= 60

# $(call preset,NAME[,TARGETS])
preset = @mkdir -p build; \
	cmake --preset $(1) >build/$(1).configure.log || { cat build/$(1).configure.log; exit 1; }; \
	cmake --build --preset $(1) $(if $(2),--target $(2))
fuzzers := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
run_tests = $(PYTHON) tests/tools/run_tests.py $(if $(V),--verbose) $(if $(ONLY),--only '$(ONLY)')

.PHONY: help
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

.PHONY: demo
demo:
	scripts/deps.sh build demo
	$(call preset,release)
	scripts/demo.sh

.PHONY: test
test:
	scripts/deps.sh build test
	$(call preset,release)
	$(call preset,asan)
	$(if $(fuzzers),$(call preset,fuzz,$(fuzzers)))
	scripts/npm.sh tests/tools/openapi build/openapi-lint
	scripts/npm.sh docs/examples/bot-node build/example-bot
	scripts/npm.sh tests/tools/jose build/jose
	$(run_tests) tools unit=build/release/bin property=build/release/bin integration=build/release/bin \
		unit=build/asan/bin fuzz=build/fuzz/bin

.PHONY: build
build:
	scripts/deps.sh build
	$(call preset,release)

.PHONY: test-unit
test-unit:
	scripts/deps.sh build test
	$(call preset,release)
	$(run_tests) unit=build/release/bin

.PHONY: test-asan
test-asan:
	scripts/deps.sh build test
	$(call preset,asan)
	scripts/npm.sh tests/tools/openapi build/openapi-lint
	scripts/npm.sh docs/examples/bot-node build/example-bot
	scripts/npm.sh tests/tools/jose build/jose
	$(run_tests) unit=build/asan/bin integration=build/asan/bin

# Without address space randomisation: gcc 12's ThreadSanitizer does not bear all of its layouts.
.PHONY: test-tsan
test-tsan:
	scripts/deps.sh build test
	$(call preset,tsan)
	scripts/npm.sh tests/tools/openapi build/openapi-lint
	scripts/npm.sh docs/examples/bot-node build/example-bot
	scripts/npm.sh tests/tools/jose build/jose
	setarch -R $(run_tests) unit=build/tsan/bin integration=build/tsan/bin

# Not part of `make test` for its time; `make soak` begins with it.
.PHONY: test-valgrind
test-valgrind:
	scripts/deps.sh build test valgrind
	$(call preset,debug)
	$(run_tests) --timeout 900 memcheck=build/debug/bin

.PHONY: fuzz
fuzz:
	scripts/deps.sh build test
	$(if $(fuzzers),$(call preset,fuzz,$(fuzzers)))
	scripts/fuzz.sh $(T)

.PHONY: lint
lint:
	scripts/deps.sh build lint
	$(call preset,release)
	scripts/lint.sh build/release

# The one slow step of `make lint`, by itself.
.PHONY: tidy
tidy:
	scripts/deps.sh build lint
	$(call preset,release)
	$(PYTHON) tests/tools/check_tidy.py build/release

.PHONY: format
format:
	find . \( -name build -o -name .git \) -prune -o -name '*.[ch]' -exec clang-format -i {} +

# The helpers stand beside the binary that starts them; only the two commands are on the PATH.
libdir = $(DESTDIR)$(PREFIX)/lib/leasehold
unitdir = $(PREFIX)/lib/systemd/system
.PHONY: install
install: build
	install -d $(libdir) $(DESTDIR)$(PREFIX)/bin
	install -m 0755 $(addprefix $(BIN)/,leasehold leasectl leasedoor leasekeep leaseinit demo-agent lease-artifact lease-tool leasetools) $(libdir)
	ln -sfn ../lib/leasehold/leasehold $(DESTDIR)$(PREFIX)/bin/leasehold
	ln -sfn ../lib/leasehold/leasectl $(DESTDIR)$(PREFIX)/bin/leasectl
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man1 docs/man/*.1
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man8 docs/man/*.8
	install -d $(DESTDIR)$(unitdir)
	sed 's|@bindir@|$(PREFIX)/bin|' packaging/leasehold.service.in >$(DESTDIR)$(unitdir)/leasehold.service
	chmod 0644 $(DESTDIR)$(unitdir)/leasehold.service

# A Debian package in build/package. What it is made of is staged afresh each time.
.PHONY: package
package:
	scripts/deps.sh build package
	rm -rf build/package
	$(MAKE) --no-print-directory install PREFIX=/usr DESTDIR=$(CURDIR)/build/package/stage
	scripts/package.sh build/package/stage build/package

.PHONY: deps
deps:
	scripts/deps.sh build demo test lint

# One JSON line each, kept in build/bench/NAME.json: programs of C, or scripts that drive the daemon.
benches := $(patsubst bench_%,bench-%,$(sort $(basename $(notdir $(wildcard tests/bench/bench_*.c tests/bench/bench_*.py)))))
benches_of_many := file lease s3 ws # they keep a file for each of their figures themselves
.PHONY: bench $(benches)
bench: $(benches)
$(benches): bench-%: build
	scripts/deps.sh test bench
	@mkdir -p build/bench
	$(if $(wildcard tests/bench/bench_$*.py),LEASEHOLD_BIN=$(CURDIR)/build/release/bin \
		$(PYTHON) tests/bench/bench_$*.py,build/release/bin/bench_$*) \
		$(if $(filter $*,$(benches_of_many)),,| tee build/bench/$*.json)
bench-%:
	@echo "make $@: there is no benchmark \"$*\" (there is: $(benches:bench-%=%))" >&2; exit 1

# Memcheck, connects and disconnects, then kill rounds under load: of sandboxes, of data; and of both
# engines in the middle of what they do. SEED= replays, ROUNDS= says how many.
.PHONY: soak
soak: test-valgrind build
	scripts/deps.sh test
	LEASEHOLD_BIN=$(CURDIR)/build/release/bin $(PYTHON) tests/tools/contain.py 7200 -- \
		$(PYTHON) tests/soak/connects.py --count 20000
	LEASEHOLD_BIN=$(CURDIR)/build/release/bin $(PYTHON) tests/tools/contain.py 7200 -- \
		$(PYTHON) tests/soak/docker_many.py --count 200
	LEASEHOLD_BIN=$(CURDIR)/build/release/bin $(PYTHON) tests/tools/contain.py 7200 -- \
		$(PYTHON) tests/soak/kill_rounds.py --rounds $(or $(ROUNDS),100) $(if $(SEED),--seed $(SEED))
	LEASEHOLD_BIN=$(CURDIR)/build/release/bin $(PYTHON) tests/tools/contain.py 7200 -- \
		$(PYTHON) tests/soak/engine_kills.py --engine docker $(if $(SEED),--seed $(SEED))
	LEASEHOLD_BIN=$(CURDIR)/build/release/bin $(PYTHON) tests/tools/contain.py 7200 -- \
		$(PYTHON) tests/soak/engine_kills.py --engine local $(if $(SEED),--seed $(SEED))
	LEASEHOLD_BIN=$(CURDIR)/build/release/bin $(PYTHON) tests/tools/contain.py 7200 -- \
		$(PYTHON) tests/soak/data_rounds.py --rounds $(or $(ROUNDS),500) $(if $(SEED),--seed $(SEED))
	LEASEHOLD_RACE_S=600 $(run_tests) --timeout 900 integration=build/release/bin --only 'test_files_hostile'

# The simulation of the lease core with fresh seeds, for T seconds; SEED= replays one (STEPS= of it).
.PHONY: sim
sim: build
	build/release/bin/lease_sim $(if $(SEED),--seed $(SEED),--time $(T)) $(if $(STEPS),--steps $(STEPS)) $(if $(V),--trace)

.PHONY: clean
clean:
	rm -rf build
