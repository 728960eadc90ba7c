// Mistakes in nets and in the records and images that they read, as a user of the tools meets them;
// see support/bad_input.h.
#include <gtest/gtest.h>

#include "support/bad_input.h"

namespace shoal::test::bad_input_test {
namespace {

auto all(std::vector<Case> cases) { return testing::ValuesIn(std::move(cases)); }

TEST_P(BadInput, IsNamed) { run(GetParam()); }

// ---- nets

const std::string kIn =
    "layer { name: 'in' type: 'Input' top: 'in' input_param { shape { dim: 2 dim: 3 dim: 5 dim: 5 "
    "} } }\n";

Case net(const std::string& name, const std::string& text, const Words& words, int code = 3) {
  return {name,
          {{"net.prototxt", text}},
          {"time", "--model=@/net.prototxt", "--iterations=1", "--threads=1"},
          code,
          words};
}

// One layer above the input; the words follow its place.
Case layer(const std::string& name, const std::string& type, const std::string& fields,
           const std::string& words) {
  return net(
      name, kIn + "layer { name: 'x' type: '" + type + "' bottom: 'in' top: 'x' " + fields + " }\n",
      {"@/net.prototxt:2: layer 'x' (" + type + "): " + words});
}

Case conv(const std::string& name, const std::string& fields, const std::string& words) {
  return layer(name, "Convolution", "convolution_param { " + fields + " }", words);
}

Case pool(const std::string& name, const std::string& fields, const std::string& words) {
  return layer(name, "Pooling", "pooling_param { " + fields + " }", words);
}

Case input(const std::string& name, const std::string& dims, const std::string& words) {
  return net(
      name, "layer { name: 'in' type: 'Input' top: 'in' input_param { shape { " + dims + " } } }\n",
      {"@/net.prototxt:1: layer 'in' (Input): " + words});
}

const char* const kTooMany = " has more than 2147483647 elements";

INSTANTIATE_TEST_SUITE_P(
    Sizes, BadInput,
    all({
        conv("KernelLargerThanInput", "num_output: 1 kernel_size: 7",
             "the kernel spans 7 on spatial axis 0, but the input there is 5; bottom: 2 3 5 5"),
        conv("KernelZero", "num_output: 1 kernel_size: 0", "the kernel's size is 0"),
        conv("StrideZero", "num_output: 1 kernel_size: 3 stride: 0",
             "stride is 0; it must be from 1 to 2147483647"),
        conv("DilationZero", "num_output: 1 kernel_size: 3 dilation: 0", "dilation is 0"),
        conv("OutputsZero", "num_output: 0 kernel_size: 3",
             "num_output must be given, and be 1 or more"),
        conv("GroupZero", "num_output: 1 kernel_size: 3 group: 0", "group is 0"),
        conv("KernelOverflows", "num_output: 4 kernel_size: 4294967295",
             "the kernel's size is 4294967295; it must be from 1 to 2147483647"),
        conv("PadOverflows", "num_output: 4 kernel_size: 3 pad: 4294967295",
             "pad is 4294967295; it must be from 0 to 2147483647"),
        conv("PaddedPlaneOverflows", "num_output: 4 kernel_size: 3 pad: 65536 stride: 65536",
             "the plane with its padding, 131077 x 131077, has more than 2147483647 elements; "
             "bottom: 2 3 5 5"),
        pool("PoolStrideOverflows", "pool: STOCHASTIC kernel_size: 3 stride: 2147483648",
             "stride is 2147483648; it must be at most 2147483647"),
        pool("PoolPaddedPlaneOverflows", "kernel_size: 65537 pad: 65536 stride: 65536",
             "the plane with its padding, 131077 x 131077, has more than 2147483647 elements; "
             "bottom: 2 3 5 5"),
        net("PoolStrideBehindThePlane",
            kIn + "layer { name: 'x' type: 'Pooling' bottom: 'in' top: 'x' pooling_param { "
                  "kernel_size: 3 stride: 600000000 } }\n",
            {}, 0),
        conv("OutputsOverflow", "num_output: 4294967295 kernel_size: 3",
             std::string("the shape 4294967295 3 3 3") + kTooMany),
        pool("PoolLargerThanInput", "kernel_size: 7",
             "kernel 7 is larger than the input on axis 2, 5; bottom: 2 3 5 5"),
        pool("PoolZero", "kernel_size: 0", "the kernel's size is 0"),
        input("DimNegative", "dim: 2 dim: -3", "the shape 2 -3 has a negative size"),
        input("DimZero", "dim: 2 dim: 0", "top 'in' has no elements: its shape is 2 0 (0)"),
        input("DimOverflows", "dim: 9223372036854775807 dim: 2",
              std::string("the shape 9223372036854775807 2") + kTooMany),
        input("DimsOverflow", "dim: 65536 dim: 65536 dim: 65536 dim: 65536",
              std::string("the shape 65536 65536 65536 65536") + kTooMany),
        layer("InnerProductZero", "InnerProduct", "inner_product_param { num_output: 0 }",
              "num_output must be given, and be 1 or more"),
        layer("InnerProductOverflows", "InnerProduct",
              "inner_product_param { num_output: 4294967295 }",
              std::string("the shape 4294967295 75") + kTooMany),
    }),
    name_of);

const std::string kOther =
    "layer { name: 'i2' type: 'Input' top: 'i2' input_param { shape { dim: 2 dim: 3 dim: 5 dim: 4 "
    "} } }\n";
const std::string kBoth = "bottom: 'in' bottom: 'i2' top: 'x' }\n";

std::string ip(const std::string& name, const std::string& bottom, const std::string& fields) {
  return "layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" +
         name + "' " + fields + " }\n";
}

INSTANTIATE_TEST_SUITE_P(
    Graph, BadInput,
    all({
        layer("UnknownType", "InnerProdukt", "",
              "unknown layer type 'InnerProdukt'; did you mean 'InnerProduct'? Known: AbsVal, "),
        layer("TypeOfCaffeNotBuilt", "Python", "",
              "layers of type Python need an interpreter: use the net from Python, or tools built "
              "with PYTHON=1 (docs/python.md); known here: AbsVal, "),
        layer("TypeOfAFork", "BoxGroupOutput", "",
              "BVLC Caffe has no layer type 'BoxGroupOutput'; it belongs to MS-CNN's and Cascade "
              "R-CNN's forks"),
        net("FiveUnknownTypes",
            kIn +
                "layer { name: 'a' type: 'DecodeBBox' }\nlayer { name: 'b' type: 'CPMData' }\n"
                "layer { name: 'c' type: 'Lstm' }\nlayer { name: 'd' type: 'DecodeBBox' }\n"
                "layer { name: 'e' type: 'MarginInnerProduct' }\nlayer { name: 'f' type: 'Relu' }",
            {"@/net.prototxt:2: layer 'a' (DecodeBBox): ", "MS-CNN's",
             "@/net.prototxt:3: layer 'b' (CPMData): ", "OpenPose's fork",
             "@/net.prototxt:4: layer 'c' (Lstm): ", "junhyukoh's fork",
             "@/net.prototxt:6: layer 'e' (MarginInnerProduct): ", "SphereFace's fork",
             "@/net.prototxt:7: layer 'f' (Relu): unknown layer type 'Relu'; did you mean "
             "'ReLU'"}),
        layer("NoType", "", "", "no type is given; known: AbsVal, "),
        layer("OneBottomTooMany", "ReLU", "bottom: 'in'",
              "has 2 bottoms; a ReLU layer takes exactly 1"),
        layer("UnknownFiller", "InnerProduct",
              "inner_product_param { num_output: 1 weight_filler { type: 'xavior' } }",
              "filler 'xavior' is unknown"),
        net("BottomNobodyMakes", kIn + ip("x", "inn", "inner_product_param { num_output: 1 }"),
            {"@/net.prototxt:2: layer 'x' (InnerProduct): bottom 'inn' is made by no layer before "
             "this one; did you mean 'in'?"}),
        net("TopMadeTwice",
            kIn + "layer { name: 'a' type: 'ReLU' bottom: 'in' top: 'y' }\nlayer { name: 'b' type: "
                  "'TanH' bottom: 'in' top: 'y' }",
            {"@/net.prototxt:3: layer 'b' (TanH): top 'y' is made by an earlier layer already"}),
        net("TwoLayersOfOneName",
            kIn + ip("x", "in", "inner_product_param { num_output: 2 }") +
                "layer { name: 'x' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { "
                "num_output: 3 } }",
            {"@/net.prototxt:3: layer 'x' (InnerProduct): has the name of another layer with "
             "params (@/net.prototxt:2)"}),
        net("SharedOfOtherShape",
            kIn + ip("x", "in", "param { name: 'w' } inner_product_param { num_output: 2 }") +
                ip("y", "x", "param { name: 'w' } inner_product_param { num_output: 3 }"),
            {"@/net.prototxt:3: layer 'y'",
             "param 'w' has shape 3 2 (6), but its owner, layer 'x' (@/net.prototxt:2), has 2 75 "
             "(150)"}),
        net("EltwiseShapes", kIn + kOther + "layer { name: 'x' type: 'Eltwise' " + kBoth,
            {"@/net.prototxt:3: layer 'x' (Eltwise): bottom 'i2' has shape 2 3 5 4 (120), bottom "
             "'in' 2 3 5 5 (150); they must be equal"}),
        net("EuclideanShapes", kIn + kOther + "layer { name: 'x' type: 'EuclideanLoss' " + kBoth,
            {"2 3 5 5 (150)", "2 3 5 4 (120) differ"}),
        net("BlobsHaveTheUsersNames",
            kIn + kOther +
                "layer { name: 'a' type: 'ReLU' bottom: 'i2' top: 'a' }\nlayer { name: 'x' type: "
                "'Eltwise' " +
                kBoth,
            {"bottom 'i2' has shape"}),
        net("NoLayers", "name: 'x'", {"@/net.prototxt: the net has no layer"}),
        net("Empty", "", {"@/net.prototxt is empty"}),
    }),
    name_of);

// The text alone is at fault: any tool that reads it will do, and this one starts at once.
Case text(const std::string& name, const std::string& text, const Words& words) {
  return {name, {{"net.prototxt", text}}, {"upgrade_proto", "@/net.prototxt", "@/out"}, 3, words};
}

INSTANTIATE_TEST_SUITE_P(
    Text, BadInput,
    all({
        text("FieldAndPlace", kIn + ip("x", "in", "\n inner_product_param { num_ouput: 10 }"),
             {"@/net.prototxt:3:24: InnerProductParameter has no field 'num_ouput'; did you mean "
              "'num_output'?"}),
        text("UnknownValue",
             "layer { name: 'd' type: 'Data' top: 'd' data_param { backend: LMDM } }",
             {"'LMDM' is not a value of backend; did you mean 'LMDB'?"}),
        text("WordForNumber", kIn + ip("x", "in", "inner_product_param { num_output: 'ten' }"),
             {"@/net.prototxt:2:", "'num_output' of InnerProductParameter"}),
        text("NegativeNumber", kIn + ip("x", "in", "inner_product_param { num_output: -3 }"),
             {"@/net.prototxt:2:", "'num_output'", "it must not be negative"}),
        text("TooLargeNumber",
             kIn + ip("x", "in", "inner_product_param { num_output: 99999999999 }"),
             {"'num_output'", "out of range (99999999999)"}),
        text("BraceMissing", "layer { name: 'a' type: 'ReLU'\nlayer { name: 'b' type: 'ReLU' }\n",
             {"@/net.prototxt:2:1: LayerParameter has no field 'layer'; is the } missing that "
              "closes the layer before this one?"}),
        text("BraceTooMany", kIn + "}", {"@/net.prototxt:2:1: this } closes nothing"}),
        text("QuoteMissing", "layer { name: 'a }\n", {"@/net.prototxt:1:"}),
        text("NotText", std::string("\x01\x02\0\x03", 4),
             {"@/net.prototxt is not a file of Caffe's"}),
        text("VeryDeep",
             [] {
               std::string text;
               for (int i = 0; i < 20000; ++i) text += "layer { ";
               return text;
             }(),
             {"@/net.prototxt:1:"}),
    }),
    name_of);

// ---- nets that read records

Case data(const std::string& name, const std::string& fields, const Words& words, int code = 4,
          const std::string& outside = "") {
  return net(
      name,
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { " + fields + " } " +
          outside + " }\n" + ip("ip", "data", "inner_product_param { num_output: 10 }") +
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' "
          "}\n"
          "layer { name: 'right' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'right' }\n",
      words, code);
}

const std::string kSet = "source: '~/set' backend: DATUMFILE ";
const char* const kData = "@/net.prototxt:1: layer 'data' (Data): ";

INSTANTIATE_TEST_SUITE_P(
    Records, BadInput,
    all({
        data("BatchZero", kSet + "batch_size: 0",
             {std::string(kData) + "batch_size is 0; it must be from 1 to 2147483647"}, 3),
        data("BatchMissing", kSet, {std::string(kData) + "batch_size is 0"}, 3),
        data("BatchOverflows", kSet + "batch_size: 4294967295",
             {std::string(kData) + "batch_size is 4294967295"}, 3),
        data("BatchTimesSizeOverflows", kSet + "batch_size: 1000000000",
             {std::string(kData) + "the shape 1000000000 1 2 2" + kTooMany}, 3),
        data("BatchLargerThanSet", kSet + "batch_size: 17",
             {"a batch of 17 is larger than the set ~/set of 16 records"}, 0),
        data("PrefetchZero", kSet + "batch_size: 1 prefetch: 0",
             {std::string(kData) + "prefetch is 0"}, 3),
        data("CropLargerThanImage", kSet + "batch_size: 1",
             {std::string(kData) +
              "the record 00000 of ~/set is 1 x 2 x 2, smaller than crop_size 3"},
             4, "transform_param { crop_size: 3 }"),
        data("MeanMissing", kSet + "batch_size: 1",
             {std::string(kData) +
              "the mean file @/no cannot be read: cannot open @/no: No such file"},
             4, "transform_param { mean_file: '@/no' }"),
        data("MeanOfAnotherKind", kSet + "batch_size: 1",
             {std::string(kData) + "the mean file ~/model.caffemodel"}, 4,
             "transform_param { mean_file: '~/model.caffemodel' }"),
        data("MeanValues", kSet + "batch_size: 1", {"has 1 channels; mean_value is given 2 times"},
             4, "transform_param { mean_value: 1 mean_value: 2 }"),
        data("SourceMissing", "source: '@/no' backend: LMDB batch_size: 1",
             {std::string(kData) + "cannot open LMDB @/no: No such file or directory"}),
        data("SourceOfRelativePath", "source: 'no/such' batch_size: 1",
             {"cannot open LevelDB no/such: No such file or directory; the current folder is /"}),
        data("SourceNotGiven", "batch_size: 1", {std::string(kData) + "no source is given"}, 3),
        data("LmdbForLeveldb", "source: '~/lmdb' batch_size: 1",
             {"~/lmdb is no LevelDB", "it looks like a lmdb, for which the back end is LMDB"}),
        data("LeveldbForLmdb", "source: '~/leveldb' backend: LMDB batch_size: 1",
             {"~/leveldb is no LMDB", "it looks like a leveldb"}),
        data("DatumfileForLmdb", "source: '~/set' backend: LMDB batch_size: 1",
             {"~/set is no LMDB", "it looks like a datumfile"}),
        data("ImageForDatumfile", "source: '~/a.png' backend: DATUMFILE batch_size: 1",
             {"datumfile ~/a.png: record 0", "is this a datumfile at all?"}),
        net("LabelPastTheClasses",
            "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { batch_size: "
            "4 " +
                kSet + "} }\n" + ip("ip", "data", "inner_product_param { num_output: 2 }") +
                "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: "
                "'l' }\n"
                "layer { name: 'right' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'right' "
                "}\n",
            {"@/net.prototxt:3: layer 'loss' (SoftmaxWithLoss): label 2 of 'label' at item 2 is "
             "outside 0..1 (bottom 'ip' has 2 classes; "
             "is num_output too small?); record 00002 of ~/set"},
            4),
    }),
    name_of);

Case list(const std::string& name, const std::string& lines, const Words& words, int code = 4,
          const std::string& fields = "") {
  Case c = net(name,
               "layer { name: 'data' type: 'ImageData' top: 'data' top: 'label' image_data_param { "
               "source: '@/list' batch_size: 3 "
               "is_color: false " +
                   fields + " } }\n" + ip("ip", "data", "inner_product_param { num_output: 2 }") +
                   "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: "
                   "'loss' }\n",
               words, code);
  c.files.emplace_back("list", lines);
  return c;
}

const std::string kGood = "~/a.png 0\n~/b.png 1\n";

INSTANTIATE_TEST_SUITE_P(
    ImageList, BadInput,
    all({
        list("MissingImage", kGood + "@/c.png 0\n",
             {"(ImageData): the record @/c.png (line 3) of @/list is bad: cannot open @/c.png: No "
              "such file"}),
        list("BrokenImage", kGood + "~/junk.png 0\n",
             {"the record ~/junk.png (line 3) of @/list is bad: the image ~/junk.png is no "
              "picture"}),
        list("OtherSize", kGood + "~/wide.png 0\n",
             {"the record ~/wide.png (line 3) of @/list is 1 x 2 x 3 where 1 x 2 x 2 is wanted"}),
        list("FolderForImage", kGood + "~ 0\n",
             {"(line 3) of @/list is bad: cannot read ~: Is a directory"}),
        list("LabelNoNumber", kGood + "~/a.png cat\n",
             {"@/list:3: the label \"cat\" is no whole number"}),
        list("LabelNegative", kGood + "~/a.png -1\n",
             {"label -1 of 'label' at item 2 is outside 0..1",
              "record ~/a.png (line 3) of @/list"}),
        list("EmptyList", "", {"the list @/list names no images"}),
        list("BadOnesLeftOut", kGood + "@/c.png 0\n",
             {"(line 3) of @/list is bad", "it is left out"}, 0, "on_bad_record: SKIP"),
        list("OneSide", kGood, {"new_height is 4 and new_width 0; set both or neither"}, 3,
             "new_height: 4"),
    }),
    name_of);

}  // namespace
}  // namespace shoal::test::bad_input_test
