#include "common/records.h"

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/data/image_list.h"
#include "shoal/data/parts.h"
#include "shoal/data/record.h"
#include "shoal/net/graph.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/fields.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/parts.pb.h"

namespace shoal {
namespace {

std::optional<std::uint64_t> count_at(const DataParameter& data, const std::string& path) {
  Result<std::unique_ptr<RecordSource>> source =
      open_source(DataParameter::DB_Name(data.backend()), path);
  if (!source.ok()) return std::nullopt;
  const Result<std::uint64_t> count = source.value()->count();
  return count.ok() ? std::optional(count.value()) : std::nullopt;
}

std::optional<std::uint64_t> count_at(const ImageDataParameter&, const std::string& list) {
  const Result<std::vector<ListedImage>> images = read_image_list(list);
  return images.ok() ? std::optional<std::uint64_t>(images.value().size()) : std::nullopt;
}

// Takes what the layer does: of a set cut up for several clients there may be the first part only.
std::string path_alone(const std::string& source) {
  const std::string part = part_path(source, "0");
  return file_exists(source) || !file_exists(part) ? source : part;
}

// Returns the numbers that the records of one client's part have in the whole.
OwnRecords numbered(const LayerParameter& layer, const std::string& source, const Share& share,
                    std::uint64_t count) {
  const std::uint64_t client = static_cast<std::uint64_t>(share.client),
                      clients = static_cast<std::uint64_t>(share.clients);
  PartsManifest manifest;
  const bool listed = or_throw(read_parts_manifest(source, manifest));
  if (listed && manifest.part_size() != share.clients)
    throw config_error(Code::kUsage, layer, source, " was cut into ", manifest.part_size(),
                       " parts, and ", clients,
                       " clients read one each; give as many clients as parts");
  if (!listed || manifest.mode() == "round_robin") return {count, client, clients};
  if (manifest.mode() == "by_class")
    LOG(INFO) << source
              << " was cut by class: its records are numbered part by part, not in the order of "
              << source;
  OwnRecords own{count, 0, 1};
  for (int k = 0; k < share.client; ++k)
    own.first += static_cast<std::uint64_t>(manifest.part(k).count());
  return own;
}

template <class Param>
std::optional<OwnRecords> own_of(const LayerParameter& layer, const Param& data,
                                 const Share& share) {
  const bool shared = data.shared_file_system();
  const std::string path =
      shared ? data.source() : part_path(data.source(), std::to_string(share.client));
  const std::optional<std::uint64_t> count = count_at(data, path);
  if (!count) return std::nullopt;
  if (!shared) return numbered(layer, data.source(), share, *count);
  const std::uint64_t client = static_cast<std::uint64_t>(share.client),
                      clients = static_cast<std::uint64_t>(share.clients);
  if (clients > *count)
    throw config_error(Code::kUsage, layer, clients, " clients are more than the ", *count,
                       " records of ", path);
  return OwnRecords{(*count - client + clients - 1) / clients, client, clients};
}

template <class Param>
void set_order(const LayerParameter& layer, Param& data) {
  if (data.shuffle() || data.rand_skip() > 0 || data.on_bad_record() != DataParameter::STOP)
    LOG(INFO)
        << "layer '" << layer.name()
        << "': shuffle, rand_skip and on_bad_record are ignored: every record is read in order";
  data.clear_shuffle();
  data.clear_rand_skip();
  data.clear_on_bad_record();
}

}  // namespace

std::optional<std::uint64_t> records_of(const NetParameter& net, Counting effort) {
  const NetParameter own = filter_net(net);
  for (const LayerParameter& layer : own.layer()) {
    const DataParameter& data = layer.data_param();
    const std::string path = path_alone(data.source());
    const bool lmdb = data.backend() == DataParameter::LMDB ||
                      (data.backend() == DataParameter::ANY && looks_like(path) == "lmdb");
    if (reads_data_param(layer) && effort == Counting::kCheap && !lmdb) return std::nullopt;
    if (reads_data_param(layer)) return count_at(data, path);
    if (layer.type() == "ImageData")
      return count_at(layer.image_data_param(), path_alone(layer.image_data_param().source()));
  }
  return std::nullopt;
}

std::optional<OwnRecords> own_records(const NetParameter& net, const Share& share) {
  if (share.clients == 1) {
    const std::optional<std::uint64_t> count = records_of(net, Counting::kWhatever);
    return count ? std::optional(OwnRecords{*count}) : std::nullopt;
  }
  const NetParameter own = filter_net(net);
  for (const LayerParameter& layer : own.layer()) {
    if (reads_data_param(layer)) return own_of(layer, layer.data_param(), share);
    if (layer.type() == "ImageData") return own_of(layer, layer.image_data_param(), share);
  }
  return std::nullopt;
}

void read_in_order(NetParameter& net) {
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (reads_data_param(layer)) set_order(layer, *layer.mutable_data_param());
    if (layer.type() == "ImageData") set_order(layer, *layer.mutable_image_data_param());
    if (layer.type() == "HDF5Data") layer.mutable_hdf5_data_param()->clear_shuffle();
  }
}

}  // namespace shoal
