// A graph of ONNX operators, as our exporter makes it: what an ONNX file holds, without its schema.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace shoal::onnx {

// The operators are those of this version of ONNX's default domain.
inline constexpr std::int64_t kOpset = 13;

// The size of an axis.
struct Dim {
  enum class Kind {
    kFixed,    // size
    kBatch,    // size times the batch, which the one who runs the model chooses
    kUnknown,  // it follows the numbers
  };
  std::int64_t size = 0;
  Kind kind = Kind::kFixed;
  bool operator==(const Dim&) const = default;
};
using Dims = std::vector<Dim>;

struct Graph;
using Attribute = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>,
                               std::shared_ptr<const Graph>>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

struct Operation {
  std::string op;    // "Conv"
  std::string name;  // unique
  std::vector<std::string> inputs, outputs;
  Attributes attributes;
};

// A tensor that the file holds: floats, or whole numbers where `integers` has some.
struct Constant {
  std::string name;
  std::vector<std::int64_t> dims{};
  // The numbers that floats() returns where `own` is empty: a param's numbers, which the net keeps.
  std::span<const float> borrowed{};
  std::vector<float> own{};
  std::vector<std::int64_t> integers{};
  bool is_integer = false;

  std::span<const float> floats() const { return own.empty() ? borrowed : std::span(own); }
  std::size_t bytes() const {
    return is_integer ? integers.size() * sizeof(std::int64_t) : floats().size_bytes();
  }
};

// An input or output, of floats.
struct Value {
  std::string name;
  Dims dims;
};

// Operations come after those whose outputs they take. Looks at numbers of the net that it was made
// of, which outlives it.
struct Graph {
  std::string name;
  std::vector<Operation> operations;
  std::vector<Constant> constants;
  std::vector<Value> inputs, outputs;
};

}  // namespace shoal::onnx
