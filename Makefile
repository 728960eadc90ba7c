# Shoal's build. No config file is needed; Makefile.config is honoured (see Makefile.config.example).
# Sources are found, not listed; a change of flags rebuilds; every variant has a folder of its own
# under build/.
.DEFAULT_GOAL := all
# make's own rules would compile what waits for a generated header.
.SUFFIXES:
-include Makefile.config
# Settings of Caffe's Makefile.config, which do nothing here, and what does: NAME;words without blanks.
CAFFE_SETTINGS := \
  CPU_ONLY;CUDA_:=_0_builds_for_the_CPU_alone  USE_CUDNN;CUDA_:=_1_brings_cuDNN_along \
  USE_NCCL;CUDA_:=_1_loads_NCCL_where_it_is  CUDA_DIR;CUDA_HOME  CUDA_ARCH;CUDA_ARCHS \
  USE_OPENCV;OpenCV_is_always_used  OPENCV_VERSION;OpenCV_4_is_used \
  USE_LEVELDB;LevelDB_is_always_used  USE_LMDB;LMDB_is_always_used \
  ALLOW_LMDB_NOLOCK;nothing:_readers_take_no_lock  USE_HDF5;HDF5_:=_0_builds_without_it \
  BLAS;OpenBLAS_is_used  BLAS_INCLUDE;CXXFLAGS_+=_-I...  BLAS_LIB;LDLIBS_+=_-L... \
  CUSTOM_CXX;CXX  COMMON_FLAGS;CXXFLAGS_+=_...  DEBUG;OPT_:=_-O0_-g \
  INCLUDE_DIRS;CXXFLAGS_+=_-I...  LIBRARY_DIRS;LDLIBS_+=_-L...  LINKER_FLAGS;LDLIBS_+=_... \
  USE_PKG_CONFIG;pkg-config_is_asked_anyway  BUILD_DIR;BUILD  DISTRIBUTE_DIR;PREFIX \
  WITH_PYTHON_LAYER;PYTHON_:=_1  PYTHON_INCLUDE;PYTHON_CONFIG  PYTHON_LIB;PYTHON_CONFIG \
  PYTHON_LIBRARIES;nothing  ANACONDA_HOME;nothing  MATLAB_DIR;nothing  TEST_GPUID;nothing  Q;nothing
setting_name = $(firstword $(subst ;, ,$(1)))
ifeq ($(MAKELEVEL),0)
$(foreach s,$(CAFFE_SETTINGS),$(if $(filter file override command,$(firstword $(origin $(call \
  setting_name,$(s))))),$(info Makefile.config: $(call setting_name,$(s)) is of Caffe and has no \
  effect here; instead: $(subst _, ,$(lastword $(subst ;, ,$(s)))))))
endif
ifeq ($(origin CXX),default)
CXX      := g++
endif
BUILD    ?= build/release
PREFIX   ?= /usr/local
VERSION  := $(shell \
              sed -n 's/.*kVersion = "\(.*\)".*/\1/p' include/shoal/base/version.h 2>/dev/null)
OPT      ?= -O2 -g1
# UNITY: lines of source that are compiled together. TEST_OPT: how the tests themselves are
# compiled, after OPT; the library keeps OPT. COLD_OPT: how the code of COLD is compiled, which
# decides, waits and reports, and of which a run takes no longer.
UNITY    ?= 1500
TEST_OPT ?= -Og
COLD_OPT ?= $(if $(filter -O2,$(OPT)),-Og -Wno-maybe-uninitialized)
COLD     := compat net onnx report solver status parallel/exchange parallel/job parallel/launch \
            parallel/rows parallel/scheme parallel/tuning table/coordinator table/link
OPENMP   ?= 1
FUZZ_SECONDS ?= 60
# Our own CPU kernels are compiled for ARCH. With ARCH as it is here they are compiled once more,
# for ARCH_V4, and a program takes the better ones that the processor runs.
ARCH     ?= $(if $(filter x86_64,$(shell uname -m)),-march=x86-64-v3)
ARCH_V4  ?= $(if $(filter -march=x86-64-v3,$(ARCH)),-march=x86-64-v4)
PROTOC   ?= protoc
# GPUs: CUDA=1 or 0; otherwise 1 where there are nvcc and a driver. CUDA_ARCHS=all makes code for
# every GPU from Turing on; without it, for the GPUs that are here, or else 90 (Hopper).
CUDA_HOME  ?= /usr/local/cuda
NVCC     ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc))
CUDA     ?= $(if $(and $(NVCC),$(wildcard /proc/driver/nvidia/version)),1,0)
ifndef CUDA_ARCHS
CUDA_ARCHS := $(or $(strip $(if $(filter 1,$(CUDA)),$(shell \
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null \
  | sed -n 's/^\([0-9]*\)\.\([0-9]\)$$/\1\2/p' | sort -un))),90)
