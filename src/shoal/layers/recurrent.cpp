#include "shoal/layers/recurrent.h"

#include <algorithm>
#include <cstring>

#include "shoal/base/log.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/broadcast.h"
#include "shoal/ops/slice.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

using ops::Trans;

Recurrent::Recurrent(const LayerParameter& param, int gates, int states)
    : Layer(param), gates_(gates), states_(states) {}

bool Recurrent::exposes() const { return param().recurrent_param().expose_hidden(); }

Arity Recurrent::arity() const {
  const int exposed = exposes() ? states_ : 0;
  return {.min_bottoms = 2 + exposed,
          .max_bottoms = 3 + exposed,
          .min_tops = 1 + exposed,
          .max_tops = 1 + exposed};
}

Propagates Recurrent::propagates(int bottom) const {
  if (bottom == 1) return Propagates::kRefuses;
  const bool is_state = exposes() && bottom >= param().bottom_size() - states_;
  return is_state ? Propagates::kNothing : Propagates::kYes;
}

std::int64_t Recurrent::multiply_adds() const {
  const std::int64_t inputs = from_x_.desc().inputs, width = gates_ * units_;
  return sequences_ * width * static_inputs_ +
         steps_count_ * (sequences_ * width * (inputs + units_) + cell_multiply_adds());
}

void Recurrent::setup(Context& ctx, Bottoms bottoms, Tops) {
  const RecurrentParameter& recurrent = param().recurrent_param();
  units_ = recurrent.num_output();
  if (units_ < 1) throw config_error(param(), "num_output must be given, and be 1 or more");
  has_static_ = static_cast<int>(bottoms.size()) > 2 + (exposes() ? states_ : 0);
  const Shape& x = bottoms[0]->shape();
  if (x.axes() < 2)
    throw config_error(param(), "bottom '", bottoms[0]->name, "' is ", x.str(),
                       "; it needs axes of steps and of sequences");
  const std::int64_t width = gates_ * units_;
  const Shape hidden{width, units_};  // throws before memory is taken, if that is the largest
  add_param(ctx, {width, x.count(2)}, recurrent.weight_filler());
  add_param(ctx, {width}, recurrent.bias_filler());
  if (has_static_) {
    static_inputs_ = bottoms[2]->shape().axes() > 0 ? bottoms[2]->shape().count(1) : 0;
    add_param(ctx, {width, static_inputs_}, recurrent.weight_filler());
  }
  add_param(ctx, hidden, recurrent.weight_filler());
  add_cell_params(ctx);
}

void Recurrent::reshape(Context& ctx, Bottoms bottoms, Tops tops) {
  const Shape &x = bottoms[0]->shape(), &cont = bottoms[1]->shape();
  const std::int64_t width = gates_ * units_, inputs = params()[0]->shape()[1];
  if (x.axes() < 2 || x.count(2) != inputs)
    throw config_error(param(), "was made for ", inputs, " inputs a step; bottom '",
                       bottoms[0]->name, "' is now ", x.str());
  steps_count_ = x[0];
  const bool is_new = sequences_ != x[1];
  sequences_ = x[1];
  if (cont != Shape{steps_count_, sequences_})
    throw config_error(param(), "bottom '", bottoms[1]->name,
                       "', which says where sequences begin, is ", cont.str(), "; bottom '",
                       bottoms[0]->name, "' has ", steps_count_, " steps of ", sequences_,
                       " sequences");
  if (has_static_) {
    const Shape& fixed = bottoms[2]->shape();
    if (fixed.axes() < 1 || fixed[0] != sequences_ || fixed.count(1) != static_inputs_)
      throw config_error(param(), "bottom '", bottoms[2]->name, "' is ", fixed.str(), "; it needs ",
                         static_inputs_, " numbers for each of ", sequences_, " sequences");
  }
  const Shape state{1, sequences_, units_}, in{1, sequences_, width};
  for (int s = 0; exposes() && s < states_; ++s) {
    const Blob& from = *bottoms[first_exposed() + static_cast<std::size_t>(s)];
    if (from.shape() != state)
      throw config_error(param(), "bottom '", from.name, "' is ", from.shape().str(),
                         "; a state is ", state.str());
    tops[1 + static_cast<std::size_t>(s)]->reshape(state);
  }
  tops[0]->reshape({steps_count_, sequences_, units_});
  from_x_.select("dense", ops::backend(ctx).dense,
                 {.rows = steps_count_ * sequences_, .inputs = inputs, .outputs = width}, ctx,
                 engine_of(param()));
  steps_.resize(static_cast<std::size_t>(steps_count_));
  for (Step& one : steps_) {
    one.cont.reshape({1, sequences_});
    one.in.reshape(in);
    one.states.resize(static_cast<std::size_t>(states_));
    for (Tensor& of : one.states) of.reshape(state);
    for (Tensor* of : {&one.h_before, &one.out}) of->reshape(state);
  }
  if (is_new) {
    initial_.clear();
    final_.clear();
    for (int s = 0; s < states_; ++s) initial_.emplace_back(state), final_.emplace_back(state);
  }
  for (Tensor* of : {&in_, &in_grad_}) of->reshape({steps_count_, sequences_, width});
  for (Tensor* of : {&from_static_, &static_grad_, &step_in_grad_}) of->reshape(in);
  for (Tensor* of : {&out_grad_, &h_grad_}) of->reshape(state);
}

