// One data layer over real files, as a net would have it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/proto/layers.pb.h"
#include "support/data_files.h"
#include "support/layer_rig.h"

namespace shoal::test {

// A data layer made as a net makes it.
class DataRig {
 public:
  explicit DataRig(const std::string& prototxt, std::uint64_t seed = 1, Phase phase = TRAIN,
                   const Share& share = {}, const Device* device = nullptr)
      : context_({.device = device, .seed = seed, .share = share}) {
    LayerParameter param = parse_layer("layer { name: 'd' " + prototxt + " }");
    param.set_phase(phase);
    layer_ = make_layer(param);
    for (int i = 0; i < param.top_size(); ++i) tops_.push_back(&blobs_[i]);
    layer_->setup(context_, {}, tops_);
    layer_->reshape(context_, {}, tops_);
  }
  // The message of the failure, or "".
  std::string forward() {
    followed_ = layer_->follow_input(context_, tops_);
    if (!context_.failed()) layer_->forward(context_, {}, tops_);
    const std::optional<Failure> failure = context_.take_failure();
    return failure ? failure->error.message : "";
  }
  bool followed() const { return followed_; }  // the last forward had another shape
  std::vector<float> data() const {
    return {blobs_[0].data.host().begin(), blobs_[0].data.host().end()};
  }
  std::vector<float> labels() const {
    return {blobs_[1].data.host().begin(), blobs_[1].data.host().end()};
  }
  // Data and labels of `count` batches.
  std::vector<float> batches(int count) {
    std::vector<float> all;
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(forward(), "");
      for (const std::vector<float>& part : {data(), labels()})
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  const Shape& shape(int top) const { return blobs_[top].data.shape(); }
  Layer& layer() { return *layer_; }
  Context& context() { return context_; }
  Blob& blob(int top) { return blobs_[top]; }

 private:
  Context context_;
  Blob blobs_[2];
  std::vector<Blob*> tops_;
  std::unique_ptr<Layer> layer_;
  bool followed_ = false;
};

// Returns the error of the layer, found while it is made or in its first pass; "" if there is none.
inline std::string trouble(const std::string& prototxt, const Share& share = {}) {
  try {
    DataRig rig(prototxt, 1, TRAIN, share);
    return rig.forward();
  } catch (const ConfigError& error) {
    return error.what();
  }
}

}  // namespace shoal::test
