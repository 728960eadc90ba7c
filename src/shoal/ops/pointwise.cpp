#include "shoal/ops/pointwise.h"

namespace shoal::ops {

MapReads reads(const Map& map) {
  switch (map.kind) {
    case MapKind::kSigmoid:
    case MapKind::kTanh:
    case MapKind::kExp: return MapReads::kY;
    // Only then does y > 0 tell x > 0.
    case MapKind::kRelu:
    case MapKind::kElu: return map.a >= 0 ? MapReads::kY : MapReads::kX;
    case MapKind::kPower:
      return map.a == 1 || map.a * map.b == 0 ? MapReads::kNothing : MapReads::kX;
    case MapKind::kThreshold: return MapReads::kNothing;
    default: return MapReads::kX;
  }
}

}  // namespace shoal::ops
