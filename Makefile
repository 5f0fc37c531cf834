# `make help` says what there is. A machine needs make, Python 3.11 or later, and Java 17 or later
# for Spark (installed with apt-get where we are root on Debian, as Chromium and pgbouncer are for tests). The rest is
# set up in .venv.

PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
UV ?= $(shell command -v uv 2>/dev/null)
WORKERS ?= 4
EXTRAS := spark,serve,sqlite,metrics,loadtest
GROUPS := sample test dev
DIST ?= dist
SITE ?= build/site

# What `make check-lowest` installs in its lowest version, and the tests that it runs with it
SHIPPED := spark,object-store,sqlite,metrics,loadtest,async,iceberg,serve,oidc,opentelemetry
LOWEST_TESTS := tests/contract tests/unit tests/retry tests/cli tests/packaging tests/migration/test_schema.py \
	tests/migration/test_versions.py tests/crawl/test_parquet_files.py tests/crawl/test_text_files.py \
	tests/crawl/test_more_formats.py tests/spark/test_conversions.py tests/leases/test_object_storage.py

BIN := .venv/bin
STAMP := .venv/.stamp-installed
BENCH := .venv/.stamp-bench
JAVA := build/java_home
# Spark's own variables, for the commands that start it
SPARK = JAVA_HOME="$$(cat $(JAVA) 2>/dev/null)" SPARK_LOCAL_IP=127.0.0.1

# The dependency groups of pyproject.toml: each has its versions in constraints.txt
LOCKED := $(GROUPS) bench dist docs
# For what pip cannot do: uv, or a copy of it that is for this alone
RESOLVER := $(or $(UV),build/uv/bin/uv)
# constraints.txt holds for what is installed, and for what builds it; pip hands both variables on to its builds
ifneq ($(strip $(UV)),)
INSTALL = "$(UV)" pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -b constraints.txt
else
INSTALL = PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	$(BIN)/python -m pip install -qq --disable-pip-version-check
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup java gravitino-client gravitino-suite openlineage-client iceberg-spark iceberg-spec iceberg-peers keycloak gravitino-spec run test test-of test-long planted-faults mutants check check-lowest dist docs lock bench bench-before \
	bench-services bench-governance \
	bench-core bench-contention bench-contention-full bench-crawl bench-leases \
	bench-peers bench-combining bench-iceberg bench-iceberg-peers bench-gravitino bench-console bench-cache bench-time nightly load load-faults check-history interleavings interleavings-sql combined-history grow joints oracle soak soak-memory soak-leases drills clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-21s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## set up .venv with the versions of constraints.txt, once for each pyproject.toml

java: $(JAVA) ## find Java 17 or later, or install it

gravitino-client: build/gravitino-client/bin/python ## install Gravitino's Python client for its test, in an environment of its own

build/gravitino-client/bin/python:
	$(PYTHON) -m venv build/gravitino-client
	$@ -m pip install --quiet --disable-pip-version-check "apache-gravitino==1.3.*" docker || { rm -rf build/gravitino-client; exit 1; }

openlineage-client: build/openlineage-client/bin/python ## install OpenLineage's Python client for its test, in an environment of its own

build/openlineage-client/bin/python:
	$(PYTHON) -m venv build/openlineage-client
	$@ -m pip install --quiet --disable-pip-version-check "openlineage-python>=1.54" || { rm -rf build/openlineage-client; exit 1; }

iceberg-spark: build/iceberg-spark/bin/python ## install Spark with Iceberg's runtime (needs Maven) for its tests, in an environment of its own

build/iceberg-spark/bin/python:
	$(PYTHON) -m venv build/iceberg-spark
	{ $@ -m pip install --quiet --disable-pip-version-check "pyspark==4.1.*" && mvn --quiet dependency:copy \
		-Dartifact=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 -DoutputDirectory=build/iceberg-spark; } \
		|| { rm -rf build/iceberg-spark; exit 1; }

keycloak: build/keycloak ## fetch Keycloak (needs Maven, unzip and Java 17) for the test of the sign-in

KEYCLOAK := 26.7.3

build/keycloak:
	{ mvn --quiet --batch-mode dependency:copy -DoutputDirectory=build/keycloak.new \
		-Dartifact=org.keycloak:keycloak-quarkus-dist:$(KEYCLOAK):zip && \
		unzip -q build/keycloak.new/keycloak-quarkus-dist-$(KEYCLOAK).zip -d build/keycloak.new && \
		mv build/keycloak.new/keycloak-$(KEYCLOAK) $@ && rm -r build/keycloak.new; } || { rm -rf build/keycloak.new; exit 1; }

iceberg-peers: build/iceberg-peers/jars ## fetch Iceberg's REST fixture (needs Maven) for the benchmark beside it

