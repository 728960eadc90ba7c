// Splits a prototxt into tokens and finds the field of each.
#include "shoal/proto/text_scan.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <set>
#include <utility>

#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/proto/fork_fields.h"

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

std::string with_edits(const std::string& text, std::vector<Edit> edits) {
  std::sort(edits.begin(), edits.end(),
            [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
  std::string out;
  std::size_t done = 0;
  for (const Edit& edit : edits) {
    out.append(text, done, edit.begin - done).append(edit.text);
    done = edit.end;
  }
  return out.append(text, done);
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

// The text of the field at tokens [begin, end), with nothing but its line ends left.
std::string blanked(const std::string& text, std::size_t begin, std::size_t end) {
  std::string blank = text.substr(begin, end - begin);
  std::replace_if(
      blank.begin(), blank.end(), [](char c) { return c != '\n'; }, ' ');
  return blank;
}

// Rewrites what one file has of other families' spellings.
class Rewriter {
 public:
  Rewriter(const std::vector<Token>& tokens, const std::string& text, const Descriptor& root,
           const std::string& name)
      : tokens_(tokens), text_(text), root_(root), name_(name) {}

  // Looks at the field that begins at `index`, in `message`. Returns whether it takes it away.
  bool look(std::size_t index, const Descriptor* message) {
    const Token& token = tokens_[index];
    const Token* value = index + 2 < tokens_.size() ? &tokens_[index + 2] : nullptr;
    const bool at_top = message == &root_ && root_.name() == "SolverParameter";
    if (token.text == "ceil_mode" && value && message && message->name() == "PoolingParameter") {
      ceil_mode(token, *value);
    } else if (token.text == "device_id" && at_top && value && value->is_string) {
      edits_.push_back({token.begin, token.end, "device_list"});
      LOG(INFO) << place(token) << ": device_id: " << value->text
                << " (a list, as Poseidon has it) read as device_list";
    } else if (token.text == "layer_blobs_global_idx" && at_top) {
      blank(index);
      if (said_.insert(token.text).second)
        LOG(WARNING) << place(token)
                     << ": layer_blobs_global_idx (of Poseidon) is not needed and is ignored";
      return true;
    } else if (const auto reading = reading_of(message, token.text, value ? value->text : "")) {
      return read(*reading, index);
    }
    return false;
  }
  std::vector<Edit> edits() && { return std::move(edits_); }

 private:
  std::string place(const Token& token) const { return str(name_, ":", token.line + 1); }

  void ceil_mode(const Token& token, const Token& value) {
    const auto is = [&](auto... words) { return ((value.text == words) || ...); };
    const bool yes = is("true", "True", "t", "1"), no = is("false", "False", "f", "0");
    if (!yes && !no) return;
    edits_.push_back({token.begin, token.end, "round_mode"});
    edits_.push_back({value.begin, value.end, yes ? "CEIL" : "FLOOR"});
    LOG(INFO) << place(token) << ": ceil_mode: " << value.text
              << " (of OpenCV and forks) read as round_mode: " << (yes ? "CEIL" : "FLOOR");
  }

  void blank(std::size_t index) {
    const std::size_t begin = tokens_[index].begin,
                      end = tokens_[std::min(after_field(tokens_, index), tokens_.size()) - 1].end;
    edits_.push_back({begin, end, blanked(text_, begin, end)});
  }

  bool read(const ForkReading& reading, std::size_t index) {
    const Token& token = tokens_[index];
    const std::string as = std::string(reading.as);
    if (as.empty()) {
      blank(index);
    } else {
      edits_.push_back({token.begin, token.end, as});
      if (!reading.value.empty())
        edits_.push_back(
            {tokens_[index + 2].begin, tokens_[index + 2].end, std::string(reading.value)});
    }
    if (said_.insert(token.text).second)
      LOG(INFO) << place(token) << ": " << token.text << " (of " << reading.fork << ") "
                << (as.empty() ? "is passed over: " : str("is read as ", as, ": "))
                << reading.reason;
    return as.empty();
  }

  const std::vector<Token>& tokens_;
  const std::string& text_;
  const Descriptor& root_;
  const std::string& name_;
  std::vector<Edit> edits_;
  std::set<std::string> said_;  // fields that the log has named
};

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

PlaceWalk::PlaceWalk(const Descriptor& root) : blocks_{{&root}} {}

void PlaceWalk::step(const std::vector<Token>& tokens, std::size_t index) {
  const std::string& text = tokens[index].text;
  Block& here = blocks_.back();
  if (is_field_name(tokens, index)) {
    here.name = text;
    here.field = here.message ? here.message->FindFieldByName(text) : nullptr;
  } else if (text == "{" || text == "<") {
    blocks_.push_back({here.field ? here.field->message_type() : nullptr});
  } else if ((text == "}" || text == ">") && blocks_.size() > 1) {
    blocks_.pop_back();
  }
}

Place PlaceWalk::place() const {
  Place place{blocks_.back().message, blocks_.back().field, ""};
  // No schema goes so deep, and paths would grow without bound.
  const std::size_t depth = std::min(blocks_.size() - 1, kDeepestBlock);
  for (std::size_t i = 0; i < depth; ++i)
    place.path += (place.path.empty() ? "" : ".") + blocks_[i].name;
  return place;
}

Place place_of(const std::vector<Token>& tokens, std::size_t index, const Descriptor& root) {
  PlaceWalk walk(root);
  for (std::size_t i = 0; i < index && i < tokens.size(); ++i) walk.step(tokens, i);
  return walk.place();
}

std::vector<Token> unknown_types(const std::vector<Token>& tokens, const Descriptor& root) {
  std::vector<Token> unknown;
  PlaceWalk walk(root);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Place place = walk.place();
    const bool is_type = place.field && place.field->name() == "type" && place.field->enum_type() &&
                         place.message->name() == "V1LayerParameter";
    if (is_type && tokens[i].is_name && !is_field_name(tokens, i) &&
        !place.field->enum_type()->FindValueByName(tokens[i].text))
      unknown.push_back(tokens[i]);
    walk.step(tokens, i);
  }
  return unknown;
}

std::string rewrite_aliases(std::string text, const Descriptor& root, const std::string& name) {
  const std::vector<Token> tokens = scan(text);
  Rewriter rewriter(tokens, text, root, name);
  PlaceWalk walk(root);
  std::size_t next = 0;  // what is inside a field that goes away is not looked at
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i >= next && is_field_name(tokens, i) && rewriter.look(i, walk.message()))
      next = after_field(tokens, i);
    walk.step(tokens, i);
  }
  return with_edits(text, std::move(rewriter).edits());
}

}  // namespace shoal
