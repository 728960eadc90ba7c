// Keeps the arguments of an op until it runs on a device of tests: values as copies, tensors as
// views of the device's memory.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "shoal/ops/backend.h"
#include "support/borrow.h"

namespace shoal::test {

// A plain tensor over device memory as it is now: what a GPU's kernel is given.
inline std::shared_ptr<Tensor> view(const Tensor& tensor) {
  return std::make_shared<Tensor>(borrow(tensor.shape(), tensor.storage()->home_bytes()));
}

template <class T>
struct Kept {
  Kept(Context&, const T& value) : value(value) {}
  T& get() { return value; }
  std::remove_const_t<T> value;
};
template <>
struct Kept<const Tensor> {
  Kept(Context& ctx, const Tensor& tensor) : memory(use(ctx, tensor)), tensor(view(tensor)) {}
  static std::shared_ptr<Memory> use(Context& ctx, const Tensor& t) {
    t.read(ctx);
    return t.storage()->home_memory();
  }
  const Tensor& get() { return *tensor; }
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Tensor> tensor;
};
template <>
struct Kept<Tensor> {
  Kept(Context& ctx, Tensor& tensor) : memory(use(ctx, tensor)), tensor(view(tensor)) {}
  static std::shared_ptr<Memory> use(Context& ctx, Tensor& t) {
    t.mut(ctx);
    return t.storage()->home_memory();
  }
  Tensor& get() { return *tensor; }
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Tensor> tensor;
};
template <class T>
struct KeptPointer {
  KeptPointer(Context& ctx, T* tensor) {
    if (tensor) kept = std::make_shared<Kept<T>>(ctx, *tensor);
  }
  T* get() { return kept ? &kept->get() : nullptr; }
  std::shared_ptr<Kept<T>> kept;
};
template <class T>
struct KeptSpan {
  KeptSpan(Context& ctx, std::span<T* const> tensors) {
    for (T* tensor : tensors) kept.emplace_back(ctx, *tensor);
  }
  std::span<T* const> get() {
    pointers.clear();
    for (Kept<T>& one : kept) pointers.push_back(&one.get());
    return pointers;
  }
  std::vector<Kept<T>> kept;
  std::vector<T*> pointers;
};
template <class T>
struct KeptNumbers {
  KeptNumbers(Context&, std::span<const T> numbers) : kept(numbers.begin(), numbers.end()) {}
  std::span<const T> get() { return kept; }
  std::vector<T> kept;
};
struct KeptUpdates {
  KeptUpdates(Context& ctx, std::span<const ops::ParamUpdate> updates) {
    for (const ops::ParamUpdate& one : updates) {
      steps.push_back(one.step);
      clears.push_back(one.clears);
      kept.emplace_back(ctx, *one.w);
      kept.emplace_back(ctx, *one.grad);
      for (Tensor* history : one.histories) kept.emplace_back(ctx, *history);
    }
  }
  std::span<const ops::ParamUpdate> get() {
    updates.clear();
    auto next = kept.begin();
    for (const optim::Step& step : steps) {
      ops::ParamUpdate& update = updates.emplace_back(step);
      update.clears = clears[updates.size() - 1];
      update.w = &next++->get();
      update.grad = &next++->get();
      for (int h = 0; h < optim::histories(step.rule); ++h)
        update.histories.push_back(&next++->get());
    }
    return updates;
  }
  std::vector<optim::Step> steps;
  std::vector<bool> clears;
  std::vector<Kept<Tensor>> kept;  // w, gradient and histories of each, in turn
  std::vector<ops::ParamUpdate> updates;
};
struct KeptSum {
  KeptSum(Context& ctx, ops::SumInto sum) : kept(ctx, sum.tensor), add(sum.add) {}
  ops::SumInto get() { return {kept.get(), add}; }
  KeptPointer<Tensor> kept;
  bool add;
};
struct KeptRunningSums {
  KeptRunningSums(Context& ctx, const ops::RunningSums& running)
      : mean(ctx, running.mean),
        variance(ctx, running.variance),
        weight(ctx, running.weight),
        fraction(running.fraction) {}
  ops::RunningSums get() { return {mean.get(), variance.get(), weight.get(), fraction}; }
  KeptPointer<Tensor> mean, variance, weight;
  float fraction;
};
struct KeptAfterNorm {
  KeptAfterNorm(Context& ctx, const ops::AfterNorm& after)
      : factor(ctx, after.factor),
        shift(ctx, after.shift),
        normalized(ctx, after.normalized),
        slope(after.slope) {}
  ops::AfterNorm get() { return {factor.get(), shift.get(), slope, normalized.get()}; }
  KeptPointer<const Tensor> factor, shift;
  KeptPointer<Tensor> normalized;
  std::optional<float> slope;
};
struct KeptAfterNormBackward {
  KeptAfterNormBackward(Context& ctx, const ops::AfterNormBackward& after)
      : factor(ctx, after.factor),
        shift(ctx, after.shift),
        slope(after.slope),
        g_factor(ctx, after.g_factor),
        g_shift(ctx, after.g_shift) {}
  ops::AfterNormBackward get() {
    return {factor.get(), shift.get(), slope, g_factor.get(), g_shift.get()};
  }
  KeptPointer<const Tensor> factor, shift;
  std::optional<float> slope;
  KeptSum g_factor, g_shift;
};
struct KeptNormInput {
  KeptNormInput(Context& ctx, ops::NormInput x)
      : tensor(ctx, x.tensor), is_normalized(x.is_normalized) {}
  ops::NormInput get() { return {tensor.get(), is_normalized}; }
  KeptPointer<const Tensor> tensor;
  bool is_normalized;
};

template <class A>
struct KeeperOf {
  using type = Kept<std::remove_cvref_t<A>>;
};
template <>
struct KeeperOf<const Tensor&> {
  using type = Kept<const Tensor>;
};
template <>
struct KeeperOf<Tensor&> {
  using type = Kept<Tensor>;
};
template <>
struct KeeperOf<const Tensor*> {
  using type = KeptPointer<const Tensor>;
};
template <>
struct KeeperOf<Tensor*> {
  using type = KeptPointer<Tensor>;
};
template <>
struct KeeperOf<ops::Tensors> {
  using type = KeptSpan<const Tensor>;
};
template <>
struct KeeperOf<std::span<Tensor* const>> {
  using type = KeptSpan<Tensor>;
};
template <>
struct KeeperOf<std::span<const float>> {
  using type = KeptNumbers<float>;
};
template <>
struct KeeperOf<ops::Offset> {
  using type = KeptNumbers<std::int64_t>;
};
template <>
struct KeeperOf<std::span<const ops::ParamUpdate>> {
  using type = KeptUpdates;
};
template <>
struct KeeperOf<ops::SumInto> {
  using type = KeptSum;
};
template <>
struct KeeperOf<ops::RunningSums> {
  using type = KeptRunningSums;
};
template <>
struct KeeperOf<ops::AfterNorm> {
  using type = KeptAfterNorm;
};
template <>
struct KeeperOf<ops::AfterNormBackward> {
  using type = KeptAfterNormBackward;
};
template <>
struct KeeperOf<ops::NormInput> {
  using type = KeptNormInput;
};

}  // namespace shoal::test
