// Batches on their way to a GPU: how many bytes go, how far ahead, and in whose order.
#include "shoal/data/batch_copies.h"

#include <gtest/gtest.h>

#include <chrono>

#include "cuda/fake_cuda.h"
#include "shoal/base/timer.h"
#include "shoal/tensor/context.h"
#include "support/data_rig.h"
#include "support/device_training.h"
#include "support/solver_rig.h"

namespace shoal::test::cuda_batch_copies_test {
namespace {

// Item n is an image of the bytes n, with the label n.
class Bytes final : public ItemSource {
 public:
  const std::string& path() const override { return path_; }
  Status read(Item&) override { return {}; }
  Result<ItemKind> kind(const Item&) const override { return ItemKind{kSize, false, true}; }
  Status make(const Item& item, Sample& sample) const override {
    EXPECT_TRUE(sample.wants_bytes());
    std::ranges::fill(sample.resize(kSize, ImageCrop{}), static_cast<std::uint8_t>(item.n));
    sample.label = static_cast<float>(item.n);
    return {};
  }
  static constexpr ImageSize kSize{2, 4, 3};

 private:
  std::string path_ = "bytes";
};

constexpr int kBatch = 5;

// The time that a net takes with a batch.
void compute_for(int ms) {
  wait_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(ms));
}

// Takes batches until `count` more were copied ahead. False: that does not come.
bool come_ahead(BatchCopies& copies, Stream& stream, int count) {
  for (int i = 0; i < 6000 && copies.ahead() < count; ++i) {
    compute_for(10);
    if (!copies.next(stream).ok()) return false;
  }
  return copies.ahead() == count;
}

TEST(CudaBatchCopies, TwoBatchesGoAheadAtAQuarterOfTheBytes) {
  Bytes source;
  Context ctx({.device = &fake_gpu()});
  BatchCopies copies(source,
                     {.batch_size = kBatch, .device = &fake_gpu(), .form = PixelForm::kBytes});
  ASSERT_TRUE(come_ahead(copies, *ctx.stream(), 2));
  for (int i = 0; i < 10; ++i) {
    compute_for(20);
    const FakeCalls before = fake_calls();
    const Result<BatchCopies::Taken> taken = copies.next(*ctx.stream());
    ASSERT_TRUE(taken.ok());
    const FakeCalls calls = fake_calls() - before;
    EXPECT_LE(copies.ahead(), BatchCopies::kAhead);
    EXPECT_EQ(calls.copies, calls.uploaded ? 1 : 0) << "that of one batch, further ahead";
    // Pixels, filled up to a multiple of 16; crops; labels.
    const std::int64_t bytes = (kBatch * Bytes::kSize.count() + 15) / 16 * 16 +
                               kBatch * (16 + static_cast<std::int64_t>(sizeof(float)));
    EXPECT_EQ(calls.uploaded, calls.copies * bytes);
    EXPECT_EQ(calls.waits, 0);
    EXPECT_EQ(calls.allocations, 0);
    EXPECT_TRUE(in_fake_memory(taken.value().block->data(), static_cast<std::size_t>(bytes), 0));
  }
}

// A net uploads the crops of its batches, and their labels, and nothing else.
TEST(CudaBatchCopies, ANetSendsBytesAndNoNumbers) {
  const std::string path = fresh_directory("cuda_bytes") + "/set";
  Records records;
  const std::string pixels(std::size_t{3} * 256 * 256, 'x');
  for (int i = 0; i < 4; ++i)
    records.emplace_back(std::to_string(i), datum(3, 256, 256, pixels, i));
  or_throw(write_records("datumfile", path, records));
  DataRig rig("type: 'Data' top: 'data' top: 'label' data_param { source: '" + path +
                  "' backend: DATUMFILE batch_size: 2 } transform_param { crop_size: 224 }",
              1, TRAIN, {}, &fake_gpu());
  const FakeCalls before = fake_calls();
  constexpr int kBatches = 8;
  for (int i = 0; i < kBatches; ++i) {
    ASSERT_EQ(rig.forward(), "");
    rig.blob(0).data.read(rig.context());
    rig.blob(1).data.read(rig.context());
  }
  const std::int64_t uploaded = (fake_calls() - before).uploaded,
                     batch = std::int64_t{2} * 3 * 224 * 224 + 2 * (16 + 4);
  EXPECT_GE(uploaded, kBatches * batch);
  EXPECT_LE(uploaded, (kBatches + BatchCopies::kAhead) * batch + 4) << "and the mean";
  EXPECT_EQ(rig.context().stream()->conversions, (Conversions{.uploads = 1})) << "of the mean";
}

// The numbers that each call may use stay until the next call, whatever runs late.
TEST(CudaBatchCopies, WhatIsUsedLateIsStillThere) {
  Bytes source;
  Context ctx({.device = &fake_gpu()});
  BatchCopies copies(
      source, {.batch_size = kBatch, .device = &fake_gpu(), .depth = 1, .form = PixelForm::kBytes});
  constexpr int kBatches = 60;
  std::vector<std::uint8_t> seen(kBatches * kBatch);
  for (int i = 0; i < kBatches; ++i) {
    const Result<BatchCopies::Taken> taken = copies.next(*ctx.stream());
    ASSERT_TRUE(taken.ok());
    for (int r = 0; r < kBatch; ++r)
      ctx.stream()->download(
          reinterpret_cast<std::byte*>(&seen[static_cast<std::size_t>(i * kBatch + r)]),
          taken.value().block->data() + r * Bytes::kSize.count(), 1);
    compute_for(i % 4);
  }
  ctx.stream()->synchronize();
  for (std::size_t n = 0; n < seen.size(); ++n)
    ASSERT_EQ(seen[n], static_cast<std::uint8_t>(n)) << "item " << n;
}

// Crops and mirrors that a training's snapshot takes up in the middle of an epoch.
TEST(CudaBatchCopies, ATrainingGoesOnInMidEpochToTheBit) {
  SolverParameter param = device_solver("cuda_mid_epoch", "max_iter: 12 snapshot: 5");
  LayerParameter& data = *param.mutable_net_param()->mutable_layer(0);
  data.mutable_data_param()->set_shuffle(true);
  data.mutable_transform_param()->set_mirror(true);
  data.mutable_transform_param()->set_crop_size(5);
  ASSERT_OK(train_on(&fake_gpu(), param));
  const std::string whole = saved(param, 12);
  ASSERT_OK(train_on(&fake_gpu(), param, nullptr, param.snapshot_prefix() + "_iter_5.solverstate"));
  EXPECT_EQ(saved(param, 12), whole);
}

}  // namespace
}  // namespace shoal::test::cuda_batch_copies_test
