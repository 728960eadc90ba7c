#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/update.h"

namespace shoal::ops {

void share_out(int threads, std::size_t pieces, const std::function<void(std::size_t)>& piece) {
  cpu::parallel_for(threads, static_cast<std::int64_t>(pieces), 1,
                    [&](int, std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) piece(static_cast<std::size_t>(i));
                    });
}

}  // namespace shoal::ops
