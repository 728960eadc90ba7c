#include "shoal/ops/dnnl/engine.h"

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

int channel_block() {
  const auto bits = [](lib::cpu_isa isa) { return static_cast<unsigned>(isa); };
  const unsigned wide = bits(lib::cpu_isa::avx512_core);
  return (bits(lib::get_effective_cpu_isa()) & wide) == wide ? 16 : 8;
}

bool short_products_are_slow() {
  const auto bits = [](lib::cpu_isa isa) { return static_cast<unsigned>(isa); };
  const unsigned needed = bits(lib::cpu_isa::avx512_core_bf16);
  if ((bits(lib::get_effective_cpu_isa()) & needed) != needed) return true;
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

}  // namespace shoal::ops::dnnl
