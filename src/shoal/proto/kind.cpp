// Finds out what a file holds, by its first fields if it is binary or first names if it is text.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <set>
#include <utility>

#include "shoal/base/regular_file.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/proto/text_scan.h"

namespace shoal {
namespace {

constexpr std::string_view kHdf5Magic = "\x89HDF\r\n\x1a\n";
constexpr std::size_t kHead = 64 << 10;

bool is_text(std::string_view head) {
  const auto is_control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < ' ' && byte != '\t' && byte != '\n' && byte != '\r' && byte != '\f' &&
           byte != '\v';
  };
  return std::none_of(head.begin(), head.end(), is_control);
}

// Takes a text for a solver unless more of the outermost names are a net's.
FileKind kind_of_text(std::string_view head) {
  int net = 0, solver = 0;
  const std::string text(head);
  const std::vector<Token> tokens = scan(text);
  int depth = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string& word = tokens[i].text;
    if (word == "{" || word == "<") ++depth;
    if (word == "}" || word == ">") --depth;
    if (depth > 0 || !tokens[i].is_name || i + 1 == tokens.size()) continue;
    const std::string& next = tokens[i + 1].text;
    if (next != ":" && next != "{" && next != "<") continue;
    const bool in_net = NetParameter::descriptor()->FindFieldByName(word) != nullptr;
    const bool in_solver = SolverParameter::descriptor()->FindFieldByName(word) != nullptr;
    if (in_net && !in_solver) ++net;
    if (in_solver && !in_net) ++solver;
  }
  if (net == 0 && solver == 0) return FileKind::kUnknown;
  return solver > net ? FileKind::kSolverText : FileKind::kNetText;
}

// Returns the outermost (field number, wire type) pairs, as far as `head` reaches; empty where it
// is no message.
std::set<std::pair<int, int>> outer_fields(std::string_view head) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(head.data()),
                                            static_cast<int>(head.size()));
  std::set<std::pair<int, int>> fields;
  while (const std::uint32_t tag = in.ReadTag()) {
    const int number = static_cast<int>(tag >> 3), type = static_cast<int>(tag & 7);
    std::uint64_t value = 0;
    std::uint32_t length = 0;
    bool good = number > 0;
    if (type == 0)
      good = good && in.ReadVarint64(&value);
    else if (type == 1)
      good = good && in.Skip(8);
    else if (type == 2)
      good = good && in.ReadVarint32(&length);
    else if (type == 5)
      good = good && in.Skip(4);
    else
      good = false;
    if (!good) return {};
    fields.insert({number, type});
    // Ends where a field goes on past the head.
    if (type == 2 && !in.Skip(static_cast<int>(std::min<std::uint32_t>(length, 1u << 30)))) break;
  }
  return fields;
}

FileKind kind_of_binary(std::string_view head) {
  constexpr int kVarint = 0, kLength = 2;
  const auto fields = outer_fields(head);
  const auto has = [&](int number, int type) { return fields.contains({number, type}); };
  if (fields.empty()) return FileKind::kUnknown;
  if (has(100, kLength) || has(1, kLength) || (has(2, kLength) && !has(1, kVarint)))
    return FileKind::kModel;
  if (has(1, kVarint) && has(2, kVarint) && has(3, kLength)) return FileKind::kRunState;
  if (has(5, kLength) || has(7, kLength) || has(8, kLength)) return FileKind::kBlob;
  if (has(1, kVarint) && has(2, kVarint) && !has(3, kVarint)) return FileKind::kRunState;
  if (has(1, kVarint) && (has(2, kLength) || has(3, kLength))) return FileKind::kSolverState;
  return FileKind::kUnknown;
}

}  // namespace

FileKind kind_of(std::string_view head) {
  if (head.empty()) return FileKind::kEmpty;
  if (head.starts_with(kHdf5Magic)) return FileKind::kHdf5;
  if (is_text(head)) return kind_of_text(head);
  return kind_of_binary(head);
}

FileKind kind_of_file(const std::string& path) {
  Result<RegularFile> file = RegularFile::open(path, Code::kConfig);
  if (!file.ok()) return FileKind::kUnknown;  // which its reader, too, finds and can name
  std::string head(kHead, '\0');
  const Result<std::size_t> read = file.value().read(head);
  if (!read.ok()) return FileKind::kUnknown;
  head.resize(read.value());
  return kind_of(head);
}

std::string to_words(FileKind kind) {
  switch (kind) {
    case FileKind::kEmpty: return "an empty file";
    case FileKind::kNetText: return "a net in text form (.prototxt)";
    case FileKind::kSolverText: return "a solver in text form (.prototxt)";
    case FileKind::kModel: return "a model (.caffemodel)";
    case FileKind::kSolverState: return "a solver state (.solverstate)";
    case FileKind::kRunState: return "the state of a run (.run)";
    case FileKind::kBlob: return "a single blob, such as a mean file";
    case FileKind::kHdf5: return "an HDF5 file";
    case FileKind::kUnknown: break;
  }
  return "not a file of Caffe's";
}

}  // namespace shoal
