#include "shoal/ops/dnnl/engine.h"

#include "shoal/base/error.h"
#include "shoal/ops/dnnl/impls.h"

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace shoal::ops::dnnl {

const lib::engine& engine() {
  static const lib::engine cpu(lib::engine::kind::cpu, 0);
  return cpu;
}

#if defined(_OPENMP)
ThreadsOf::ThreadsOf(const Context& ctx) : before_(omp_get_max_threads()) {
  omp_set_num_threads(ctx.threads());
}
ThreadsOf::~ThreadsOf() { omp_set_num_threads(before_); }
#else
ThreadsOf::ThreadsOf(const Context&) : before_(1) {}
ThreadsOf::~ThreadsOf() = default;
#endif

namespace {

bool has_isa(lib::cpu_isa isa) {
  const auto bits = [](lib::cpu_isa of) { return static_cast<unsigned>(of); };
  return (bits(lib::get_effective_cpu_isa()) & bits(isa)) == bits(isa);
}

bool short_products_are_native() { return has_isa(lib::cpu_isa::avx512_core_bf16); }

}  // namespace

int channel_block() { return has_isa(lib::cpu_isa::avx512_core) ? 16 : 8; }

bool short_products_are_slow() {
  if (!short_products_are_native()) return true;
#if defined(__x86_64__)
  constexpr unsigned kZen4Family = 0x19;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__builtin_cpu_is("amd") || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  return ((eax >> 8) & 0xfu) + ((eax >> 20) & 0xffu) == kZen4Family;
#else
  return false;
#endif
}

lib::primitive_attr own_scratchpad() {
  lib::primitive_attr attributes;
  attributes.set_scratchpad_mode(lib::scratchpad_mode::user);
  return attributes;
}

bool is_generated(const std::string& implementation) {
  return implementation.find("jit") != std::string::npos ||
         implementation.find("brg") != std::string::npos;
}

void run(const lib::primitive& primitive, const std::unordered_map<int, lib::memory>& arguments) {
  lib::stream stream(engine());
  primitive.execute(stream, arguments);
  stream.wait();
}

namespace {

std::string describe_library() {
  const lib::version_t* const version = lib::version();
  std::string isa = "AVX2 or less";
  if (channel_block() == 16)
    isa = short_products_are_native() ? "AVX-512 with bfloat16" : "AVX-512";
  return str("oneDNN ", version->major, '.', version->minor, '.', version->patch, " for ", isa);
}

void hold_to_avx2() {
  // The switch fails only after the first use, or in a build of the library without it.
  if (lib::set_max_cpu_isa(lib::cpu_isa::avx2) != lib::status::success)
    throw DeviceError("oneDNN cannot be held to AVX2: it has been used already");
}

}  // namespace

const KernelLibrary kLibrary{describe_library, hold_to_avx2};

}  // namespace shoal::ops::dnnl
