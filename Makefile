# Two commands do everything on a fresh Debian 12: `make demo` and `make check`.
# The build itself is meson's; this file is the front door.

BUILD  ?= build
ASAN   ?= build-asan
FUZZ   ?= build-fuzz
PYTHON ?= /usr/bin/python3
export BUILD ASAN FUZZ PYTHON

# The tools are those that scripts/setup installs, whatever else stands in PATH.
export PATH := /usr/bin:$(PATH)

# Ninja uses all cores; two of it in one directory would disturb each other.
.NOTPARALLEL:
.DEFAULT_GOAL := all
.PHONY: all uninstall deb tarball image check-packages check-roots wheel check-wheel python setup setup-tests demo check check-vm fuzz bench docs format install clean attack chaos

all: setup
	@scripts/build $(BUILD) --buildtype=release

setup:
	@scripts/setup build

setup-tests:
	@scripts/setup tests

demo: all
	@examples/demo

check: setup-tests
	@scripts/check

# What needs cgroup v2, in a virtual machine.
check-vm: setup-tests all
	@scripts/setup vm
	@scripts/check-vm

# Sessions and attacks with the Python of a minimal Debian and of a system with musl, which are made
# once and kept; as root. `make check-roots QUICK=yes` is shorter.
check-roots: setup-tests all
	@scripts/setup roots
	@scripts/check-roots $(if $(QUICK),--quick)

# A minute for each target; `make fuzz FUZZ_SECONDS=600` for longer.
fuzz: setup-tests
	@scripts/fuzz $(or $(FUZZ_SECONDS),60)

# Every attack, also in sessions that are forks, rolled back or from a template, and as root all of
# them once more as an ordinary user.
attack: all
	@ninja -C $(BUILD) tests/exec_as
	@tests/attack/run
	@for way in forked rolled-back templated; do tests/attack/run --sessions $$way || exit 1; done
	@[ "$$(id -u)" != 0 ] || tests/attack/run --as-user

# Three machines with a node and a NATS server each, which are broken while 10,000 runs go through
# them; `make chaos CHAOS_RUNS=500` for fewer, `CHAOS_SEED=N` for the same faults again, and
# `CHAOS_REPEAT=20` for 20 times, with a seed each. As root.
chaos: all
	@tests/cluster/chaos.py $(or $(CHAOS_RUNS),10000) $(CHAOS_SEED) --repeat $(or $(CHAOS_REPEAT),1) \
		--at-once $(or $(CHAOS_AT_ONCE),48)

bench: setup-tests all
	@scripts/build $(BUILD) --buildtype=release -- tests/crowd tests/prompts tests/slow_model
	@bench/run
	@bench/python --sessions 1000
	-@bench/values
	@bench/fork
	-@scripts/setup peers && bench/peers
	-@bench/floor
	@bench/docker
	@bench/clouds

# The documentation as a site, build/site, with search; no network is needed.
docs:
	@scripts/setup docs
	@scripts/docs $(BUILD)/site

format:
	git ls-files "*.[ch]" | xargs clang-format-14 -i

# The Python package in an environment of its own: build/python/bin/python3 -c 'import droste'
python: all
	@scripts/python-package $(BUILD)

# Wheels for every machine in dist/; the libraries are built once, below build/wheel.
ARCH ?= $(shell uname -m)
wheel:
	@scripts/setup wheel
	@packaging/wheel/make-wheel dist $(ARCH)

# Builds again from the source distribution and compares; runs the wheel with every CPython on this
# machine, in bare roots, and with the pages that droste-compat is for.
check-wheel: setup-tests all wheel
	@packaging/wheel/check-twice dist $(ARCH)
	@DROSTE_ROOTS=yes $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/package
	@$(PYTHON) -m venv --clear --system-site-packages $(BUILD)/wheel/pages
	@$(BUILD)/wheel/pages/bin/pip install -q --no-index --disable-pip-version-check \
	    --find-links dist droste droste-compat
	@DROSTE_PAGES_PYTHON=$(abspath $(BUILD))/wheel/pages/bin/python $(PYTHON) -m pytest -q -rs \
	    -p no:cacheprovider tests/seeds/test_pages.py tests/seeds/test_shell.py

# The directories of the GNU standards: make install DESTDIR=/tmp/root prefix=/usr libdir=lib64
places = $(foreach name,DESTDIR prefix bindir libdir includedir datadir mandir,$(if $($(name)),'$(name)=$($(name))'))

install: all
	@scripts/install $(BUILD) install $(places)

uninstall: all
	@scripts/install $(BUILD) uninstall $(places)

# What users install: Debian packages, and a directory that runs from anywhere. Both land in dist/.
deb:
	@scripts/setup packages
	@scripts/deb

tarball: setup
	@scripts/tarball

# The container image of `droste serve`: dist/container, and with a Docker daemon the image
# droste:latest. As root.
image: deb
	@scripts/setup image
	@scripts/container-image dist/droste_[0-9]*.deb dist/container/root.tar
	@cp packaging/container/Dockerfile dist/container/
	@if docker info >/dev/null 2>&1; then docker build -q -t droste dist/container; \
	else echo 'No Docker daemon: build dist/container with docker, podman or buildah'; fi

# The packages in bare roots, and the image, which takes minutes; as root.
check-packages: setup-tests all
	@scripts/setup packages
	@scripts/setup recipes
	@$(MAKE) --no-print-directory image tarball
	@DROSTE_PACKAGES=yes $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/package

clean:
	rm -rf $(BUILD) $(ASAN) $(FUZZ)
