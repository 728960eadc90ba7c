// Splits a prototxt into tokens and finds the field of each.
#include "shoal/proto/text_scan.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "shoal/base/error.h"
#include "shoal/base/log.h"

namespace shoal {
namespace {

using google::protobuf::Descriptor;
namespace io = google::protobuf::io;

constexpr int kTab = 8;  // protobuf's
constexpr std::size_t kDeepestBlock = 50;

class Deaf final : public io::ErrorCollector {  // the parser will say it, with better words
 public:
  void AddError(int, io::ColumnNumber, const std::string&) override {}
};

std::vector<std::size_t> line_starts(const std::string& text) {
  std::vector<std::size_t> starts = {0};
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') starts.push_back(i + 1);
  return starts;
}

// Finds the byte of each line and column, which come in rising order, without going over a long
// line again and again.
class Bytes {
 public:
  explicit Bytes(const std::string& text) : text_(text), starts_(line_starts(text)) {}
  std::size_t at(int line, int column) {
    if (line != line_) line_ = line, column_ = 0, byte_ = starts_[static_cast<std::size_t>(line)];
    for (; column_ < column && byte_ < text_.size(); ++byte_)
      column_ += text_[byte_] == '\t' ? kTab - column_ % kTab : 1;
    return byte_;
  }

 private:
  const std::string& text_;
  std::vector<std::size_t> starts_;
  int line_ = -1, column_ = 0;
  std::size_t byte_ = 0;
};

struct Edit {
  std::size_t begin, end;
  std::string text;
};

std::string apply(std::string text, std::vector<Edit> edits) {
  std::sort(edits.begin(), edits.end(),
            [](const Edit& a, const Edit& b) { return a.begin > b.begin; });
  for (const Edit& edit : edits) text.replace(edit.begin, edit.end - edit.begin, edit.text);
  return text;
}

// Returns the token after the value or block of the field named at `index`.
std::size_t after_field(const std::vector<Token>& tokens, std::size_t index) {
  ++index;
  if (tokens[index].text == ":") ++index;
  if (index < tokens.size() && tokens[index].text != "{" && tokens[index].text != "<")
    return index + 1;
  int depth = 0;
  for (; index < tokens.size(); ++index) {
    const std::string& text = tokens[index].text;
    if (text == "{" || text == "<") ++depth;
    if ((text == "}" || text == ">") && --depth == 0) return index + 1;
  }
  return index;
}

bool is_field_name(const std::vector<Token>& tokens, std::size_t index) {
  if (!tokens[index].is_name || index + 1 >= tokens.size()) return false;
  const std::string& next = tokens[index + 1].text;
  return next == ":" || next == "{" || next == "<";
}

// Rewrites one `name: value` or block that starts at `index`, if it is one of the aliases.
void rewrite_one(const std::vector<Token>& tokens, std::size_t index, const Descriptor& root,
                 const std::string& text, const std::string& name, std::vector<Edit>& edits) {
  const Token& token = tokens[index];
  const Token* value = index + 2 < tokens.size() ? &tokens[index + 2] : nullptr;
  const std::string place = str(name, ":", token.line + 1);
  const bool in_solver = root.name() == "SolverParameter";
  if (token.text == "ceil_mode" && value &&
      place_of(tokens, index, root).path.ends_with("pooling_param")) {
    const bool yes =
        value->text == "true" || value->text == "True" || value->text == "t" || value->text == "1";
    const bool no = value->text == "false" || value->text == "False" || value->text == "f" ||
                    value->text == "0";
    if (!yes && !no) return;
    edits.push_back({token.begin, token.end, "round_mode"});
    edits.push_back({value->begin, value->end, yes ? "CEIL" : "FLOOR"});
    LOG(INFO) << place << ": ceil_mode: " << value->text
              << " (of OpenCV and forks) read as round_mode: " << (yes ? "CEIL" : "FLOOR");
  } else if (token.text == "device_id" && in_solver && value && value->is_string &&
             place_of(tokens, index, root).path.empty()) {
    edits.push_back({token.begin, token.end, "device_list"});
    LOG(INFO) << place << ": device_id: " << value->text
              << " (a list, as Poseidon has it) read as device_list";
  } else if (token.text == "layer_blobs_global_idx" && in_solver &&
             place_of(tokens, index, root).path.empty()) {
    const std::size_t end = tokens[std::min(after_field(tokens, index), tokens.size()) - 1].end;
    std::string blank = text.substr(token.begin, end - token.begin);
    std::replace_if(
        blank.begin(), blank.end(), [](char c) { return c != '\n'; }, ' ');
    edits.push_back({token.begin, end, blank});
  }
}

}  // namespace

std::vector<Token> scan(const std::string& text) {
  Bytes bytes(text);
  io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  Deaf deaf;
  io::Tokenizer tokenizer(&stream, &deaf);
  tokenizer.set_allow_f_after_float(true);
  tokenizer.set_comment_style(io::Tokenizer::SH_COMMENT_STYLE);
  tokenizer.set_require_space_after_number(false);
  tokenizer.set_allow_multiline_strings(true);
  std::vector<Token> tokens;
  while (tokenizer.Next()) {
    const auto& now = tokenizer.current();
    const std::size_t begin = bytes.at(now.line, now.column);
    tokens.push_back({now.text, now.type == io::Tokenizer::TYPE_IDENTIFIER,
                      now.type == io::Tokenizer::TYPE_STRING, now.line, now.column, begin,
                      begin + now.text.size()});
  }
  return tokens;
}

Place place_of(const std::vector<Token>& tokens, std::size_t index, const Descriptor& root) {
  std::vector<Place> stack = {{&root, nullptr, ""}};
  std::vector<std::string> names = {""};  // the field read last, by depth
  for (std::size_t i = 0; i < index && i < tokens.size(); ++i) {
    const std::string& text = tokens[i].text;
    Place& here = stack.back();
    if (is_field_name(tokens, i)) {
      names.back() = text;
      here.field = here.message ? here.message->FindFieldByName(text) : nullptr;
    } else if (text == "{" || text == "<") {
      const Descriptor* inner = here.field ? here.field->message_type() : nullptr;
      // No schema goes so deep, and paths would grow without bound.
      const bool deep = stack.size() > kDeepestBlock;
      stack.push_back({inner, nullptr,
                       deep                ? here.path
                       : here.path.empty() ? names.back()
                                           : here.path + "." + names.back()});
      names.emplace_back();
    } else if ((text == "}" || text == ">") && stack.size() > 1) {
      stack.pop_back();
      names.pop_back();
    }
  }
  return stack.back();
}

std::string rewrite_aliases(std::string text, const Descriptor& root, const std::string& name) {
  const std::vector<Token> tokens = scan(text);
  std::vector<Edit> edits;
  bool warned = false;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!is_field_name(tokens, i)) continue;
    const std::size_t before = edits.size();
    rewrite_one(tokens, i, root, text, name, edits);
    if (edits.size() > before && tokens[i].text == "layer_blobs_global_idx" && !warned) {
      LOG(WARNING) << name << ":" << tokens[i].line + 1
                   << ": layer_blobs_global_idx (of Poseidon) is not needed and is ignored";
      warned = true;
    }
  }
  return apply(std::move(text), std::move(edits));
}

}  // namespace shoal
