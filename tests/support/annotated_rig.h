// Databases of grey pictures with boxes, and a net of one AnnotatedData layer that reads them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "shoal/data/image.h"
#include "shoal/net/net.h"
#include "shoal/proto/annotated.pb.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/data_files.h"
#include "support/layer_rig.h"

namespace shoal::test::annotated {

struct TestBox {
  int label = 1, instance = 0;
  float xmin = 0, ymin = 0, xmax = 1, ymax = 1;
  bool difficult = false;
};

// A grey picture in which the pixels of each box have the value 10 times its label, and 100.
inline std::string record(int height, int width, const std::vector<TestBox>& boxes,
                          bool encoded = false) {
  Image image{{1, height, width},
              std::vector<std::uint8_t>(static_cast<std::size_t>(height * width), 100)};
  AnnotatedDatum record;
  record.set_type(AnnotatedDatum::BBOX);
  for (const TestBox& box : boxes) {
    AnnotationGroup* const group = record.add_annotation_group();
    group->set_group_label(box.label);
    Annotation* const one = group->add_annotation();
    one->set_instance_id(box.instance);
    one->mutable_bbox()->set_xmin(box.xmin);
    one->mutable_bbox()->set_ymin(box.ymin);
    one->mutable_bbox()->set_xmax(box.xmax);
    one->mutable_bbox()->set_ymax(box.ymax);
    one->mutable_bbox()->set_difficult(box.difficult);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        const float px = (static_cast<float>(x) + 0.5f) / static_cast<float>(width),
                    py = (static_cast<float>(y) + 0.5f) / static_cast<float>(height);
        if (px > box.xmin && px < box.xmax && py > box.ymin && py < box.ymax)
          image.pixels[static_cast<std::size_t>(y * width + x)] =
              static_cast<std::uint8_t>(10 * box.label);
      }
  }
  Datum& datum = *record.mutable_datum();
  datum.set_channels(1);
  datum.set_height(height);
  datum.set_width(width);
  datum.set_encoded(encoded);
  datum.set_data(encoded ? encode_image(image, "png").value()
                         : std::string(image.pixels.begin(), image.pixels.end()));
  return record.SerializeAsString();
}

inline std::string written(const std::string& name, const std::vector<std::string>& values,
                           const std::string& backend = "datumfile") {
  Records records;
  for (const std::string& value : values)
    records.push_back({"r" + std::to_string(10 + records.size()), value});
  const std::string path = fresh_directory("annotated_" + name) + "/set";
  EXPECT_TRUE(write_records(backend, path, records).ok());
  return path;
}

struct Reader {
  Reader(const std::string& path, const std::string& fields, int batch = 1,
         const std::string& data = "", const Device* device = nullptr, Phase phase = TRAIN,
         Share share = {}, std::uint64_t seed = 5)
      : context({.device = device, .seed = seed, .share = share}) {
    NetParameter param = parse_net(
        "layer { name: 'd' type: 'AnnotatedData' top: 'x' top: 'boxes' data_param { source: '" +
            path + "' backend: ANY batch_size: " + std::to_string(batch) + " " + data + " } " +
            fields + " }",
        "test.prototxt");
    param.mutable_state()->set_phase(phase);
    net = std::make_unique<Net>(param, context);
  }
  std::string pass() {
    const Result<float> loss = net->forward();
    return loss.ok() ? "" : loss.error().message;
  }
  Numbers x() { return values(net->blob("x")->data); }
  Numbers boxes() { return values(net->blob("boxes")->data); }
  Shape shape() { return net->blob("boxes")->shape(); }
  Context context;
  std::unique_ptr<Net> net;
};

inline const TestBox kLeft{1, 0, 0, 0.25f, 0.5f, 0.75f}, kRight{2, 3, 0.5f, 0, 1, 0.5f, true};

}  // namespace shoal::test::annotated
