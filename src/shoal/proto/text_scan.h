// Splits a prototxt into tokens and finds where each stands in the schema. protobuf's parser, and
// not this file, checks the grammar.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace google::protobuf {
class Descriptor;
class FieldDescriptor;
}  // namespace google::protobuf

namespace shoal {

struct Token {
  std::string text;
  bool is_name = false, is_string = false;
  // `line` and `column` are as protobuf counts: from 0, and a tab moves to the next multiple of 8.
  int line = 0, column = 0;
  std::size_t begin = 0, end = 0;  // bytes of the text
};

// Returns all tokens up to the end or the first damage.
std::vector<Token> scan(const std::string& text);

// The message in which a token stands, and the field whose name was read last there; null where the
// schema does not know them.
struct Place {
  const google::protobuf::Descriptor* message = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;
  // The names of the fields that enclose it, outermost first: "layer.pooling_param".
  std::string path;
};
Place place_of(const std::vector<Token>& tokens, std::size_t index,
               const google::protobuf::Descriptor& root);

// Knows the place of each token while it goes through all of them.
class PlaceWalk {
 public:
  explicit PlaceWalk(const google::protobuf::Descriptor& root);
  // Goes on behind token `index`, which is the next.
  void step(const std::vector<Token>& tokens, std::size_t index);
  const google::protobuf::Descriptor* message() const { return blocks_.back().message; }
  Place place() const;

 private:
  struct Block {
    const google::protobuf::Descriptor* message;
    const google::protobuf::FieldDescriptor* field = nullptr;
    std::string name{};  // of the field read last
  };
  std::vector<Block> blocks_;  // the open ones
};

// Returns the types of V1 layers that their enum does not have, in order.
std::vector<Token> unknown_types(const std::vector<Token>& tokens,
                                 const google::protobuf::Descriptor& root);

// Rewrites spellings of other families that the schema cannot hold, line by line in place:
//   pooling_param { ceil_mode: true }   -> round_mode: CEIL, and false FLOOR (OpenCV and forks)
//   device_id: "0,1" of a solver        -> device_list: "0,1" (Poseidon)
//   layer_blobs_global_idx { ... }      -> nothing, with a warning (Poseidon)
// and the fields of fork_fields.h. Logs what it changes under `name`.
std::string rewrite_aliases(std::string text, const google::protobuf::Descriptor& root,
                            const std::string& name);

}  // namespace shoal
