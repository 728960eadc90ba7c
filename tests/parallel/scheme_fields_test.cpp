// Tests the list of the parameters of schemes (table/scheme/fields.def) against the schema, the
// schemes and the docs.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "shoal/base/file.h"
#include "shoal/base/text.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/table/scheme.h"
#include "support/places.h"

namespace shoal::parallel::scheme_fields_test {
namespace {

std::vector<std::string> owners_of(const table::SchemeField& field) {
  std::string owners = field.owners;
  std::erase_if(owners, [](char c) { return c == '!' || c == '?'; });
  std::vector<std::string> all = split(owners, ' ');
  std::ranges::sort(all);
  return all;
}

// Returns the parameters that the scheme names in an error; some depend on others.
std::set<std::string> parameters_of(const std::string& scheme) {
  std::set<std::string> has;
  for (const char* payload : {"", " payload=delta", " payload=weights"})
    for (const char* more : {"", " weighting=polynomial", " weedout=1"}) {
      const auto none = table::parse_scheme(scheme + payload + more + " nothing=1");
      const std::string words = none.error().message, it_has = "; it has ";
      const std::size_t begin = words.find(it_has);
      if (begin == std::string::npos || words.find("; it has no") != std::string::npos) continue;
      for (const std::string& name : split(words.substr(begin + it_has.size()), ','))
        has.insert(name);
    }
  if (!has.contains("weedout")) return has;
  has.insert({"merge_every", "max_version_lag"});
  return has;
}

TEST(SchemeFields, AreReadByTheSchemesThatHaveThem) {
  for (const std::string& scheme : table::scheme_names()) {
    std::set<std::string> has;
    for (const table::SchemeField& field : table::scheme_fields())
      if (std::ranges::count(owners_of(field), scheme) > 0) has.insert(field.name);
    for (const char* search :
         {"groups_file", "group_by", "profile_iterations", "min_group_size", "regroup_interval"})
      has.erase(search);
    EXPECT_EQ(parameters_of(scheme), has) << scheme;
  }
}

TEST(SchemeFields, AreThoseOfThePrototxt) {
  std::set<std::string> fields;
  const auto add = [&](const google::protobuf::Descriptor& type, const std::string& prefix) {
    for (int i = 0; i < type.field_count(); ++i) {
      const auto& field = *type.field(i);
      const std::string name = field.name() == "function" ? "weighting"
                               : field.message_type()     ? ""
                                                          : prefix + field.name();
      fields.insert(name);
      if (!field.enum_type()) continue;
      std::vector<std::string> words;
      for (int v = 0; v < field.enum_type()->value_count(); ++v)
        words.push_back(in_lower_case(field.enum_type()->value(v)->name()));
      const auto listed =
          std::ranges::find(table::scheme_fields(), name, &table::SchemeField::name);
      ASSERT_NE(listed, table::scheme_fields().end()) << name;
      EXPECT_EQ(listed->values, join(words)) << name;
    }
  };
  add(*SchemeParameter::descriptor(), "");
  add(*SchemeParameter::Weighting::descriptor(), "weighting_");
  std::set<std::string> listed = {"",           "type",         "iterations",
                                  "batch_size", "base_lr",      "test_interval",
                                  "momentum",   "weight_decay", "iter_size"};
  for (const table::SchemeField& field : table::scheme_fields()) listed.insert(field.name);
  EXPECT_EQ(fields, listed);
}

std::string reference() {
  std::string table =
      "| parameter | values | default | schemes | what it is |\n|---|---|---|---|---|\n";
  for (const table::SchemeField& field : table::scheme_fields()) {
    std::string values = field.values;
    if (const std::size_t bar = values.find('|'); bar != std::string::npos)
      values.insert(bar, "\\");
    table += str("| ", field.name, " | ", values, " | ", field.usual, " | ", join(owners_of(field)),
                 " | ", field.help, " |\n");
  }
  return table;
}

// The table in docs/choosing-a-scheme.md is this one. With SHOAL_WRITE_DOCS set, the test writes
// it.
TEST(SchemeFields, AreInTheDocs) {
  const auto path = shoal::test::repository_root() / "docs/choosing-a-scheme.md";
  const std::string text = read_file(path.string(), Code::kInternal).value();
  const std::string head = "| parameter | values |";
  const std::size_t begin = text.find(head);
  ASSERT_NE(begin, std::string::npos) << path;
  const std::size_t end = text.find("\n\n", begin) + 1;
  const std::string now = text.substr(0, begin) + reference() + text.substr(end);
  if (std::getenv("SHOAL_WRITE_DOCS")) std::ofstream(path) << now;
  EXPECT_TRUE(now == text || std::getenv("SHOAL_WRITE_DOCS"))
      << "docs/choosing-a-scheme.md: the table of parameters is not that of fields.def; "
         "`make docs` writes it";
}

}  // namespace
}  // namespace shoal::parallel::scheme_fields_test
