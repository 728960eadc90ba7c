// Reads a prototxt into a message and collects its errors.
#include "shoal/proto/text_reader.h"

#include <google/protobuf/io/tokenizer.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/proto/text_characters.h"
#include "shoal/proto/text_scan.h"
#include "shoal/proto/text_words.h"

namespace shoal {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;
namespace io = google::protobuf::io;

constexpr std::size_t kMostErrors = 10;
constexpr int kDeepest = 50;  // blocks inside each other; a net of the schema has six

// Unknown fields reach us as warnings, so that parsing goes on and finds them all.
class Collector final : public io::ErrorCollector {
 public:
  void AddError(int line, io::ColumnNumber column, const std::string& text) override {
    const bool again =
        !complaints.empty() && complaints.back().line == line && complaints.back().column == column;
    // The parser stumbles twice over a broken token.
    if (!again) complaints.push_back({line, column, text});
  }
  void AddWarning(int line, io::ColumnNumber column, const std::string& text) override {
    if (text.find("has no field named") != std::string::npos)
      complaints.push_back({line, column, text});
  }
  std::vector<Complaint> complaints;
};

[[noreturn]] void throw_errors(const std::vector<Complaint>& complaints, const std::string& name,
                               const std::string& text, const Descriptor& root) {
  const std::vector<Token> tokens = scan(text);
  std::string words;
  for (std::size_t i = 0; i < std::min(complaints.size(), kMostErrors); ++i)
    words += str(i ? "\n" : "", to_words(complaints[i], name, text, tokens, root));
  if (complaints.size() > kMostErrors)
    words += str("\n", name, ": and ", complaints.size() - kMostErrors, " more");
  throw ConfigError(Code::kConfig, words);
}

bool parse(const std::string& text, Message& message, TextPlaces& places, Collector& collector) {
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.WriteLocationsTo(&places);
  parser.AllowPartialMessage(true);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(kDeepest);
  return parser.ParseFromString(text, &message);
}

// The parser ends at the first layer type that the enum of V1 layers does not have. Adds complaints
// about all others, each type once, and about what is wrong behind them.
void complain_of_types(const std::string& text, const Descriptor& root, Message& message,
                       std::vector<Complaint>& complaints) {
  const std::vector<Token> types = unknown_types(scan(text), root);
  if (types.empty()) return;
  std::string known = text;
  std::set<std::string> said;
  Collector rest;
  for (const Token& type : types) {
    known.replace(type.begin, type.text.size(), type.text.size(), ' ');
    known[type.begin] = '0';  // of NONE
    if (said.insert(type.text).second)
      rest.complaints.push_back(
          {type.line, type.column,
           str("Unknown enumeration value of \"", type.text, "\" for field \"type\".")});
  }
  TextPlaces unused;
  parse(known, message, unused, rest);
  complaints = std::move(rest.complaints);
  std::ranges::sort(complaints, {},
                    [](const Complaint& one) { return std::pair(one.line, one.column); });
}

// Returns the first required field that is not there, by walking down; "" if all are.
std::string find_missing(const Message& message, const TextPlaces* places, const std::string& name,
                         const std::string& place) {
  std::vector<std::string> missing;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_required() && !message.GetReflection()->HasField(message, &field))
      missing.push_back(field.name());
  }
  if (!missing.empty())
    return str(place, ": ", message.GetDescriptor()->name(), " needs a value for '", missing[0],
               "'");
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    if (!field->message_type()) continue;
    const int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const int index = field->is_repeated() ? i : -1;
      const Message& inner = index < 0
                                 ? message.GetReflection()->GetMessage(message, field)
                                 : message.GetReflection()->GetRepeatedMessage(message, field, i);
      const TextPlaces* deeper = places ? places->GetTreeForNested(field, index) : nullptr;
      const std::string found = find_missing(
          inner, deeper, name, places ? place_in(*places, name, *field, index) : place);
      if (!found.empty()) return found;
    }
  }
  return "";
}

}  // namespace

std::string place_in(const TextPlaces& places, const std::string& name,
                     const FieldDescriptor& field, int index) {
  return str(name, ":", places.GetLocation(&field, index).line + 1);
}

void parse_text(std::string text, const std::string& name, Message& message, TextPlaces& places) {
  // Blanks a byte order mark, as some editors leave it.
  if (text.starts_with("\xef\xbb\xbf")) text.replace(0, 3, "   ");
  check_characters(text, name);
  text = rewrite_aliases(std::move(text), *message.GetDescriptor(), name);
  Collector collector;
  const bool parsed = parse(text, message, places, collector);
  std::vector<Complaint>& complaints = collector.complaints;
  if (!complaints.empty() && complaints.back().text.starts_with("Unknown enumeration value"))
    complain_of_types(text, *message.GetDescriptor(), message, complaints);
  if (!complaints.empty()) throw_errors(complaints, name, text, *message.GetDescriptor());
  if (!parsed) throw ConfigError(Code::kConfig, name, ": not a prototxt");
  const std::string missing = find_missing(message, &places, name, name);
  if (!missing.empty()) throw ConfigError(Code::kConfig, missing);
}

}  // namespace shoal
