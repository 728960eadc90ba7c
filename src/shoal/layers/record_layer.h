// Base class of Data and AnnotatedData, which read the records that data_param names.
#pragma once

#include <memory>
#include <string>

#include "shoal/data/record.h"
#include "shoal/layers/prefetching.h"

namespace shoal {

class RecordLayer : public PrefetchingLayer {
 public:
  using PrefetchingLayer::PrefetchingLayer;
  Arity arity() const override { return {.min_bottoms = 0, .max_bottoms = 0, .max_tops = 2}; }

 protected:
  Feed feed() const override;
  // Throws ConfigError.
  std::unique_ptr<RecordSource> open_records(const std::string& path) const;
  TransformationParameter transformation() const override;
};

}  // namespace shoal
