#include "records.h"

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/image_list.h"
#include "shoal/data/record.h"
#include "shoal/net/graph.h"
#include "shoal/proto/net.pb.h"

namespace shoal {
namespace {

std::optional<std::uint64_t> count_of(const DataParameter& data, Counting effort) {
  if (effort == Counting::kCheap && data.backend() != DataParameter::LMDB) return std::nullopt;
  const std::string part = data.source() + "_0";   // as the layer does: a set cut up for several clients
  const std::string path = file_exists(data.source()) || !file_exists(part) ? data.source() : part;
  Result<std::unique_ptr<RecordSource>> source = open_source(DataParameter::DB_Name(data.backend()), path);
  if (!source.ok()) return std::nullopt;
  const Result<std::uint64_t> count = source.value()->count();
  return count.ok() ? std::optional(count.value()) : std::nullopt;
}

std::optional<std::uint64_t> count_of(const ImageDataParameter& data) {
  const Result<std::vector<ListedImage>> images = read_image_list(data.source());
  return images.ok() ? std::optional<std::uint64_t>(images.value().size()) : std::nullopt;
}

template <class Param>
void set_order(const LayerParameter& layer, Param& data) {
  if (data.shuffle() || data.rand_skip() > 0 || data.on_bad_record() != DataParameter::STOP)
    LOG(INFO) << "layer '" << layer.name() << "': shuffle, rand_skip and on_bad_record are passed over; every record is read in order";
  data.clear_shuffle();
  data.clear_rand_skip();
  data.clear_on_bad_record();
}

}  // namespace

std::optional<std::uint64_t> records_of(const NetParameter& net, Counting effort) {
  const NetParameter own = filter_net(net);
  for (const LayerParameter& layer : own.layer()) {
    if (layer.type() == "Data") return count_of(layer.data_param(), effort);
    if (layer.type() == "ImageData") return count_of(layer.image_data_param());
  }
  return std::nullopt;
}

void read_in_order(NetParameter& net) {
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (layer.type() == "Data") set_order(layer, *layer.mutable_data_param());
    if (layer.type() == "ImageData") set_order(layer, *layer.mutable_image_data_param());
  }
}

}  // namespace shoal
