// Converts layers that go through sequences. The steps are a Scan, whose body is one step.
#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// Letters of the shapes: T steps, N sequences, D units, K = gates D.
class SequenceExport {
 public:
  // The states after a step, h first, and its output.
  struct Step {
    Names states;
    std::string out;
  };
  // Makes a step of the gates' input (N, K), cont (N, 1) and the states (N, D) before.
  using Cell = Step (*)(LayerExport& x, const std::string& gates, const std::string& cont,
                        const Names& states);

  SequenceExport(LayerExport& x, int states)
      : x_(x),
        states_(states),
        exposes_(x.param().recurrent_param().expose_hidden()),
        has_static_(x.bottoms() > 2 + (exposes_ ? states : 0)),
        sequences_(x.top()[1]),
        units_(x.top()[2]) {
    if (x.bottom_dims(0)[1].kind != Dim::Kind::kFixed)
      x.refuse("the number of sequences, axis 1, follows the batch; give --batch=N");
  }
  int cell_params() const { return has_static_ ? 4 : 3; }

  void convert(Cell cell) {
    Names inputs;
    for (int s = 0; s < states_; ++s) inputs.push_back(initial(s));
    inputs.push_back(gates());
    inputs.push_back(x_.add("Unsqueeze", {x_.in(1), x_.integers({2})}));
    const Names made = x_.add_many("Scan", inputs, states_ + 1,
                                   {{"body", body(cell)}, {"num_scan_inputs", std::int64_t{2}}});
    x_.give("Identity", {made.back()});
    for (int s = 0; exposes_ && s < states_; ++s)
      x_.give("Unsqueeze", {made[static_cast<std::size_t>(s)], x_.integers({0})}, {}, 1 + s);
  }

 private:
  std::string turned(int param) { return x_.add("Transpose", {x_.weight(param)}); }

  std::string initial(int state) {
    if (exposes_)
      return x_.add("Squeeze", {x_.in((has_static_ ? 3 : 2) + state), x_.integers({0})});
    return x_.numbers(std::vector<float>(static_cast<std::size_t>(sequences_ * units_)),
                      {sequences_, units_});
  }
  // The part of the gates' input that does not come from h: (T, N, K).
  std::string gates() {
    const Dims dims{x_.bottom_dims(0)[0], {sequences_}, {x_.param_data(0).shape()[1]}};
    const std::string value = dims == x_.bottom_dims(0) ? x_.in(0) : x_.reshaped(x_.in(0), dims);
    std::string sum = x_.add("Add", {x_.add("MatMul", {value, turned(0)}), x_.weight(1)});
    if (!has_static_) return sum;
    const std::string fixed = x_.reshaped(x_.in(2), {{sequences_}, {x_.param_data(2).shape()[1]}});
    return x_.add("Add", {sum, x_.add("MatMul", {fixed, turned(2)})});
  }
  std::shared_ptr<const Graph> body(Cell cell) {
    const std::string from_h = turned(cell_params() - 1);
    auto graph = std::make_shared<Graph>();
    graph->name = x_.name() + " step";
    Builder& builder = x_.builder();
    const auto input = [&](const char* name, std::int64_t columns) {
      graph->inputs.push_back({builder.unique(x_.name() + "/" + name), {{sequences_}, {columns}}});
      return graph->inputs.back().name;
    };
    Names states;
    for (int s = 0; s < states_; ++s) states.push_back(input("state", units_));
    const std::string in = input("gates", x_.param_data(1).count()), cont = input("cont", 1);
    builder.add_to(graph.get());
    const std::string before = x_.add("Mul", {states[0], cont});
    const std::string sum = x_.add("Add", {in, x_.add("MatMul", {before, from_h})});
    const Step step = cell(x_, sum, cont, states);
    for (const std::string& state : step.states)
      graph->outputs.push_back({x_.add("Identity", {state}), {{sequences_}, {units_}}});
    graph->outputs.push_back({x_.add("Identity", {step.out}), {{sequences_}, {units_}}});
    builder.add_to(nullptr);
    return graph;
  }

  LayerExport& x_;
  int states_;
  bool exposes_, has_static_;
  std::int64_t sequences_, units_;
};

// The gates i, f, o and g lie side by side on `axis`. Returns h and c.
Names lstm_cell(LayerExport& x, const std::string& gates, const std::string& cont,
                const std::string& c, std::int64_t axis) {
  const Names parts = x.add_many("Split", {gates}, 4, {{"axis", axis}});
  const std::string i = x.add("Sigmoid", {parts[0]}), o = x.add("Sigmoid", {parts[2]}),
                    f = x.add("Mul", {x.add("Sigmoid", {parts[1]}), cont}),
                    g = x.add("Tanh", {parts[3]});
  const std::string now = x.add("Add", {x.add("Mul", {f, c}), x.add("Mul", {i, g})});
  return {x.add("Mul", {o, x.add("Tanh", {now})}), now};
}

}  // namespace

void convert_lstm(LayerExport& x) {
  SequenceExport(x, 2).convert([](LayerExport& cell, const std::string& gates,
                                  const std::string& cont, const Names& states) {
    const Names after = lstm_cell(cell, gates, cont, states[1], 1);
    return SequenceExport::Step{after, after[0]};
  });
}

void convert_lstm_unit(LayerExport& x) {
  const std::string cont = x.add("Unsqueeze", {x.in(2), x.integers({2})});
  const Names after = lstm_cell(x, x.in(1), cont, x.in(0), 2);
  x.give("Identity", {after[1]}, {}, 0);
  x.give("Identity", {after[0]}, {}, 1);
}

void convert_rnn(LayerExport& x) {
  SequenceExport(x, 1).convert(
      [](LayerExport& cell, const std::string& gates, const std::string&, const Names&) {
        const int weight = cell.params() - 2;
        const std::string h = cell.add("Tanh", {gates});
        const std::string sum =
            cell.add("Add", {cell.add("MatMul", {h, cell.add("Transpose", {cell.weight(weight)})}),
                             cell.weight(weight + 1)});
        return SequenceExport::Step{{h}, cell.add("Tanh", {sum})};
      });
}

}  // namespace shoal::onnx
