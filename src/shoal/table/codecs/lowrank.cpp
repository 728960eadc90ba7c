// lowrank: matrices as two factors (low_rank.h). It takes two rounds of sums among workers, so that
// there is no payload of it.
#include "shoal/table/codecs/kinds.h"

namespace shoal::table {

const CodecKind lowrank_kind{.help = "matrices as factors of a low rank, in sums among workers",
                             .amount = 1,
                             .least = 0,
                             .most = 256,
                             .needs_feedback = true,
                             .takes_bits = false,
                             .takes_stochastic = false,
                             .make = [](const CodecSpec&) { return std::unique_ptr<Codec>(); }};

}  // namespace shoal::table
