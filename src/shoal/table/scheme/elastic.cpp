// Elastic averaging: workers make a few steps on their own, then each and the center move a part,
// moving_rate, of the way towards each other. EASGD, and with a solver that has momentum EAMSGD.
// Source: Zhang, Choromanska, LeCun, "Deep learning with elastic averaging SGD", NIPS 2015;
// SpeeDO's movingRate. exchange_order: after the steps is SpeeDO's, before the first of them the
// paper's.
#include "shoal/table/scheme/make.h"
#include "shoal/table/scheme/single.h"

namespace shoal::table {

std::unique_ptr<Scheme> make_elastic(Parameters& parameters) {
  const Single single = read_single(parameters, Payloads::kWeights);
  return std::make_unique<OneByOne>(parameters.spec(), single);
}

}  // namespace shoal::table
