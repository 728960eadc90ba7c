// The tools convert_annoset and get_image_size, and the example's lists, as a user runs them.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <tuple>

#include "shoal/data/image.h"
#include "shoal/data/xml.h"
#include "shoal/proto/annotated.pb.h"
#include "support/data_files.h"
#include "support/data_tools.h"
#include "support/places.h"

namespace shoal::test::convert_annoset_test {
namespace {

constexpr const char* kLabelMap =
    "item { name: 'none' label: 0 } item { name: 'cat' label: 3 } item { name: '17' label: 5 }";

class DataConvertAnnoset : public DataTools {
 protected:
  void SetUp() override {
    DataTools::SetUp();
    Image image{{3, 4, 8}, std::vector<std::uint8_t>(96, 7)};
    for (const char* const name : {"a.png", "b.png"})
      give(name, or_throw(encode_image(image, "png")));
    map_ = give("map.prototxt", kLabelMap);
  }
  Ran convert(const std::string& list, std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), "convert_annoset");
    flags.push_back("--label_map_file=" + map_);
    for (const std::string& word : {directory_ + "/", give("list.txt", list), directory_ + "/db"})
      flags.push_back(word);
    return run(flags);
  }
  std::vector<AnnotatedDatum> read() {
    std::vector<AnnotatedDatum> all;
    for (const auto& [key, value] : records(directory_ + "/db", "lmdb")) {
      keys_.push_back(key);
      EXPECT_TRUE(all.emplace_back().ParseFromString(value));
    }
    return all;
  }
  // "label/instance:xmin,ymin,xmax,ymax,difficult" for each box.
  static std::string boxes(const AnnotatedDatum& record) {
    std::string text;
    for (const AnnotationGroup& group : record.annotation_group())
      for (const Annotation& one : group.annotation()) {
        const NormalizedBBox& box = one.bbox();
        text += str(text.empty() ? "" : " ", group.group_label(), "/", one.instance_id(), ":",
                    box.xmin(), ",", box.ymin(), ",", box.xmax(), ",", box.ymax(), ",",
                    box.difficult());
      }
    return text;
  }
  std::string map_;
  std::vector<std::string> keys_;
};

std::string object(const std::string& name, int xmin, int ymin, int xmax, int ymax,
                   int difficult = 0) {
  return str("<object><name>", name, "</name><difficult>", difficult, "</difficult><bndbox><xmin>",
             xmin, "</xmin><ymin>", ymin, "</ymin><xmax>", xmax, "</xmax><ymax>", ymax,
             "</ymax></bndbox></object>");
}

TEST_F(DataConvertAnnoset, ReadsFilesOfVocWithGroupsAndInstances) {
  give("a.xml",
       "<?xml version='1.0'?><!-- drawn --><annotation>\n<size><width>8</width><height>4</height>"
       "</size>" +
           object("cat", 0, 1, 4, 4) + object("17", 2, 0, 8, 2, 1) + object("cat", 4, 2, 8, 4) +
           "</annotation>");
  give("b.xml", "<annotation></annotation>");
  const Ran ran = convert("a.png a.xml\nb.png b.xml\n");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::vector<AnnotatedDatum> all = read();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(keys_, (std::vector<std::string>{"00000000_a.png", "00000001_b.png"}));
  EXPECT_EQ(boxes(all[0]), "3/0:0,0.25,0.5,1,0 3/1:0.5,0.5,1,1,0 5/0:0.25,0,1,0.5,1");
  EXPECT_EQ(boxes(all[1]), "");
  EXPECT_EQ(all[0].type(), AnnotatedDatum::BBOX);
  EXPECT_EQ(all[0].datum().data(), std::string(96, 7));
  EXPECT_EQ(all[0].datum().width(), 8);
}

TEST_F(DataConvertAnnoset, ReadsFilesOfCocoAndLines) {
  give("a.json", R"({"image": {"file_name": "a.png", "height": 4, "width": 8},
                     "annotation": [{"category_id": 17, "bbox": [2, 1, 4, 2], "iscrowd": 1}]})");
  ASSERT_EQ(convert("a.png a.json\n", {"--label_type=json"}).code, 0);
  EXPECT_EQ(boxes(read().at(0)), "5/0:0.25,0.25,0.75,0.75,1");
  std::filesystem::remove_all(directory_ + "/db");
  give("a.txt", "2 0 0 4 4\n2 4 0 8 2\n\n");
  ASSERT_EQ(convert("a.png a.txt\n", {"--label_type=txt"}).code, 0);
  EXPECT_EQ(boxes(read().at(0)), "2/0:0,0,0.5,1,0 2/1:0.5,0,1,0.5,0");
}

TEST_F(DataConvertAnnoset, SizesAndEncodesAsItIsTold) {
  give("a.xml", "<annotation>" + object("cat", 0, 0, 8, 2) + "</annotation>");
  for (const auto& [flag, height, width] : {std::tuple{"--min_dim=8", 8, 16},
                                            {"--max_dim=4", 2, 4},
                                            {"--min_dim=8 --max_dim=12", 6, 12}}) {
    std::vector<std::string> flags;
    std::istringstream words(flag);
    for (std::string word; words >> word;) flags.push_back(word);
    const Ran ran = convert("a.png a.xml\n", flags);
    ASSERT_EQ(ran.code, 0) << ran.err;
    const AnnotatedDatum one = read().at(0);
    EXPECT_EQ(one.datum().height(), height) << flag;
    EXPECT_EQ(one.datum().width(), width) << flag;
    EXPECT_EQ(boxes(one), "3/0:0,0,1,0.5,0") << "of the picture as it was";
    std::filesystem::remove_all(directory_ + "/db");
  }
  ASSERT_EQ(convert("a.png a.xml\n", {"--encoded", "--encode_type=jpg", "--gray",
                                      "--resize_height=5", "--resize_width=6"})
                .code,
            0);
  const AnnotatedDatum one = read().at(0);
  EXPECT_TRUE(one.datum().encoded());
  EXPECT_EQ(one.datum().data().substr(0, 2), "\xFF\xD8");
  EXPECT_EQ(one.datum().channels(), 1);
}