build/iceberg-peers/jars:
	mvn --quiet --batch-mode --file tests/bench/iceberg/peers/pom.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/$@ || { rm -rf $@; exit 1; }

iceberg-spec: build/iceberg-spec/env/bin/st ## fetch Iceberg's REST specification, and schemathesis in an environment of its own

build/iceberg-spec/env/bin/st:
	$(PYTHON) -m venv build/iceberg-spec/env
	{ build/iceberg-spec/env/bin/python -m pip install --quiet --disable-pip-version-check "schemathesis>=4.32,<5" && \
		curl --fail --silent --show-error --location --output build/iceberg-spec/rest-catalog-open-api.yaml \
		https://raw.githubusercontent.com/apache/iceberg/main/open-api/rest-catalog-open-api.yaml; } \
		|| { rm -rf build/iceberg-spec; exit 1; }

GRAVITINO ?= https://github.com/apache/gravitino.git

gravitino-spec: build/gravitino-spec/env/bin/python ## fetch the schemas of Gravitino's database and its REST specification, and what checks answers

build/gravitino-spec/env/bin/python:
	{ git clone --quiet --depth 1 --filter=blob:none --sparse $(GRAVITINO) build/gravitino-spec && \
		git -C build/gravitino-spec sparse-checkout set scripts docs/open-api && $(PYTHON) -m venv build/gravitino-spec/env && \
		$@ -m pip install --quiet --disable-pip-version-check "openapi-schema-validator>=0.8,<1" pyyaml; } \
		|| { rm -rf build/gravitino-spec; exit 1; }
	-mvn --quiet --batch-mode dependency:copy -Dartifact=com.h2database:h2:2.2.224 -DoutputDirectory=build/gravitino-spec

gravitino-suite: build/gravitino-suite/clients ## fetch the integration tests of Gravitino's Python client; make gravitino-client has the client

build/gravitino-suite/clients:
	{ git clone --quiet --depth 1 --branch v1.3.0 --filter=blob:none --sparse $(GRAVITINO) build/gravitino-suite && \
		git -C build/gravitino-suite sparse-checkout set clients/client-python/tests; } || { rm -rf build/gravitino-suite; exit 1; }

run: $(STAMP) $(JAVA) ## crawl a lake of real data with Spark, and show what the store knows then
	$(SPARK) $(BIN)/python -m tests.sample.run build/run

# Hundreds of processes import the same: half of the time of each goes into compiling it where no byte code is kept
test test-long check-lowest: export PYTHONDONTWRITEBYTECODE :=

test: $(STAMP) ## run the tests; ARGS="-k name" chooses, WORKERS=0 runs them in one process
	-@$(MAKE) --no-print-directory $(JAVA)
	-@$(BIN)/python tests/setup/browser.py
	-@$(BIN)/python tests/setup/pgbouncer.py
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

test-of: $(STAMP) ## run the tests of one folder: make test-of FOLDER=past
	$(BIN)/python -m tests.of "$(FOLDER)" -n $(WORKERS) --dist loadgroup $(ARGS)

# Tests that hypothesis makes examples for are in both: here they have six times as many
test-long: $(STAMP) $(JAVA) ## run the tests that are too long for `make test`: half an hour; ARGS="--share 3/10" runs a tenth, as CI does
	$(SPARK) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "long or hypothesis" --hypothesis-profile long \
		--timeout 600 $(ARGS)

planted-faults: $(STAMP) ## plant faults one by one, and show that the tests find each; ARGS="--only NAME" chooses
	$(BIN)/python -m tests.faults --workers 2 $(ARGS)

mutants: $(STAMP) ## change one line of the kernel at a time, and show which test finds it; ARGS="--sample 20"
	$(BIN)/python -m tests.mutants --workers 2 $(ARGS)

check: $(STAMP) ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-lowest: $(STAMP) $(JAVA) $(RESOLVER) ## test with the lowest versions that pyproject.toml allows: 10 minutes
	rm -rf build/lowest
	$(RESOLVER) venv --quiet --python 3.11 build/lowest
	$(RESOLVER) pip install --quiet --python build/lowest/bin/python --resolution lowest-direct -e ".[$(SHIPPED)]" \
		--group sample --group test
	$(SPARK) build/lowest/bin/python -m pytest -n $(WORKERS) --dist loadgroup -p no:cacheprovider $(LOWEST_TESTS) $(ARGS)

# Built from what the archive holds, by the locked setuptools; two builds of one commit make the same wheel
dist: build/dist/bin/twine ## build the wheel and the source archive in dist/, and check both
	rm -rf $(DIST)
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)} \
		build/dist/bin/python -m build --no-isolation --outdir $(DIST) .
	build/dist/bin/twine check --strict $(DIST)/*
	build/dist/bin/check-wheel-contents $(DIST)/*.whl

build/dist/bin/twine: pyproject.toml constraints.txt
	$(PYTHON) -m venv build/dist
	{ $(INSTALL:$(BIN)/%=build/dist/bin/%) "pip>=25.1" && \
		$(INSTALL:$(BIN)/%=build/dist/bin/%) --group dist; } || { rm -rf build/dist; exit 1; }
	@touch $@

docs: build/docs/bin/sphinx-build ## make the documentation a site, with search, in build/site/html; a broken link fails
	build/docs/bin/python docs/site/sources.py $(SITE)/pages
	build/docs/bin/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site $(SITE)/pages $(SITE)/html

build/docs/bin/sphinx-build: pyproject.toml constraints.txt
	$(PYTHON) -m venv build/docs
	{ $(INSTALL:$(BIN)/%=build/docs/bin/%) "pip>=25.1" && \
		$(INSTALL:$(BIN)/%=build/docs/bin/%) --group docs -e .; } || { rm -rf build/docs; exit 1; }
	@touch $@

lock: $(RESOLVER) ## write the newest versions that pyproject.toml allows to constraints.txt; then run the tests
	$(RESOLVER) pip compile --quiet --universal --python-version 3.11 --all-extras $(LOCKED:%=--group %) --upgrade \
		--no-annotate --no-emit-index-url --custom-compile-command "make lock" --output-file constraints.txt pyproject.toml

bench: $(STAMP) ## measure the whole: several processes on SQLite and PostgreSQL
	$(BIN)/python -m tests.bench $(ARGS)

bench-core: $(STAMP) ## measure the core: one commit, one connection
	$(BIN)/python -m tests.bench.core $(ARGS)

bench-before: $(STAMP) ## measure this tree beside an earlier commit, in turns; BEFORE=REV chooses it: 3 minutes
	$(BIN)/python -m tests.bench.before --before $(or $(BEFORE),HEAD~1) $(ARGS)

bench-services: $(STAMP) ## measure pages at any depth and searches by name, among a million tables: 3 minutes
	$(BIN)/python -m tests.bench.services $(ARGS)

bench-governance: $(STAMP) ## measure tags on 100,000 tables and the calls of users: 3 minutes; ARGS=--spark: a million tags
	$(BIN)/python -m tests.bench.governance $(ARGS)

bench-contention: $(STAMP) ## measure contention: the cells that have a bar, 8 minutes
	$(BIN)/python -m tests.bench.contention $(ARGS)

bench-contention-full: $(STAMP) ## measure contention: all policies, loads and numbers of processes, 2.5 hours
	$(BIN)/python -m tests.bench.contention --full $(ARGS)

bench-crawl: $(STAMP) $(JAVA) ## measure the crawler against bare footers, and export and import against COPY
	$(SPARK) $(BIN)/python -m tests.bench.crawl $(ARGS)

bench-leases: $(BENCH) ## measure leases, and the locks of Redis, etcd and ZooKeeper where they are installed, 15 minutes
	$(BIN)/python -m tests.bench.leases $(ARGS)

bench-peers: $(BENCH) $(JAVA) ## measure one mix beside locks in the database, Redis, etcd, ZooKeeper and a lock tree, 14 minutes
	$(SPARK) $(BIN)/python -m tests.bench.peers $(ARGS)

bench-combining: $(BENCH) ## measure requests that travel together, beside locks in the same arrangement of processes and threads, 10 minutes
	$(BIN)/python -m tests.bench.combining $(ARGS)

bench-iceberg: $(BENCH) ## measure Iceberg commits, creates, lists and REST loads beside PyIceberg's SQL catalog, 3 minutes
	$(BIN)/python -m tests.bench.iceberg $(ARGS)

bench-iceberg-peers: $(BENCH) $(JAVA) iceberg-peers ## measure Iceberg's REST server beside Iceberg's REST fixture, 2 minutes
	$(BIN)/python -m tests.bench.iceberg.peers $(ARGS)

bench-console: $(STAMP) ## measure pages of the console beside API calls, and 500 open pages: 5 minutes
	$(BIN)/python -m tests.bench.console $(ARGS)

bench-gravitino: $(STAMP) ## measure Gravitino's REST API on two servers, the import of its database, a job's take-over: 3 minutes
	$(BIN)/python -m tests.bench.gravitino $(ARGS)

bench-cache: $(STAMP) ## measure reads through the cache beside plain ones, and writes beside members, 6 minutes
	$(BIN)/python -m tests.bench.cache $(ARGS)

bench-time: $(STAMP) $(JAVA) ## measure the past, the feed and Spark on the catalog, 3 minutes; ARGS=--full is half an hour
	$(SPARK) $(BIN)/python -m tests.bench.time $(ARGS)

nightly: $(BENCH) $(JAVA) ## run the long forms of all judges, with one verdict at the end: 90 minutes; ARGS="load soak" chooses parts
	$(BIN)/python -m tests.nightly $(ARGS)

oracle: $(STAMP) ## compare a million decisions on rights with the rules of docs/governance.md, 10 minutes; ARGS="--decisions 50000 --seed 7"
	$(BIN)/python -m tests.governance.oracle $(ARGS)

load: $(BENCH) $(JAVA) ## the short form of all that follows, and of bench-peers: fails on any anomaly, 7 minutes
	$(SPARK) $(BIN)/python -m tests.load $(ARGS)

load-faults: $(STAMP) $(JAVA) ## load tests whose clients, connections and servers are killed, stopped, cut, partitioned: 10 minutes
	$(SPARK) $(BIN)/python -m tests.load.faults $(ARGS)

check-history: $(STAMP) $(JAVA) ## check clean histories of ten million operations, and one with a fault: an hour
	$(SPARK) $(BIN)/python -m tests.checker.many $(ARGS)

interleavings-sql: $(STAMP) ## explore every interleaving of statements on PostgreSQL and SQLite, of each pair, and of what callers make of them
	$(BIN)/python -m tests.statements --full --workers $(WORKERS) $(ARGS)

interleavings: $(STAMP) ## explore every interleaving of small programs, and of any two writes beside each operation
	$(BIN)/python -m tests.interleaving --full --workers $(WORKERS) $(ARGS)

combined-history: $(STAMP) $(JAVA) ## check a million operations that travel together, with kills, cuts, restarts; ARGS="--operations N" chooses
	$(SPARK) $(BIN)/python -m tests.combine.history $(ARGS)

grow: $(STAMP) ## fill a skewed store at two sizes, and judge what each public method costs: minutes; ARGS="--entities 1000000 --backend sqlite"
	$(BIN)/python -m tests.grow $(ARGS)

joints: $(STAMP) ## run all features beside each other, with faults, and judge every answer: 10 minutes; ARGS="--seconds N"
	$(BIN)/python -m tests.joints $(ARGS)

soak: $(STAMP) ## kill, stop, cut and restart for ten minutes, then account for every operation
	$(BIN)/python -m tests.soak $(ARGS)

soak-memory: $(STAMP) ## let batches fail for ten minutes: no session of the server may grow; ARGS="--minutes 60"
	$(BIN)/python -m tests.soak.memory $(ARGS)

soak-leases: $(STAMP) ## 10,000 acquisitions of one lease by 32 processes, which are killed and stopped
	$(BIN)/python -m tests.leases.many $(ARGS)

drills: $(STAMP) ## kill, cut and freeze nodes of a cluster, and judge: 25 minutes; ARGS="node-killed --mode synchronous"
	-@$(MAKE) --no-print-directory build/patroni/lib $(if $(shell command -v etcd),,build/patroni/etcd)
	$(BIN)/python -m tests.drills $(ARGS)

build/patroni/lib: | $(STAMP)
	$(INSTALL) --target $@ "patroni[etcd3]>=4.1,<5" "psycopg[binary]" || { rm -rf $@; exit 1; }

build/patroni/etcd:
	mkdir -p build/patroni
	cd build/patroni && { apt-get download -qq etcd-server && dpkg -x etcd-server_*.deb etcd; } || { rm -rf etcd; exit 1; }

clean: ## remove what was built, .venv too
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# pyspark comes as source (456 MB) that pip makes a wheel of: the first time takes a minute or more.
$(STAMP): pyproject.toml constraints.txt
ifeq ($(strip $(PYTHON)),)
	@echo "Python 3.11 or later is needed, and none of python3.13, python3.12, python3.11, python3 is one." >&2
	@echo "Install one (on Debian: apt-get install python3 python3-venv), or say: make PYTHON=/path/to/python" >&2
	@exit 1
endif
ifneq ($(strip $(UV)),)
	@test -x $(BIN)/python || "$(UV)" venv --quiet --python "$(PYTHON)" .venv
else
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv || { rm -rf .venv; \
		echo "Python's venv module is missing: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	$(INSTALL) "pip>=25.1" # the pip of Python 3.11 to 3.13 may know no dependency groups
endif
	$(INSTALL) -e ".[$(EXTRAS)]" $(GROUPS:%=--group %)
	@touch $@

# The clients of other lock servers. The servers: apt-get install redis-server etcd-server zookeeper
$(BENCH): $(STAMP)
	$(INSTALL) --group bench
	@touch $@

build/uv/bin/uv:
	"$(PYTHON)" -m venv build/uv
	build/uv/bin/python -m pip install --quiet --disable-pip-version-check uv

$(JAVA): | $(STAMP)
	@$(BIN)/python tests/setup/java.py $@
