#include "shoal/tensor/context.h"

#include <utility>

#include "shoal/base/log.h"

namespace shoal {

namespace {

Random own_random(std::uint64_t seed, const Share& share) {
  const Random first(seed);
  return share.index() == 0 ? first : first.fork(str("net ", share.index(), " of the job"));
}

}  // namespace

Context::Context(const Options& options)
    : options_(options),
      random_(own_random(options.seed, options.share)),
      device_(options.device ? options.device : &cpu_device()),
      stream_(device_->make_stream()) {
  CHECK(options.threads >= 1) << "a context of " << options.threads << " threads";
}

std::span<float> Context::scratch(std::int64_t count) {
  if (!lent_scratch_.empty() && count <= static_cast<std::int64_t>(lent_scratch_.size()))
    return lent_scratch_;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  if (!scratch_ || bytes > scratch_->bytes()) {
    stream_->synchronize();  // kernels may still use the old memory
    scratch_ = device_->allocate(bytes);
    ++stream_->replacements;
  }
  return {reinterpret_cast<float*>(scratch_->data()), scratch_->bytes() / sizeof(float)};
}

void Context::fail(Error error, std::int64_t item) {
  if (!failure_) failure_ = Failure{std::move(error), item};
}

std::optional<Failure> Context::take_failure() { return std::exchange(failure_, std::nullopt); }

}  // namespace shoal