endif
archs     = $(if $(filter all,$(CUDA_ARCHS)),75 80 86 89 90 100 120,$(CUDA_ARCHS))
ptx_archs = $(sort $(lastword $(archs)) $(if $(filter all,$(CUDA_ARCHS)),90))
NVCCFLAGS += -std=c++20 -O2 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wno-unused-parameter \
             --extended-lambda --expt-relaxed-constexpr -Iinclude -Isrc \
             $(foreach a,$(archs),-gencode arch=compute_$(a),code=sm_$(a)) \
             $(foreach a,$(ptx_archs),-gencode arch=compute_$(a),code=compute_$(a))
# Sums by MPI: MPI=1 or 0; otherwise 1 where mpicxx knows an mpi.h.
MPI_SAYS := $(shell mpicxx --showme 2>/dev/null || mpicxx -show 2>/dev/null)
MPI_CFLAGS ?= $(patsubst -I%,-isystem %,$(filter -I%,$(MPI_SAYS)))
MPI_LIBS ?= $(filter-out -lmpi_cxx -lmpicxx,$(filter -L% -l%,$(MPI_SAYS)))
MPI      ?= $(if $(wildcard $(addsuffix /mpi.h,$(filter-out -isystem,$(MPI_CFLAGS)))),1,0)
# HDF5 files: HDF5=1 or 0; otherwise 1 where pkg-config knows the library.
HDF5_PC  := $(firstword $(foreach name,hdf5-serial hdf5,\
              $(shell pkg-config --exists $(name) 2>/dev/null && echo $(name))))
HDF5_CFLAGS ?= $(if $(HDF5_PC),\
                 $(patsubst -I%,-isystem %,$(shell pkg-config --cflags-only-I $(HDF5_PC))))
HDF5_LIBS ?= $(if $(HDF5_PC),$(shell pkg-config --libs $(HDF5_PC)),-lhdf5)
HDF5     ?= $(if $(HDF5_PC),1,0)
# /metrics of the status page: PROMETHEUS=1 or 0; otherwise 1 where pkg-config knows the library.
PROMETHEUS_LIBS ?= $(shell pkg-config --libs prometheus-cpp-core 2>/dev/null)
PROMETHEUS ?= $(if $(PROMETHEUS_LIBS),1,0)
# Convolutions by oneDNN: DNNL=1 or 0; otherwise 1 where its header is.
DNNL     ?= $(if $(wildcard /usr/include/oneapi/dnnl/dnnl.hpp),1,0)
# ONNX files: ONNX=1 or 0; otherwise 1 where its schema is.
ONNX_DIR ?= /usr/include
ONNX     ?= $(if $(wildcard $(ONNX_DIR)/onnx/onnx.proto),1,0)
ONNX_CC  := $(if $(filter 1,$(ONNX)),$(BUILD)/gen/onnx/onnx.pb.cc)
# A shared library, as the extension of Python is, can hold the objects.
NVCCFLAGS += -Xcompiler -fPIC
CXXFLAGS += -fPIC -fno-semantic-interposition
CXXFLAGS += $(OPT) -std=c++20 -Wall -Wextra -Werror -Iinclude -Isrc -Itools -I$(BUILD)/gen \
            $(if $(filter 1,$(OPENMP)),-fopenmp)
# PYTHON=1: tools whose nets may have layers of type Python, in the interpreter of PYTHON_CONFIG, which
# must know pybind11 (python3-dev, pybind11-dev).
PYTHON_CONFIG ?= python3-config
ifeq ($(PYTHON),1)
PY_FLAGS ?= $(patsubst -I%,-isystem %,$(shell $(PYTHON_CONFIG) --includes))
LDLIBS   += $(shell $(PYTHON_CONFIG) --ldflags --embed)
endif
OPENCV_PC := $(shell pkg-config --cflags-only-I opencv4 2>/dev/null)
OPENCV   ?= $(or $(patsubst -I%,-isystem %,$(OPENCV_PC)),-isystem /usr/include/opencv4)
# Only tests compare with OpenCV's dnn.
DNN      ?= $(if $(wildcard $(addsuffix /opencv2/dnn.hpp,$(filter-out -isystem,$(OPENCV)))),\
              -lopencv_dnn)
LDLIBS   += -lopencv_imgcodecs -lopencv_imgproc -lopencv_core -lprotobuf -lglog -lgflags -llmdb \
            -lleveldb -lopenblas -lssl -lcrypto -lz -lpthread

ifeq ($(MPI),1)
LDLIBS   += -Wl,--as-needed $(MPI_LIBS) -Wl,--no-as-needed
endif
ifeq ($(HDF5),1)
LDLIBS   += $(HDF5_LIBS)
endif
ifeq ($(DNNL),1)
LDLIBS   += -ldnnl
endif
ifeq ($(PROMETHEUS),1)
LDLIBS   += $(or $(PROMETHEUS_LIBS),-lprometheus-cpp-core)
endif
OFF      := $(if $(filter 1,$(CUDA)),,cuda) $(if $(filter 1,$(DNNL)),,dnnl)
ifeq ($(CUDA),1)
ifeq ($(strip $(NVCC)),)
$(error CUDA=1 needs nvcc, and there is none in $(CUDA_HOME)/bin or PATH: set CUDA_HOME or NVCC)
endif
# In the rpath cuBLAS and cuDNN are looked for.
LDLIBS   += -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -Wl,-rpath,$(CUDA_HOME)/lib64
CU_OBJ   := $(patsubst %.cu,$(BUILD)/%.o,$(sort $(shell find src -name '*.cu')))
endif
find_src  = $(sort $(shell \
              find $(1) -name '*.cpp' $(foreach b,$(OFF),-not -path '*/$(b)/*') 2>/dev/null))