const std::vector<Tensor>& Recurrent::before(std::int64_t step) const {
  return step == 0 ? initial_ : steps_[static_cast<std::size_t>(step - 1)].states;
}

void Recurrent::forward(Context& ctx, Bottoms bottoms, Tops tops) {
  const std::int64_t width = gates_ * units_;
  const ops::BroadcastDims rows{.outer = 1, .dim = sequences_, .inner = units_};
  const Tensor& from_h = params()[static_cast<std::size_t>(cell_params() - 1)]->data;
  for (std::size_t s = 0; s < initial_.size(); ++s)
    ops::copy(ctx, exposes() ? bottoms[first_exposed() + s]->data : final_[s], initial_[s]);
  from_x_->forward(ctx, bottoms[0]->data, params()[0]->data, &params()[1]->data, in_);
  if (has_static_)
    ops::gemm(ctx, Trans::kNo, Trans::kYes, sequences_, width, static_inputs_, 1, bottoms[2]->data,
              params()[2]->data, 0, from_static_);
  for (std::int64_t t = 0; t < steps_count_; ++t) {
    Step& step = steps_[static_cast<std::size_t>(t)];
    ops::cut(ctx, bottoms[1]->data, ops::along(bottoms[1]->shape(), 0, t), step.cont);
    ops::scale_and_shift(ctx, rows, before(t)[0], step.cont, nullptr, step.h_before);
    ops::cut(ctx, in_, ops::along(in_.shape(), 0, t), step.in);
    if (has_static_) ops::axpy(ctx, 1, from_static_, step.in);
    ops::gemm(ctx, Trans::kNo, Trans::kYes, sequences_, width, units_, 1, step.h_before, from_h, 1,
              step.in);
    Tensor& out = forward_cell(ctx, step, before(t));
    ops::paste(ctx, out, tops[0]->data, ops::along(tops[0]->shape(), 0, t));
  }
  const std::vector<Tensor>& last = before(steps_count_);
  for (std::size_t s = 0; s < last.size(); ++s)
    ops::copy(ctx, last[s], exposes() ? tops[1 + s]->data : final_[s]);
}

void Recurrent::backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                         Bottoms bottoms) {
  const std::int64_t width = gates_ * units_;
  const ops::BroadcastDims rows{.outer = 1, .dim = sequences_, .inner = units_};
  const int from_h = cell_params() - 1;
  for (std::int64_t t = steps_count_ - 1; t >= 0; --t) {
    const Step& step = steps_[static_cast<std::size_t>(t)];
    const bool is_last = t + 1 == steps_count_;
    ops::cut(ctx, tops[0]->grad, ops::along(tops[0]->shape(), 0, t), out_grad_);
    backward_cell(ctx, step, before(t), out_grad_, is_last ? nullptr : &h_grad_, step_in_grad_);
    ops::paste(ctx, step_in_grad_, in_grad_, ops::along(in_grad_.shape(), 0, t));
    if (Tensor* const weight = gradient(from_h))
      ops::gemm(ctx, Trans::kYes, Trans::kNo, width, units_, sequences_, 1, step_in_grad_,
                step.h_before, 1, *weight);
    if (has_static_) {
      if (is_last)
        ops::copy(ctx, step_in_grad_, static_grad_);
      else
        ops::axpy(ctx, 1, step_in_grad_, static_grad_);
    }
    if (t == 0) break;
    ops::gemm(ctx, Trans::kNo, Trans::kNo, sequences_, units_, width, 1, step_in_grad_,
              params()[static_cast<std::size_t>(from_h)]->data, 0, h_grad_);
    ops::scale_and_shift(ctx, rows, h_grad_, step.cont, nullptr, h_grad_);
  }
  from_x_->backward(ctx, bottoms[0]->data, params()[0]->data, in_grad_,
                    propagate[0] ? &bottoms[0]->grad : nullptr, gradient(0), gradient(1));
  if (!has_static_) return;
  if (Tensor* const weight = gradient(2))
    ops::gemm(ctx, Trans::kYes, Trans::kNo, width, static_inputs_, sequences_, 1, static_grad_,
              bottoms[2]->data, 1, *weight);
  if (propagate[2])
    ops::gemm(ctx, Trans::kNo, Trans::kNo, sequences_, static_inputs_, width, 1, static_grad_,
              params()[2]->data, 0, bottoms[2]->grad);
}

Tensor* Recurrent::gradient(int param) const {
  return param_propagates(param) ? &params()[static_cast<std::size_t>(param)]->grad : nullptr;
}

// Saves the numbers of the states, one after the other.
std::string Recurrent::save_state() const {
  std::string state;
  for (const Tensor& one : final_)
    if (!exposes()) state.append(reinterpret_cast<const char*>(one.host().data()), one.bytes());
  return state;
}

Status Recurrent::load_state(std::string_view state) {
  const std::size_t each = final_.empty() ? 0 : final_.front().bytes();
  if (exposes() || state.size() != final_.size() * each) {
    for (Tensor& one : final_) std::ranges::fill(one.host_out(), 0.0f);
    return {};
  }
  for (std::size_t s = 0; s < final_.size(); ++s)
    std::memcpy(final_[s].out(), state.data() + s * each, each);
  return {};
}

}  // namespace shoal
