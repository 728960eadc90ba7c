// Repeats public bug reports about pictures, lists and databases: the right values, and words that
// name the cause.
#include <gtest/gtest.h>

#include "support/reports_rig.h"

namespace shoal::test {
namespace {

// The orientation 6 stands for a quarter turn: 4 x 6 pixels would become 6 x 4.
TEST_F(Reports, NoPictureIsTurnedByItsExif) {
  const std::string plain = or_throw(encode_image(picture(), "jpg"));
  for (const char orientation : {'\1', '\3', '\6', '\x8'}) {
    std::string exif(
        "\xff\xe1\0\x22"
        "Exif\0\0II*\0\x8\0\0\0\1\0\x12\1\3\0\1\0\0\0",
        28);
    exif += std::string{orientation, 0, 0, 0, 0, 0, 0, 0};
    const std::string turned = plain.substr(0, 2) + exif + plain.substr(2);
    for (const Colour colour : {Colour::kAsStored, Colour::kColour, Colour::kGrey}) {
      const Image image = or_throw(decode_image(turned, colour));
      EXPECT_EQ(image.size.height, 4);
      EXPECT_LT(image.pixels.front(), 60) << int{orientation};
      EXPECT_GT(image.pixels.back(), 180) << int{orientation};
    }
    give("o.jpg", turned);
    give("list", "o.jpg 0\n");
    for (const char* const kind : {"--noencoded", "--encoded"}) {
      ASSERT_EQ(run({"convert_imageset", kind, directory_ + "/", at("list"),
                     at(str("db", kind, int{orientation}))})
                    .code,
                0);
      const Datum made = parse(records(at(str("db", kind, int{orientation})))[0].second);
      EXPECT_EQ(made.height(), 4) << kind;
      EXPECT_EQ(made.width(), 6) << kind;
      if (made.encoded()) {
        EXPECT_EQ(made.data(), turned);
      }
    }
  }
}

TEST_F(Reports, APictureThatIsCutShortIsListedAsBad) {
  Image large{{3, 64, 64}, std::vector<std::uint8_t>(64 * 64 * 3)};
  for (std::size_t i = 0; i < large.pixels.size(); ++i)
    large.pixels[i] = static_cast<std::uint8_t>(i * 37 % 251);
  for (const std::string type : {"jpg", "png"}) {
    const std::string whole = or_throw(encode_image(large, type));
    EXPECT_FALSE(is_cut_short(whole));
    EXPECT_FALSE(is_cut_short(whole + "tail"));
    for (const std::size_t length : {whole.size() / 2, whole.size() - 6})
      EXPECT_TRUE(is_cut_short(whole.substr(0, length))) << type << " of " << length << " bytes";
    give("whole." + type, whole);
    give("half." + type, whole.substr(0, whole.size() / 2));
    give("list", str("whole.", type, " 0\nhalf.", type, " 1\n"));
    const Ran ran = run({"convert_imageset", directory_ + "/", at("list"), at("db_" + type)});
    EXPECT_EQ(ran.code, 4);
    EXPECT_HAS(ran.err, str("list:2: the image ", at("half." + type), " "));
    EXPECT_EQ(records(at("db_" + type)).size(), 1u);
  }
}

TEST_F(Reports, FeaturesNeedNoLabels) {
  put_file(at("net.prototxt"),
           "layer { name: 'in' type: 'DummyData' top: 'x' top: 'label' dummy_data_param { shape { "
           "dim: 4 dim: 3 } shape { dim: 4 dim: 5 } } }\n"
           "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' inner_product_param { "
           "num_output: 2 } }\n");
  const std::string weights = at("w");
  put_file(at("solver.prototxt"), str("net: '", at("net.prototxt"),
                                      "' base_lr: 0 lr_policy: 'fixed' max_iter: 1 "
                                      "snapshot_prefix: '",
                                      weights, "'"));
  ASSERT_EQ(run({"train", "--solver=" + at("solver.prototxt")}).code, 0);
  const auto extract = [&](const std::string& out, const std::string& flag) {
    std::vector<std::string> words = {"extract_features",
                                      "--model=" + at("net.prototxt"),
                                      "--weights=" + weights + "_iter_1.caffemodel",
                                      "--extract_feature_blob_names=ip",
                                      "--save_feature_leveldb_names=" + at(out),
                                      "--backend=text",
                                      "--num_mini_batches=5"};
    if (!flag.empty()) words.push_back(flag);
    return run(words);
  };
  const Ran ran = extract("f", "");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string text = get_file(at("f"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 20);
  EXPECT_EQ(values_of(text, "0000000000 "), std::vector<std::string>{"-"});
  EXPECT_EQ(extract("g", "--label_blob=label").code, 3) << "it was asked for";
}

TEST_F(Reports, ListsMayBeginWithAByteOrderMark) {
  give("0.png", or_throw(encode_image(picture(), "png")));
  give("list",
       "\xef\xbb\xbf"
       "0.png 7\r\n0.png 1\r\n");
  ASSERT_EQ(run({"convert_imageset", directory_ + "/", at("list"), at("db")}).code, 0);
  EXPECT_EQ(parse(records(at("db"))[0].second).label(), 7);
  give("wide", std::string("\xff\xfe"
                           "0\0.\0p\0n\0g\0 \0"
                           "7\0\n\0",
                           18));
  const Ran wide = run({"convert_imageset", directory_ + "/", at("wide"), at("db2")});
  EXPECT_EQ(wide.code, 4);
  EXPECT_HAS(wide.err, "wide is UTF-16; save it as UTF-8");
  const Ran net =
      time_of(str("layer { name: 'd' type: 'ImageData' top: 'x' top: 'y' "
                  "image_data_param { source: '",
                  at("list"), "' root_folder: '", directory_, "/' batch_size: 2 } }"));
  EXPECT_EQ(net.code, 0) << net.err;
}

TEST_F(Reports, SeveralLabelsAndAMissingSlashAreNamed) {
  give("0.png", or_throw(encode_image(picture(), "png")));
  give("list", "0.png 0 1 1\n");
  const Ran several = run({"convert_imageset", directory_ + "/", at("list"), at("db")});
  EXPECT_EQ(several.code, 4);
  EXPECT_HAS(several.err, "more than one number follows the path, and a record has one label");
  give("one", "0.png 0\n");
  const Ran slash =
      time_of(str("layer { name: 'd' type: 'ImageData' top: 'x' top: 'y' "
                  "image_data_param { source: '",
                  at("one"), "' root_folder: '", directory_, "' batch_size: 1 } }"));
  EXPECT_EQ(slash.code, 4);
  EXPECT_HAS(slash.err, "root_folder: there is no " + directory_ + "0.png, but a " + at("0.png"));
  EXPECT_HAS(slash.err, "needs a / at its end");
}

TEST_F(Reports, AFileBesideTheOneThatNamesItIsPointedOut) {
  std::filesystem::create_directory(at("s"));
  put_file(at("s/net.prototxt"), str(kConstant, kProduct, kLoss));
  put_file(at("s/solver.prototxt"),
           "net: 'net.prototxt' base_lr: 1 lr_policy: 'fixed' max_iter: 1");
  const Ran ran = run({"train", "--solver=" + at("s/solver.prototxt")});
  EXPECT_EQ(ran.code, 3);
  EXPECT_HAS(ran.err,
             "; there is a " + at("s/net.prototxt") + ": paths are taken from the current");
  ASSERT_OK(write_records("lmdb", at("s/db"), small_records(2)));
  put_file(at("s/data.prototxt"),
           "layer { name: 'd' type: 'Data' top: 'x' data_param { source: "
           "'db' backend: LMDB batch_size: 1 } }");
  const Ran data = run({"time", "--model=" + at("s/data.prototxt")});
  EXPECT_EQ(data.code, 4);
  EXPECT_HAS(data.err, "source: there is no db; there is a " + at("s/db"));
}

TEST_F(Reports, GreyAmongColourWantsAColourAndNoSize) {
  const std::string grey = or_throw(encode_image(picture(1), "png")),
                    colour = or_throw(encode_image(picture(3), "png"));
  ASSERT_OK(write_records("lmdb", at("db"),
                          {{"0", encoded_datum(colour, 0)}, {"1", encoded_datum(grey, 0)}}));
  const auto net = [&](const char* more) {
    return str("layer { name: 'd' type: 'Data' top: 'x' data_param { source: '", at("db"),
               "' backend: LMDB batch_size: 2 } ", more, " }");
  };
  const Ran ran = time_of(net(""));
  EXPECT_EQ(ran.code, 4);
  EXPECT_HAS(ran.err, "force_color or force_gray");
  EXPECT_LACKS(ran.err, "crop_size");
  EXPECT_EQ(time_of(net("transform_param { force_gray: true }")).code, 0);
  const Ran mean = run({"compute_image_mean", at("db")});
  EXPECT_EQ(mean.code, 4);
  EXPECT_HAS(mean.err, "one number of channels");
  EXPECT_LACKS(mean.err, "resize");
}

TEST_F(Reports, RecordsOfTheSsdForkAndRecordsWithoutLabelsAreNamed) {
  Records wrapped, unlabelled;
  Datum bare;
  bare.set_channels(1), bare.set_height(1), bare.set_width(1), bare.set_data("a");
  for (int i = 0; i < 4; ++i) {
    const std::string inner = datum(1, 2, 2, "abcd", i % 2);
    wrapped.emplace_back(str(i), str("\x0a", std::string(1, static_cast<char>(inner.size())), inner,
                                     std::string("\x10\0", 2)));
    unlabelled.emplace_back(str(i), bare.SerializeAsString());
  }
  ASSERT_OK(write_records("lmdb", at("ssd"), wrapped));
  ASSERT_OK(write_records("lmdb", at("bare"), unlabelled));
  const auto divide = [&](const std::string& source) {
    return run({"partition_data", "--num_partitions=2", "--mode=by_class", at(source)});
  };
  for (const Ran& ran :
       {run({"compute_image_mean", at("ssd")}), divide("ssd"),
        time_of(str("layer { name: 'd' type: 'Data' top: 'x' data_param { source: '", at("ssd"),
                    "' backend: LMDB batch_size: 2 } }"))}) {
    EXPECT_EQ(ran.code, 4);
    EXPECT_HAS(ran.err, "is an AnnotatedDatum of the SSD fork");
  }
  const Ran none = divide("bare");
  EXPECT_EQ(none.code, 4);
  EXPECT_HAS(none.err, "has no label, and by_class divides by labels");
}

}  // namespace
}  // namespace shoal::test