PROTOS   := $(sort $(wildcard src/shoal/proto/*.proto))
PB_CC    := $(PROTOS:src/%.proto=$(BUILD)/gen/%.pb.cc)
# Sources of a folder are compiled together, about UNITY lines at a time, so that the compiler reads
# the headers of all once; those with flags of their own are compiled alone.
ALONE    := src/shoal/ops/gpu.cpp src/shoal/ops/cpu_kernels.cpp src/shoal/ops/impls.cpp \
            src/shoal/parallel/sums/mpi_sum.cpp src/shoal/proto/hdf5.cpp \
            src/shoal/onnx/write_model.cpp src/shoal/ops/cpu/%.cpp src/shoal/table/update.cpp \
            src/shoal/table/codecs/%.cpp \
            src/shoal/data/transform.cpp src/shoal/data/image.cpp src/shoal/data/image_changes.cpp \
            src/shoal/status/server.cpp src/shoal/status/prometheus.cpp src/shoal/status/page.cpp \
            tests/net/opencv_test.cpp tools/common/%_flags.cpp tools/common/python_layers.cpp \
            tools/common/onnx_%.cpp tools/common/drawn_%.cpp src/python/train.cpp
grouped   = $(patsubst %.cpp,$(BUILD)/%.o,$(filter $(ALONE),$(1))) \
            $(patsubst %.cpp,%.o,$(shell \
              scripts/unity.sh $(BUILD)/unity $(UNITY) $(filter-out $(ALONE),$(1))))
LIB_OBJ  := $(call grouped,$(call find_src,src/shoal)) $(PB_CC:.cc=.o) $(ONNX_CC:.cc=.o) $(CU_OBJ)
# The kernels for ARCH_V4 are joined into one object, of which impls.cpp's list alone can be seen.
# ONE_LEVEL is compiled for ARCH alone, since products are OpenBLAS's, and updates must be the same
# bits on every processor of a job.
ONE_LEVEL := src/shoal/ops/cpu/gemm.cpp src/shoal/ops/cpu/level.cpp src/shoal/ops/cpu/update.cpp
V4_SRC   := $(filter-out $(ONE_LEVEL),$(wildcard src/shoal/ops/impls.cpp src/shoal/ops/cpu/*.cpp))
V4_OBJ   := $(if $(ARCH_V4),$(V4_SRC:%.cpp=$(BUILD)/v4/%.o))
LIB_OBJ  += $(if $(V4_OBJ),$(BUILD)/v4/kernels.o)
V4_LIST  := --only _ZN5shoal3ops14listed_backendEv _ZN5shoal3ops17listed_backend_v4Ev
# Most tools are linked without the parts of the library that one tool needs: who wants train alone
# need not compile these.
OWN_OF_TOOLS := %/onnx.pb.o $(foreach part,onnx simulate,\
              $(BUILD)/unity/src/shoal/$(part)/%.o $(BUILD)/src/shoal/$(part)/%.o)
WHOLE_TOOLS := $(addprefix $(BUILD)/tools/,export_onnx simulate)
TOOL_SRC := $(call find_src,tools)
TOOLS    := $(patsubst %.cpp,$(BUILD)/%,$(filter-out tools/common/%,$(TOOL_SRC)))
# Poseidon's name of caffe, and Caffe's names of upgrade_proto for one kind of file.
ALIASES  := $(addprefix $(BUILD)/tools/,$(if $(filter %/caffe,$(TOOLS)),caffe_main) \
              $(if $(filter %/upgrade_proto,$(TOOLS)),upgrade_net_proto_text \
              upgrade_net_proto_binary upgrade_solver_proto_text))
TOOL_LIB := $(call grouped,$(filter tools/common/%,$(TOOL_SRC)))
# The extension of Python, for the interpreter and the pybind11 that setup.py names. It trains by the
# flags of the tools, of which a tool has its own.
PY_OBJ   := $(call grouped,$(call find_src,src/python))
PY_OF_TOOLS := $(filter-out %/src/python/train.o,$(PY_OBJ))
PY_NAME  ?= _shoal.so
PY_PROTOS := $(PROTOS:src/%=$(BUILD)/python/%)
TEST_OBJ := $(call grouped,$(filter-out tests/fuzz/%,$(call find_src,tests)))
# The headers that most sources read, the precompiled.h of src, tests and the CPU's kernels, are
# compiled once. A source that reads them is compiled anew when one of them changes. (ccache needs
# its sloppiness pch_defines,time_macros for them.)
$(filter $(BUILD)/unity/%,$(LIB_OBJ)) $(TOOL_LIB) $(TOOLS:=.o): $(BUILD)/pch/src.h.gch
$(filter $(BUILD)/unity/%,$(TEST_OBJ)): $(BUILD)/pch/tests.h.gch
KERNELS  := src/shoal/ops/cpu
KERNEL_OBJ := $(filter-out %/update.o,$(filter $(BUILD)/$(KERNELS)/%,$(LIB_OBJ)))
V4_KERNEL_OBJ := $(filter $(BUILD)/v4/$(KERNELS)/%,$(V4_OBJ))
$(KERNEL_OBJ): $(BUILD)/pch/$(KERNELS).h.gch
$(V4_KERNEL_OBJ): $(BUILD)/v4/pch/$(KERNELS).h.gch
TABLE_SRC := $(call find_src,src/shoal/base src/shoal/optim src/shoal/table)
TABLE_LIB := $(TABLE_SRC:%.cpp=$(BUILD)/%.o)
TABLE_TESTS := wire plan link link_parts link_faults link_encryption link_certificates \
            link_caps link_pressure tls simulated_link client \
            codec shard scheme scheme_vectors scheme_groups link_memory \
            drift_barrier esync coordinator coordinator_join coordinator_rounds \
            coordinator_pace coordinator_losses shard_copies faults every_message service service_start service_fault
TABLE_SUPPORT := certificates coordinator_rig faulty_link history job_over_tcp links messages places ports \
            simulated_cluster simulated_losses simulated_worker draw_case unreliable_link
TABLE_OBJ := $(patsubst %,$(BUILD)/tests/%.o,\
               main base/bytes_test $(TABLE_TESTS:%=table/%_test) $(addprefix support/,$(TABLE_SUPPORT)))
FUZZ_SRC := $(call find_src,src/shoal/base src/shoal/table/wire src/shoal/table/scheme) \
            src/shoal/table/plan.cpp \
            src/shoal/table/coordinator/bodies.cpp src/shoal/optim/rule.cpp
SAN_asan := address -fsanitize=undefined -fno-sanitize-recover=undefined
SAN_tsan := thread -Wno-tsan
SAN       = -O1 -g -fno-omit-frame-pointer -fsanitize=$(SAN_$(firstword $(subst _, ,$@)))

compile   = $(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP
COMPILED  = $(call find_src,src tools tests)
USE_PRE   = $(if $(PRE),-Winvalid-pch -include $(BUILD)/$(PRE).h)

all: $(TOOLS) $(ALIASES)             ## the library and the tools, in build/release/tools
test: all $(BUILD)/tests/all         ## every test
	TOOLS_DIR=$(BUILD)/tools scripts/run_tests.py $(BUILD)/tests/all $(TEST_ARGS)
test_ecosystem: all $(BUILD)/tests/all   ## what other programs make of our files, in an environment of PyPI's packages
	scripts/ecosystem_test.py $(BUILD) $(ECOSYSTEM_ARGS)
soak: $(BUILD)/tests/all             ## a million histories of the table service with faults, and more losses; all orders of factors
	$(BUILD)/tests/all --gtest_filter='Faults.*:FactorOrders.*' --seeds=$(SEEDS) --first_seed=$(FIRST)
check:                               ## the style: layers, sizes, format, forbidden words
	python3 scripts/check_style.py
docs: all $(BUILD)/tests/all         ## the pages and tables of docs/ that the code makes
	scripts/make_reference.py $(BUILD)
	SHOAL_WRITE_DOCS=1 $(BUILD)/tests/all --gtest_filter=SchemeFields.AreInTheDocs
format:                              ## all C++ sources as clang-format 14 writes them
	git ls-files '*.cpp' '*.h' '*.cu' | xargs clang-format-14 -i
tidy: compile_commands.json          ## clang-tidy and lock checks (TIDY_ARGS: files, or --since=REV)
	scripts/tidy.py $(TIDY_ARGS)
compile_commands.json: FORCE | $(PB_CC)   ## how each source is compiled, for editors and clang-tidy
	@scripts/compile_commands.py '$(CXX) $(CPPFLAGS) $(CXXFLAGS)' $(COMPILED) > $@
sanitized = $(MAKE) OPT='$(SAN)' TEST_FLAGS=-Wno-maybe-uninitialized
asan:                                ## the tests again under address and undefined-behaviour checks
	$(sanitized) test BUILD=build/asan
# TSan looks for races alone, since OpenCV's imgcodecs loads a library that locks in two orders
# while it starts; with a set time zone, since the C library guards reading an unset one, for each
# line of the log, with a lock that TSan cannot see.
tsan:                                ## tests of what has threads, under ThreadSanitizer
	TZ=UTC0 TSAN_OPTIONS=detect_deadlocks=0 \
	  $(sanitized) test BUILD=build/tsan OPENMP=0 TEST_ARGS='$(TSAN_ARGS)'
# The table column links none of these libraries, so that nothing is forgiven it.
tsan_table:                          ## the table service's tests that need no net, under TSan
	TZ=UTC0 $(sanitized) build/tsan/tests/table_only BUILD=build/tsan OPENMP=0
	TZ=UTC0 TSAN_OPTIONS='detect_deadlocks=1 second_deadlock_stack=1' \
	  build/tsan/tests/table_only --seeds=200 $(TABLE_ARGS)
# A frame that it finds is left in build/fuzz; the golden ones are where it starts.
fuzz: build/fuzz/wire                ## damaged frames, made by libFuzzer for FUZZ_SECONDS (60)
	@mkdir -p build/fuzz/seeds build/fuzz/corpus
	for f in tests/golden/wire/*.hex; do sed '/^#/d' $$f | python3 -c \
	  'import sys; sys.stdout.buffer.write(bytes.fromhex(sys.stdin.read()))' \
	  > build/fuzz/seeds/$$(basename $$f .hex); done
	$< -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -malloc_limit_mb=64 -rss_limit_mb=1024 \
	  -timeout=10 -print_final_stats=1 -artifact_prefix=build/fuzz/ build/fuzz/corpus build/fuzz/seeds
bench: all                           ## speed and memory of the models, and what distribution costs
	scripts/bench.py $(BUILD)
	$(BUILD)/tools/bench_table
	$(BUILD)/tools/bench_table --encrypt
	$(BUILD)/tools/bench_codecs
	$(BUILD)/tools/bench_cluster
	scripts/bench_cluster.py $(BUILD)
	scripts/bench_simulated.py $(BUILD)
	scripts/bench_allreduce.py $(BUILD)
# PYTHON is one with torch. CAFFE is BVLC Caffe's program, if it is to be timed too.
bench_peers: all                     ## Shoal beside PyTorch on the same nets, in turns
	scripts/bench_peers.py $(BUILD) $(if $(PYTHON),--python=$(PYTHON)) \
	  $(if $(CAFFE),--caffe=$(CAFFE)) $(BENCH_ARGS)
# DESTDIR is put before PREFIX, for those who pack.
at        = $(DESTDIR)$(PREFIX)
PC_LIBS   = -L$${prefix}/lib -lshoal $(LDLIBS) $(if $(filter 1,$(OPENMP)),-fopenmp)
install: all                         ## the tools, headers and library, under PREFIX
	install -d $(at)/bin $(at)/lib/pkgconfig $(at)/lib/cmake/shoal $(at)/include/shoal/proto
	install $(TOOLS) $(at)/bin
	cp -P $(ALIASES) $(at)/bin
	install -m 644 $(BUILD)/libshoal.a $(at)/lib
	cp -r include/shoal $(at)/include
	install -m 644 $(PB_CC:.cc=.h) $(at)/include/shoal/proto
	printf '%s\n' 'prefix=$(PREFIX)' 'Name: shoal' 'Description: trains and runs Caffe nets' \
	  'Version: $(VERSION)' 'Cflags: -I$${prefix}/include' 'Libs: $(PC_LIBS)' \
	  > $(at)/lib/pkgconfig/shoal.pc
	sed 's|@LIBS@|$(LDLIBS) $(if $(filter 1,$(OPENMP)),-fopenmp)|' scripts/shoal-config.cmake.in \
	  > $(at)/lib/cmake/shoal/shoal-config.cmake
	printf '%s\n' 'set(PACKAGE_VERSION "$(VERSION)")' \
	  'if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)' \
	  '  set(PACKAGE_VERSION_COMPATIBLE TRUE)' 'endif()' \
	  > $(at)/lib/cmake/shoal/shoal-config-version.cmake
uninstall:                           ## takes away what install put under PREFIX
	rm -f $(addprefix $(at)/bin/,$(notdir $(TOOLS) $(ALIASES))) $(at)/lib/libshoal.a
	rm -f $(at)/lib/pkgconfig/shoal.pc
	rm -rf $(at)/lib/cmake/shoal $(at)/include/shoal
python_extension: $(BUILD)/python/$(PY_NAME) $(BUILD)/python/caffe.protos
bundle: all $(BUILD)/tests/all       ## tools, tests and their libraries in a folder to carry away
	scripts/bundle.sh $(BUILD)
deb: all                             ## a package of the tools for this Debian, in build/release
	scripts/make_deb.sh $(BUILD)
check_deb: deb                       ## the package in a bare Debian 12, where it trains (as root)
	scripts/check_deb.sh $(BUILD)
check_slurm: all                     ## a job under a Slurm that is made for it (as root)
	scripts/check_slurm.sh $(BUILD)
check_prometheus: all                ## Debian's Prometheus scrapes a run that trains
	scripts/check_prometheus.sh $(BUILD)
check_tpu_mlir:                      ## nets through the Caffe converter of Sophgo's tpu-mlir (PYTHON310=...)
	scripts/check_tpu_mlir.sh $(BUILD)
clean:                               ## forget every build
	rm -rf build
help:                                ## this list
	@sed -nE 's/^([a-z_ ]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 16

SEEDS ?= 1000000
FIRST ?= 1

# TSan holds signals back until it suits it, so the one test of them is left out.
TSAN_ARGS ?= --gtest_filter=*Data*:*Solver*:*Factor*:*Prefetch*:*Source*-*ASignalInTheMiddle*

$(BUILD)/libshoal.a: $(LIB_OBJ) ; @echo '  AR   $@'; rm -f $@; ar rcs $@ $^
$(BUILD)/most.a: $(filter-out $(OWN_OF_TOOLS),$(LIB_OBJ)) ; @echo '  AR   $@'; rm -f $@; ar rcs $@ $^
# An archive, so that a tool has those flags alone whose file it needs.
$(BUILD)/tools/common.a: $(TOOL_LIB) $(if $(filter 1,$(PYTHON)),$(PY_OF_TOOLS)) ; @mkdir -p $(@D); echo '  AR   $@'; rm -f $@; ar rcs $@ $^
$(filter-out $(WHOLE_TOOLS),$(TOOLS)): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/tools/common.a $(BUILD)/most.a
	@echo '  LD   $@'; $(CXX) $(CXXFLAGS) $^ $(LDLIBS) -o $@
$(filter $(WHOLE_TOOLS),$(TOOLS)): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/tools/common.a $(BUILD)/libshoal.a
	@echo '  LD   $@'; $(CXX) $(CXXFLAGS) $^ $(LDLIBS) -o $@
$(BUILD)/tools/caffe_main: $(BUILD)/tools/caffe
	ln -sf caffe $@
$(filter %_text %_binary,$(ALIASES)): $(BUILD)/tools/upgrade_proto
	ln -sf upgrade_proto $@
$(BUILD)/tests/all: $(TEST_OBJ) $(BUILD)/tools/common.a $(BUILD)/libshoal.a
	@mkdir -p $(@D); echo '  LD   $@'; $(CXX) $(CXXFLAGS) $^ -lgtest $(DNN) $(LDLIBS) -o $@
$(BUILD)/python/$(PY_NAME): $(PY_OBJ) $(BUILD)/tools/common.a $(BUILD)/libshoal.a
	@mkdir -p $(@D); echo '  LD   $@'; $(CXX) $(CXXFLAGS) -shared -s $^ -Wl,--exclude-libs,ALL $(LDLIBS) -o $@
$(PY_OBJ): private CXXFLAGS += -fvisibility=hidden $(PY_FLAGS)
$(PY_OBJ): private PRE =
# Caffe's names for the schemas: the package is caffe.
$(BUILD)/python/%.proto: src/%.proto
	@mkdir -p $(@D); sed 's/^package shoal;/package caffe;/' $< > $@
$(BUILD)/python/caffe.protos: $(PY_PROTOS)
	@echo '  PROTO $@'; $(PROTOC) -I$(BUILD)/python --include_imports --descriptor_set_out=$@ $^
$(BUILD)/tests/table_only: $(TABLE_OBJ) $(TABLE_LIB)
	@echo '  LD   $@'; $(CXX) $(CXXFLAGS) $^ -lgtest -lglog -lgflags -lssl -lcrypto -lpthread -o $@
build/fuzz/wire: tests/fuzz/wire_fuzz.cpp $(FUZZ_SRC) \
                 $(wildcard include/shoal/table/*.h src/shoal/table/wire/*.h)
	@mkdir -p $(@D); clang++ --version > /dev/null \
	  || { echo 'make fuzz needs clang++ (apt install clang)'; exit 1; }
	@test -n "$$(find -L $$(clang++ -print-resource-dir) -name 'libclang_rt.fuzzer-*' 2>/dev/null)" \
	  || { echo "make fuzz needs clang's libclang_rt.fuzzer (apt install libclang-rt-dev, or" \
	            "llvm's compiler-rt)"; exit 1; }
	@echo '  CXX  $<'; clang++ -O1 -g -std=c++20 -fsanitize=fuzzer,address,undefined \
	  -fno-sanitize-recover=undefined -Iinclude -Isrc $< $(FUZZ_SRC) -lglog -lgflags -lcrypto -o $@
$(BUILD)/gen/%.pb.cc $(BUILD)/gen/%.pb.h &: src/%.proto
	@mkdir -p $(@D); command -v $(firstword $(PROTOC)) > /dev/null \
	  || { echo 'make needs $(PROTOC): scripts/install_packages.sh installs what is missing'; exit 1; }
	@echo '  PROTO $<'; $(PROTOC) -Isrc --cpp_out=$(BUILD)/gen $<
$(BUILD)/gen/onnx/%.pb.cc $(BUILD)/gen/onnx/%.pb.h &: $(ONNX_DIR)/onnx/%.proto
	@mkdir -p $(@D); echo '  PROTO $<'; $(PROTOC) -I$(ONNX_DIR) --cpp_out=$(BUILD)/gen $<
# The page as a string.
$(BUILD)/gen/shoal/status/page.inc: src/shoal/status/page.html
	@mkdir -p $(@D); { printf 'R"page('; cat $<; printf ')page"\n'; } > $@
$(BUILD)/src/shoal/status/page.o: $(BUILD)/gen/shoal/status/page.inc
$(BUILD)/pch/src.h.gch: private CXXFLAGS += -I.
$(BUILD)/pch/tests.h.gch: private CXXFLAGS += -I. -Itests $(TEST_OPT)
$(BUILD)/pch/$(KERNELS).h.gch: private CXXFLAGS += -I. $(IN_VECTORS) $(ARCH)
$(BUILD)/v4/pch/$(KERNELS).h.gch: private CXXFLAGS += -I. $(IN_VECTORS) $(ARCH_V4)
define compile_header
@mkdir -p $(@D); echo '  PCH  $<'; echo '#include "$<"' > $(@:.gch=)
@$(compile) -x c++-header $(@:.gch=) -o $@
endef
$(BUILD)/pch/%.h.gch: %/precompiled.h $(BUILD)/flags | $(PB_CC)
	$(compile_header)
$(BUILD)/v4/pch/%.h.gch: %/precompiled.h $(BUILD)/flags $(BUILD)/v4_flags | $(PB_CC)
	$(compile_header)
# Only records are many.
$(BUILD)/gen/%.pb.o: private CXXFLAGS += -Wno-all -Wno-extra $(if $(filter blob,$(*F)),,-Og)
$(BUILD)/gen/%.pb.o: $(BUILD)/gen/%.pb.cc $(BUILD)/flags | $(PB_CC)
	@echo '  CXX  $<'; $(compile) -c $< -o $@
# The same numbers, in vector code; no vector leaves a file.
IN_VECTORS = -O3 -fno-math-errno -fno-trapping-math -Wno-psabi
updates  := $(BUILD)/src/shoal/table/update.o $(BUILD)/src/shoal/ops/cpu/update.o
$(BUILD)/src/shoal/ops/cpu/%.o $(BUILD)/src/shoal/table/update.o \
  $(BUILD)/src/shoal/table/codecs/%.o: private CXXFLAGS += $(IN_VECTORS) $(ARCH)
$(BUILD)/v4/src/shoal/ops/cpu/%.o: private CXXFLAGS += $(IN_VECTORS) $(ARCH_V4)
# Updates are alike in vectors and beside them: no cut of a param changes a bit.
$(updates): private CXXFLAGS += -ffp-contract=off
$(foreach c,$(COLD),$(BUILD)/unity/src/shoal/$(c)/%.o $(BUILD)/src/shoal/$(c)/%.o): \
  private CXXFLAGS += $(COLD_OPT)
# Codecs give the same bytes on every machine.
$(BUILD)/src/shoal/table/codecs/%.o: private CXXFLAGS += -ffp-contract=off
$(BUILD)/src/shoal/ops/cuda/update.o: private NVCCFLAGS += --fmad=false   # the same bits there
$(BUILD)/src/shoal/data/transform.o: private CXXFLAGS += -O3 $(ARCH)
# Objects for newer processors than the rest keep copies of inline functions and templates to
# themselves: of all copies the linker takes one for the whole program.
$(addprefix $(BUILD)/src/shoal/,ops/cpu/%.o table/update.o table/codecs/%.o data/transform.o): \
  private OWN_COPIES = $(if $(ARCH),&& scripts/join_objects.sh $@ $@)
$(if $(V4_OBJ),$(BUILD)/src/shoal/ops/cpu_kernels.o): private CPPFLAGS += -DSHOAL_CPU_V4=1
$(BUILD)/src/shoal/data/image.o $(BUILD)/src/shoal/data/image_changes.o \
  $(BUILD)/tests/net/opencv_test.o: private CPPFLAGS += $(OPENCV)
$(if $(CU_OBJ),$(BUILD)/src/shoal/ops/gpu.o): \
  private CPPFLAGS += -DSHOAL_CUDA=1 -isystem $(CUDA_HOME)/include
$(if $(filter 1,$(DNNL)),$(BUILD)/src/shoal/ops/impls.o $(BUILD)/v4/src/shoal/ops/impls.o): \
  private CPPFLAGS += -DSHOAL_DNNL=1
$(if $(filter 1,$(PYTHON)),$(BUILD)/tools/common/python_layers.o): \
  private CPPFLAGS += -DSHOAL_PYTHON=1 $(PY_FLAGS)
$(if $(filter 1,$(MPI)),$(BUILD)/src/shoal/parallel/sums/mpi_sum.o): \
  private CPPFLAGS += -DSHOAL_MPI=1 -DOMPI_SKIP_MPICXX $(MPI_CFLAGS)
$(if $(filter 1,$(HDF5)),$(BUILD)/src/shoal/proto/hdf5.o): \
  private CPPFLAGS += -DSHOAL_HDF5=1 $(HDF5_CFLAGS)
$(if $(filter 1,$(ONNX)),$(BUILD)/src/shoal/onnx/write_model.o): private CPPFLAGS += -DSHOAL_ONNX=1
$(if $(filter 1,$(PROMETHEUS)),$(BUILD)/src/shoal/status/prometheus.o): \
  private CPPFLAGS += -DSHOAL_PROMETHEUS=1
$(addprefix $(BUILD)/unity/,src/shoal/ops/cuda/%.o src/shoal/tensor/cuda/%.o tests/cuda/%.o): \
  private CPPFLAGS += -isystem $(CUDA_HOME)/include
$(BUILD)/tests/%.o: private CXXFLAGS += -Itests $(TEST_FLAGS)
# The sources of a group are not headers.
$(BUILD)/unity/%.o: private CXXFLAGS += -I. -Wno-subobject-linkage
$(BUILD)/unity/%.o $(BUILD)/tools/%.o: private PRE = pch/src
$(BUILD)/unity/tests/%.o: private PRE = pch/tests
$(KERNEL_OBJ): private PRE = pch/$(KERNELS)
$(V4_KERNEL_OBJ): private PRE = v4/pch/$(KERNELS)
$(BUILD)/unity/tests/%.o: private CXXFLAGS += -Itests $(TEST_OPT) $(TEST_FLAGS)
$(BUILD)/unity/%.o: $(BUILD)/unity/%.cpp $(BUILD)/flags | $(PB_CC)
	@echo '  CXX  $*'; $(compile) $(USE_PRE) -c $< -o $@
$(BUILD)/%.o: %.cpp $(BUILD)/flags | $(PB_CC)
	@mkdir -p $(@D); echo '  CXX  $<'; $(compile) $(USE_PRE) -c $< -o $@ $(OWN_COPIES)
$(BUILD)/v4/%.o: %.cpp $(BUILD)/flags $(BUILD)/v4_flags | $(PB_CC)
	@mkdir -p $(@D); echo '  CXX  v4/$<'; $(compile) $(USE_PRE) -c $< -o $@
$(BUILD)/v4/kernels.o: $(V4_OBJ) scripts/join_objects.sh $(BUILD)/v4_list
	@echo '  JOIN $@'; scripts/join_objects.sh $@ $(V4_LIST) $(V4_OBJ)
$(BUILD)/src/shoal/ops/cpu_kernels.o: $(BUILD)/v4_flags
$(BUILD)/src/shoal/ops/gpu.o: $(BUILD)/cuda_flags
$(BUILD)/src/shoal/ops/impls.o $(BUILD)/v4/src/shoal/ops/impls.o: $(BUILD)/dnnl_flags
$(BUILD)/src/shoal/parallel/sums/mpi_sum.o: $(BUILD)/mpi_flags
$(BUILD)/src/shoal/proto/hdf5.o: $(BUILD)/hdf5_flags
$(BUILD)/src/shoal/onnx/write_model.o: $(BUILD)/onnx_flags $(ONNX_CC)
$(BUILD)/src/shoal/status/prometheus.o: $(BUILD)/prometheus_flags
$(PY_OBJ): $(BUILD)/python_flags
$(BUILD)/tools/common/python_layers.o: $(BUILD)/python_layers_flags
$(BUILD)/%.o: %.cu $(BUILD)/cuda_flags
	@mkdir -p $(@D); echo '  NVCC $<'; $(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
# A file that holds these words, written only when they change.
define keep_words
$(BUILD)/$(1): FORCE
	@mkdir -p $$(@D); echo '$(2)' | cmp -s - $$@ || echo '$(2)' > $$@
endef
$(eval $(call keep_words,flags,\
  $(CXX) $(CPPFLAGS) $(CXXFLAGS) $(COLD_OPT) $(TEST_OPT) $(ARCH) $(OPENCV)))
$(eval $(call keep_words,v4_flags,$(ARCH_V4)))
$(eval $(call keep_words,v4_list,$(V4_OBJ)))
$(eval $(call keep_words,dnnl_flags,$(DNNL)))
$(eval $(call keep_words,prometheus_flags,$(PROMETHEUS)))
$(eval $(call keep_words,mpi_flags,$(MPI) $(MPI_CFLAGS)))
$(eval $(call keep_words,hdf5_flags,$(HDF5) $(HDF5_CFLAGS)))
$(eval $(call keep_words,onnx_flags,$(ONNX) $(ONNX_DIR)))
$(eval $(call keep_words,cuda_flags,$(CUDA) $(if $(CU_OBJ),$(NVCC) $(NVCCFLAGS))))
$(eval $(call keep_words,python_flags,$(PYTHON) $(PY_FLAGS)))
# Without PYTHON=1 the tools stay as they are when the extension is built.
$(eval $(call keep_words,python_layers_flags,$(if $(filter 1,$(PYTHON)),1 $(PY_FLAGS))))
FORCE:
.PHONY: all test test_ecosystem python_extension soak check docs format tidy asan tsan tsan_table \
        fuzz bench bench_peers install uninstall bundle deb check_deb check_slurm \
        check_prometheus check_tpu_mlir clean help FORCE
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