TEST_F(DataConvertAnnoset, SaysWhatIsWrongAndLeavesItOut) {
  give("a.xml", "<annotation>" + object("cat", 0, 0, 8, 2) + "</annotation>");
  give("dog.xml", "<annotation>" + object("dog", 0, 0, 8, 2) + "</annotation>");
  give("cut.xml", "<annotation><object>\n<name>cat</nam></object></annotation>");
  Ran ran = convert("a.png a.xml\nb.png dog.xml\nb.png cut.xml\nb.png none.xml\nno.png a.xml\n");
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "list.txt:2: " + directory_ + "/dog.xml: 'dog' is not in the label map");
  EXPECT_HAS(ran.err, "list.txt:3: " + directory_ + "/cut.xml: line 2: <name> is closed by nam");
  EXPECT_HAS(ran.err, "list.txt:4: ");
  EXPECT_HAS(ran.err, "list.txt:5: ");
  EXPECT_HAS(ran.err, "4 bad pictures were left out; the other 1 are in " + directory_ + "/db");
  EXPECT_EQ(read().size(), 1u);
  std::filesystem::remove_all(directory_ + "/db");
  give("flat.xml",
       "<annotation>" + object("cat", 4, 0, 4, 2) + object("cat", 0, 0, 9, 4) + "</annotation>");
  ran = convert("a.png flat.xml\n");
  EXPECT_EQ(ran.code, 0);
  EXPECT_HAS(ran.err, "box 4, 0, 4, 2 has no width or no height, and is left out");
  EXPECT_HAS(ran.err, "box 0, 0, 9, 4 reaches beyond the picture, which is 8 x 4");
  EXPECT_EQ(boxes(read().at(0)), "3/0:0,0,1.125,1,0");
  ran = convert("a.png\n");
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "list.txt:1: 'a.png' is not \"picture annotations\"");
  ran = convert("a.png a.xml\n", {"--label_type=yaml"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_HAS(ran.err, "--label_type=yaml; it is xml, json or txt");
  EXPECT_HAS(convert("a.png a.xml\n", {"--min_dim=9", "--max_dim=8"}).err,
             "--min_dim=9 is above --max_dim=8");
}

TEST_F(DataConvertAnnoset, WritesTheSizesOfPictures) {
  const std::string list = give("list.txt", "a.png a.xml\nb.png b.xml\n"),
                    out = directory_ + "/sizes";
  ASSERT_EQ(run({"get_image_size", directory_ + "/", list, out}).code, 0);
  EXPECT_EQ(get_file(out), "a 4 8\nb 4 8\n");
  const std::string ids = give("ids", "a 12\nb 15\n");
  ASSERT_EQ(run({"get_image_size", "--name_id_file=" + ids, directory_ + "/", list, out}).code, 0);
  EXPECT_EQ(get_file(out), "12 4 8\n15 4 8\n");
  const Ran ran =
      run({"get_image_size", directory_ + "/", give("list.txt", "a.png\nc.png\n"), out});
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "c.png");
}

TEST_F(DataConvertAnnoset, ListsOfVocsFoldersNameWhatIsThere) {
  const std::string script = (repository_root() / "examples/ssd/create_list.py").string();
  const std::string root = fresh_directory("voc");
  for (const char* const folder : {"V/ImageSets/Main", "V/JPEGImages", "V/Annotations"})
    std::filesystem::create_directories(root + "/" + folder);
  put_file(root + "/V/ImageSets/Main/test.txt", "one\ntwo -1\n");
  for (const char* const file :
       {"V/JPEGImages/one.jpg", "V/JPEGImages/two.jpg", "V/Annotations/one.xml"})
    put_file(root + "/" + file, "x");
  Ran ran = run_program({"/usr/bin/env", "python3", script, root, "test", "V"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_HAS(ran.err, "names two, but there is no " + root + "/V/Annotations/two.xml");
  put_file(root + "/V/Annotations/two.xml", "x");
  ran = run_program({"/usr/bin/env", "python3", script, root, "test", "V"});
  EXPECT_EQ(
      ran.out,
      "V/JPEGImages/one.jpg V/Annotations/one.xml\nV/JPEGImages/two.jpg V/Annotations/two.xml\n");
}

TEST(Xml, ReadsTextEntitiesAndNestedElements) {
  const Result<XmlElement> root = parse_xml(
      "\xEF\xBB\xBF<!DOCTYPE a><a x='1'> one &lt;&amp;&#65;<b/><c><d> two "
      "</d></c><![CDATA[<&]]></a>");
  ASSERT_TRUE(root.ok()) << root.error().message;
  EXPECT_EQ(root.value().text, "one <&A<&");
  EXPECT_EQ(root.value().text_at("c/d"), "two");
  EXPECT_EQ(root.value().text_at("c/e"), "");
  EXPECT_EQ(root.value().children.size(), 2u);
  for (const auto& [text, words] : {std::pair{"", "line 1: no element begins here"},
                                    {"<a>\n<b>", "line 2: <b> is not closed"},
                                    {"<a></b>", "<a> is closed by b"},
                                    {"<a", "an element has no name"}})
    EXPECT_HAS(parse_xml(text).error().message, words);
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "<a>";
  EXPECT_HAS(parse_xml(deep).error().message, "more than 100 elements lie in each other");
}

}  // namespace
}  // namespace shoal::test::convert_annoset_test
