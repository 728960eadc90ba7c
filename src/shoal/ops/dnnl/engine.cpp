#include "shoal/ops/dnnl/engine.h"

#if defined(_OPENMP)
#include <omp.h>
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
