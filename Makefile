# Everything a developer or a new user needs, one target each. `make help` lists them.
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3
READY := $(VENV)/.ready
JOBS ?= 2
# Tests of many live processes are tried a second time, and the summary names those that needed it (RERUN).
AGAIN ?= --reruns 1 -raR
# Versions that the tests passed with: a newer solver finds other plans of the same cost, a newer linter other faults.
PINS := deploy/constraints.txt deploy/constraints-tools.txt
DATA := $(or $(TONNAGE_DATA),../shared/data)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F':.*## ' '/^[a-zA-Z_-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The first line of a recipe that can fail on a bare Debian says what to install.
$(READY): pyproject.toml $(PINS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Tonnage needs Python 3.11 or newer as '$(PYTHON)'; set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "installing Tonnage and its developers' tools into $(VENV): about 1.2 GB, some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINS:%=--constraint %) --editable '.[dev]'
	@touch $@

.PHONY: install
install: $(READY) ## Make .venv with Tonnage and its developers' tools

.PHONY: demo
demo: $(READY) ## Plan the example fleet, then let the controller run it for a day, planned on Ray; writes out/day.html
	$(BIN)/tonnage plan -f examples/
	$(BIN)/tonnage simulate day -f examples/ --brain embedded --seconds 50 --report out/day.html

.PHONY: test
ifeq ($(TEST),quick)
test: $(READY) ## Run all tests; TEST=quick: without the control plane, the guest kernel, Ray and slow tests
	@echo "TEST=quick: no control plane, guest kernel, Ray or slow tests; make test runs them too"
	$(BIN)/python -m pytest -p tests.without_ray -m "not slow" -n $(JOBS) --dist worksteal tests/unit
	$(BIN)/python -m pytest -m "not slow and not controlplane" -n $(JOBS) --dist worksteal \
	  tests/cli tests/deploy tests/generated tests/properties tests/replay tests/scenarios
else
# Every tier runs, whatever an earlier one found; the exit status is that of all.
test: $(READY)
	@$(BIN)/python -m simulator.controlplane --skippable >/dev/null || true
	@$(BIN)/python -m simulator.kernel >/dev/null || echo "a guest kernel is missing: tests that need it are skipped" >&2
	@$(MAKE) --no-print-directory --keep-going --jobs=1 test-unit test-parts test-emulated test-ray test-controlplane
endif

.PHONY: test-unit
test-unit: $(READY) ## Run the unit tests alone
	$(BIN)/python -m pytest -p tests.without_ray -n $(JOBS) --dist worksteal tests/unit

.PHONY: test-parts
test-parts: $(READY) ## Run what is neither a unit test nor on Ray or the control plane: CLI, chart, properties, simulations
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --ignore tests/controlplane --ignore tests/unit --ignore tests/ray \
	  --ignore tests/emulated

.PHONY: test-emulated
test-emulated: $(READY) ## Run the tests on an emulated machine alone: two CPUs, PSI, cpusets
# In one process: a second one would boot a machine of its own.
	$(BIN)/python -m pytest tests/emulated

.PHONY: test-ray
test-ray: $(READY) ## Run the tests on Ray alone
# Where Ray's native part ends a driver, its last words must not stay in a capture that ends with it.
	$(BIN)/python -m pytest --capture=sys $(AGAIN) tests/ray

.PHONY: test-controlplane
test-controlplane: $(READY) ## Run the tests on the real control plane alone
# A module has a server or a namespace of its own, so modules run side by side. Without the option, modules of many tests
# would be first, and the longest ones last.
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(AGAIN) tests/controlplane

.PHONY: mutation
mutation: $(READY) ## Break every rule of the safety code alone: the fast tests must notice 95 % (10 minutes)
	$(BIN)/python -m tests.mutation --jobs $(JOBS)

.PHONY: controlplane
controlplane: $(READY) ## Build the real control plane that tests and `tonnage controlplane` run (minutes, once)
	$(BIN)/python -m simulator.controlplane

.PHONY: check
check: $(READY) ## Style, types, import contracts, generated files up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/generated

.PHONY: crds
crds: $(READY) ## Make deploy/crds and docs/manifests.md from the kinds in controller/api
	$(BIN)/python -m controller.api.crds
	$(BIN)/python -m controller.api.reference > docs/manifests.md

.PHONY: format
format: $(READY) ## Rewrite the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: dashboards
dashboards: $(READY) ## Make deploy/dashboards from the tables of panels beside them
	$(BIN)/python -m deploy.dashboards.generate

.PHONY: chart
chart: $(READY) ## Bring the chart's CRDs, rights, dashboards and alerts up to date
	$(BIN)/python -m deploy.chart_files

.PHONY: release
release: $(READY) ## Build what a release ships and this machine can build: wheels and the chart's package, in out/release
	$(BIN)/python -m deploy.release_files build out/release

.PHONY: constraints
constraints: $(READY) ## Take the newest releases that pyproject.toml allows, and pin the image and developers to them
	$(BIN)/python -m pip install --upgrade --upgrade-strategy eager --editable '.[dev,nvidia]'
	$(BIN)/python -m deploy.constraints

.PHONY: bench-mix
bench-mix: $(READY) ## The mix: cost, proof and time beside the textbook model (DATA=folder, see docs/benchmarks.md)
	$(BIN)/python -m benchmarks.mix --profiles $(DATA)/serving/synthetic_llama2_7b_4gpu.json \
	  --workloads short,long,mixed --slos 40ms,120ms --rates 1,2,4,8,16,32 --slice-factor 8 --json

.PHONY: bench-mix-exact
bench-mix-exact: $(READY) ## The mix: plans of 400 random fleets with services beside an exact model with seats
	$(BIN)/python -m benchmarks.mix_exact --instances 400 --seed 1
	$(BIN)/python -m benchmarks.mix_exact --instances 400 --seed 1 --selectors --resources --widths --spot-nodes

.PHONY: bench-mix-services
bench-mix-services: $(READY) ## The mix: 12 services on a stock that barely holds them; 20 services on 1,000 nodes
	$(BIN)/python -m benchmarks.mix_services --seeds 1-50 --deadline 10
	$(BIN)/python -m benchmarks.mix_services --seeds 1-50 --deadline 2
	$(BIN)/python -m benchmarks.mix_services --seeds 1-5 --services 20 --nodes 1000 --cycles 3

.PHONY: bench-serving
bench-serving: $(READY) ## The mix under replay: requests in time with our routing, and at random
	$(BIN)/python -m benchmarks.mix --profiles $(DATA)/serving/synthetic_llama2_7b_4gpu.json --rates 8,32 --replay --json

TRACES := default gpuspec33 multigpu20 gpushare100
OPENB := --nodes $(DATA)/openb/openb_node_list_gpu_node.csv \
  $(foreach trace,$(TRACES),--pods $(DATA)/openb/openb_pod_list_$(trace).csv) --seeds 42-51 --jobs $(JOBS)

.PHONY: bench-fidelity
bench-fidelity: $(READY) ## Packing: the published policies beside their published results
	$(BIN)/python -m benchmarks.packing $(OPENB) --policies random,dotprod,clustering,packing,bestfit,fgd \
	  --published $(DATA)/openb/published_allocation_pct.csv

.PHONY: bench-packing
bench-packing: $(READY) ## Packing: Tonnage beside FGD and the proven bound; shares known, learned, nodes renamed, 2 % moved
	$(BIN)/python -m benchmarks.packing $(OPENB) --policies fgd,tonnage,tonnage-learning
	$(BIN)/python -m benchmarks.packing $(OPENB) --policies tonnage --rename-nodes
	$(BIN)/python -m benchmarks.packing $(OPENB) --policies tonnage --move-share 0.02

.PHONY: bench-churn
bench-churn: $(READY) ## Packing where pods leave: Tonnage beside BestFit and FGD at loads 0.9, 1.0 and 1.05 (half an hour)
	$(BIN)/python -m benchmarks.churn $(subst --seeds 42-51,--seeds 42-45,$(OPENB))

.PHONY: bench-traffic
bench-traffic: $(READY) ## Traffic of gangs over leaf switches in three orders of ranks, and under churn (simulated, four minutes)
	$(BIN)/python -m benchmarks.traffic
	$(BIN)/python -m benchmarks.traffic --near 0
	$(BIN)/python -m benchmarks.traffic --near 1
	$(BIN)/python -m benchmarks.traffic --held 0.7
	$(BIN)/python -m benchmarks.traffic_churn

.PHONY: bench-packing-ablation
bench-packing-ablation: $(READY) ## Packing: what each mechanism of the policy buys, on a quarter of the fleet (half an hour)
	$(BIN)/python -m benchmarks.packing_ablation $(subst --seeds 42-51,--seeds 42-45,$(OPENB))

.PHONY: bench-scale
bench-scale: $(READY) ## Packing: time per decision at 1,213, 5,000 and 20,000 nodes
	$(BIN)/python -m benchmarks.scale --policies bestfit,fgd,tonnage --sizes 1213,5000,20000

.PHONY: bench-plan
bench-plan: $(READY) ## Batches: cost against the proven bound and time, cold, warm and in haste; others beside; growth
	$(BIN)/python -m benchmarks.plan --pods 1000,10000,20000 --churns 40
	$(BIN)/python -m benchmarks.plan --pods 1000,10000 --churns 0 --rivals bfd,cbc,highs
	$(BIN)/python -m benchmarks.plan --churns 0 --seeds 1-3
	$(BIN)/python -m benchmarks.plan_unseen --data $(DATA)/openb
	$(BIN)/python -m benchmarks.plan_growth

.PHONY: bench-observe
bench-observe: $(READY) ## Seeing a live cluster: time per look, memory of what is kept; 1,000 nodes, 10,000 pods
	$(BIN)/python -m benchmarks.observe

.PHONY: bench-brain
bench-brain: $(READY) ## The brain on Ray: handing over, memory, start, time to a plan; 200 plans beside inline's
	$(BIN)/python -m benchmarks.brain
	$(BIN)/python -m benchmarks.fallback

.PHONY: chaos
chaos: $(READY) ## Kill and freeze the brain, its planners, nodes and head while it plans; recovery times (4 minutes)
	$(BIN)/python -m benchmarks.chaos

.PHONY: bench-sweep
bench-sweep: $(READY) ## What-if sweeps: 200 replays one by one, in processes and on Ray, side by side
	$(BIN)/python -m benchmarks.sweep

.PHONY: bench-binding
bench-binding: $(READY) ## Binding side by side with kube-scheduler, and 10,000 pods running (a quiet machine, 10 minutes)
	$(BIN)/python -m benchmarks.binding --rounds 5

.PHONY: bench-operator
bench-operator: $(READY) ## The operator as the chart installs it: gap and cost of its first cycles (a real API server)
	$(BIN)/python -m benchmarks.operator

.PHONY: bench-operator-churn
bench-operator-churn: $(READY) ## The operator on a real API server while openb's pods arrive and leave (some minutes)
	$(BIN)/python -m benchmarks.operator.churn --nodes $(DATA)/openb/openb_node_list_gpu_node.csv \
		--pods $(DATA)/openb/openb_pod_list_default.csv --measured 0.1 --batch 200

.PHONY: bench-operator-size
bench-operator-size: $(READY) ## The operator with 20,000 pods and 100 services on 2,000 nodes: cycles, memory, writes (half an hour)
	$(BIN)/python -m benchmarks.operator.size

.PHONY: bench-faults
bench-faults: $(READY) ## Faults on a real API server: pods lost, devices given twice, time to converge (a quarter of an hour)
	$(BIN)/python -m tests.controlplane.faults

.PHONY: bench-power
bench-power: $(READY) ## Power (simulated): Tonnage, two clocks, POLCA and no cap as shipped, 14 days, five seeds (hours)
	$(foreach load,m-large m-small,$(BIN)/python -m benchmarks.power \
	  --rate $(DATA)/power/servegen_rate_language_$(load).csv.gz --extra 0.3,0.4 \
	  --policy no-cap,polca,two-clocks,two-clocks-leased,tonnage --seeds 1-5 --jobs $(JOBS) &&) true
	$(BIN)/python -m benchmarks.power --rate $(DATA)/power/servegen_rate_language_m-large.csv.gz --mix code \
	  --lengths $(DATA)/power/azure_llm_2023_code.csv.gz --extra 0.3,0.4 \
	  --policy no-cap,polca,two-clocks,tonnage --seeds 1-5 --jobs $(JOBS)
	$(BIN)/python -m benchmarks.power --rate $(DATA)/power/servegen_rate_language_m-large.csv.gz --batch 16 --mix code \
	  --days 7 --extra 0.3 --policy no-cap,polca,two-clocks,tonnage --seeds 1 --jobs $(JOBS)

.PHONY: bench-load-fits
bench-load-fits: $(READY) ## Forecasts of 2,000 services fitted on the brain, and plans meanwhile (a quiet machine, 15 minutes)
	$(BIN)/python -m benchmarks.load_fits

.PHONY: bench-forecast
bench-forecast: $(READY) ## Forecast: CRPS, pinball loss and coverage beside naive and EWMA, seven days ahead; HARMONY's split
	$(BIN)/python -m benchmarks.forecast $(foreach name,nasa_http_1995_july_60s servegen_m-large_60s_resampled \
	  servegen_m-small_60s_resampled servegen_m-mid_week1_60s_resampled nab_elb_request_count_300s nab_nyc_taxi_1800s,\
	  --trace $(DATA)/demand/$(name).csv) --json
	$(BIN)/python -m benchmarks.forecast --fisher $(DATA)/demand/fisher_5containers_600s.csv --json
	$(BIN)/python -m benchmarks.forecast_indicators $(foreach name,servegen_m-large_600s servegen_m-small_600s \
	  servegen_m-mid_week1_600s fisher_5containers_600s,--trace $(DATA)/demand/$(name).csv)

SCALED = $(foreach name,nasa_http_1995_july_60s servegen_m-large_60s_resampled servegen_m-small_60s_resampled \
  servegen_m-mid_week1_60s_resampled,--trace $(DATA)/demand/$(name).csv)

.PHONY: bench-scaling
bench-scaling: $(READY) ## Scaling: policies beside perfect foresight, tuned in hindsight too; ablations; 500 decisions (half an hour)
	$(BIN)/python -m benchmarks.scaling $(SCALED) --tuned --json
	$(BIN)/python -m benchmarks.scaling $(SCALED) --ablate --json
	$(BIN)/python -m benchmarks.scaling --services 500
.PHONY: bench-scaling-fleet
bench-scaling-fleet: $(READY) ## Scaling a service on four GPU types: dollars per request within the SLO beside HPAs (simulated)
	$(BIN)/python -m benchmarks.scaling_fleet --trace $(DATA)/demand/servegen_m-large_60s_resampled.csv \
	  --profiles $(DATA)/serving/synthetic_llama2_7b_4gpu.json --lead 5 --days 7 --json

.PHONY: bench-power-ablation
bench-power-ablation: $(READY) ## Power (simulated): what each mechanism of the allocator buys, in the hottest hours of two loads (an hour)
	$(foreach load,m-large m-small,$(BIN)/python -m benchmarks.power_ablation \
	  --rate $(DATA)/power/servegen_rate_language_$(load).csv.gz --extra 0.3,0.4,0.5 --jobs $(JOBS) --json &&) true

.PHONY: bench-power-histories
bench-power-histories: $(READY) ## Power: 10,000 random histories of messages, processes, clocks and devices that fail (half an hour of a core)
	$(BIN)/python -m tests.power_histories --histories 10000 --jobs $(JOBS)

.PHONY: bench-power-reaction
bench-power-reaction: $(READY) ## Power: from a breach in telemetry to a lower limit; 200 nodes x 8 GPUs on loopback (4 minutes)
	$(BIN)/python -m benchmarks.power_reaction

.PHONY: bench-health
bench-health: $(READY) ## Health: the table of docs/health.md but live jobs and the control plane (45 minutes)
	$(BIN)/python -m benchmarks.health --seeds 9001-9200 --variants tonnage
	$(BIN)/python -m benchmarks.health --ranks 32 --seeds 9301-9340 --variants all
	$(BIN)/python -m benchmarks.health --data $(DATA)/health
	$(BIN)/python -m benchmarks.health_limits --seeds 7101-7110
	$(BIN)/python -m benchmarks.health_recorder
	$(BIN)/python -m benchmarks.health_scale
	for seed in 1 2 3; do $(BIN)/python -m benchmarks.health_intake --reports-first --seed $$seed; done
	$(BIN)/python -m benchmarks.health_intake --pace 0.1
	$(BIN)/python -m benchmarks.health --seeds 9601-9700 --variants "tonnage,with pair probes,probes pass another network"
	$(BIN)/python -m benchmarks.health_clean --gpu-days 10400 --seed 4022
	$(BIN)/python -m benchmarks.health_ettr --seeds 1-4

TORCH ?= python
.PHONY: bench-health-live
bench-health-live: $(READY) ## Health: real gloo jobs (TORCH=a Python with torch 2.15), and taints on a real API server (20 minutes)
	$(BIN)/python -m benchmarks.health_live --python $(TORCH) --identical
	$(BIN)/python -m benchmarks.health_live --python $(TORCH) --runs 6 --faults hang,kill --seed 5
	$(BIN)/python -m benchmarks.health_live --python $(TORCH) --runs 5 --faults slow --slow-by 0.3 --seed 6
	$(BIN)/python -m benchmarks.health_live --python $(TORCH) --runs 3 --faults slow --slow-by 0.15 --seed 8
	$(BIN)/python -m tests.controlplane.health_taints --verdicts 30

.PHONY: bench-health-clean
bench-health-clean: $(READY) ## Health (simulated): 312,330 GPU-days of clean jobs, what is blamed and whose node is taken out (7 minutes)
	for seed in $$(seq 4001 4030); do $(BIN)/python -m benchmarks.health_clean --gpu-days 10400 --seed $$seed --json || exit 1; done

.PHONY: bench-health-ettr
bench-health-ettr: $(READY) ## Health (simulated): effective training time of 10,000 GPUs, mechanism by mechanism (15 minutes)
	$(BIN)/python -m benchmarks.health_ettr --variants all

.PHONY: bench-concurrency
bench-concurrency: $(READY) ## Concurrency (simulated): safe bandit, simple rules, Q-learning and static limits on unseen workloads
	$(BIN)/python -m benchmarks.concurrency --seeds 201-220
	$(BIN)/python -m benchmarks.concurrency --seeds 201-220 --start 64 --policies safe-bandit,hill-climb

.PHONY: bench-sandboxes
bench-sandboxes: $(READY) ## Agents' sandboxes in a real guest kernel: survival and slow-down beside rivals (an hour)
	$(BIN)/python -m benchmarks.sandboxes --case trio --seeds 101-120
	$(BIN)/python -m benchmarks.sandboxes --case trio --seeds 101-120 --time-scale 0.3 --policies unlimited,whole-claims
	$(BIN)/python -m benchmarks.sandboxes --case infeasible --seeds 101-200 --policies whole-claims --time-scale 0.05
	$(BIN)/python -m benchmarks.sandboxes --case mixed --seeds 101-120 --policies unlimited,static,whole-claims \
	  --memory-scale 0.125 --time-scale 0.02 --traces $(DATA)/agents/tool_call_traces.json.gz
	$(BIN)/python -m benchmarks.sandboxes --case mixed --seeds 101-110 --policies unlimited,whole-claims \
	  --memory-scale 0.125 --time-scale 0.06 --traces $(DATA)/agents/tool_call_traces.json.gz
	$(BIN)/python -m benchmarks.sandbox_costs
	$(BIN)/python -m tests.kernel.attacks

.PHONY: bench-sandboxes-pressure
bench-sandboxes-pressure: $(READY) ## The same on an emulated machine, beside killers by pressure (PSI); PSI beside the brake's event (half an hour)
	$(BIN)/python -m benchmarks.sandboxes --kernel emulated --case trio --seeds 101-104 \
	  --policies unlimited,none,static,high-rule,pressure,pressure-brake,whole-claims
	$(BIN)/python -m benchmarks.sandbox_signals

.PHONY: bench-sandboxes-model
bench-sandboxes-model: $(READY) ## The same with a modelled kernel (simulated), and what each step of the ladder buys (minutes)
	$(BIN)/python -m benchmarks.sandboxes --kernel model --case trio --seeds 101-120
	$(BIN)/python -m benchmarks.sandboxes --kernel model --case infeasible --seeds 1-100
	$(BIN)/python -m benchmarks.sandboxes --kernel model --case mixed --seeds 1-20 --density 7 \
	  --traces $(DATA)/agents/tool_call_traces.json.gz
	$(BIN)/python -m benchmarks.sandbox_ablation --case trio --no-guarantees --seeds 1-20

.PHONY: clean
clean: ## Remove what these targets made
	rm -rf $(VENV) out build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
