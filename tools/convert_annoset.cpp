// Pictures and files with their boxes, named in a list, to a database of AnnotatedDatums.
#include <gflags/gflags.h>

#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "common/conversion.h"
#include "common/list_conversion.h"
#include "common/pictures.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/data/annotations.h"
#include "shoal/data/image_list.h"
#include "shoal/proto/annotated.pb.h"
#include "shoal/proto/label_map.h"

DEFINE_string(anno_type, "detection",
              "detection: LIST has \"picture annotations\" lines; "
              "classification: \"picture label\"");
DEFINE_string(label_type, "xml",
              "files of annotations: xml (VOC), json (one picture of COCO) or "
              "txt (\"label xmin ymin xmax ymax\" lines)");
DEFINE_string(label_map_file, "", "label map with the names in xml and json files");
DEFINE_bool(check_label, false,
            "accepted; a name or a label that is twice in the label map is "
            "always refused");
DEFINE_int32(min_dim, 0, "enlarge pictures whose shorter side is below this; 0: none");
DEFINE_int32(max_dim, 0, "make pictures smaller whose longer side is above this; 0: none");
DEFINE_int32(resize_height, 0, "height to resize to; with --resize_width");
DEFINE_int32(resize_width, 0, "width to resize to; with --resize_height");
DEFINE_bool(gray, false, "store one channel instead of three");
DEFINE_bool(shuffle, false, "mix the order of the pictures, which otherwise is the list's");
DEFINE_int64(seed, 1, "seed of the shuffle; the same seed makes the same database");
DEFINE_string(backend, "lmdb", "lmdb, leveldb or datumfile");
DEFINE_bool(check_size, false, "refuse pictures that differ in size from the first");
DEFINE_bool(encoded, false, "store the pictures as JPEG or PNG, not as pixels");
DEFINE_string(encode_type, "",
              "what to store encoded pictures as: jpg, png, ...; the files' own kind if empty. "
              "Implies --encoded");
DEFINE_int32(threads, 0, "threads that decode; 0: one a core");

namespace shoal {
namespace {

struct ListedPicture {
  std::string path, annotations;  // behind ROOT; "": a label instead
  int label = 0;
  std::uint64_t line = 0;  // from 1
};

struct Job {
  std::string root;
  std::optional<AnnotationFile> kind;  // nothing: classification
  std::map<std::string, int> labels;
  PictureOptions pictures;
};

// Reads "picture annotations" lines, of which the second word is behind the last blank.
std::vector<ListedPicture> read_pairs(const std::string& list) {
  std::istringstream lines(or_throw(read_file(list, Code::kData)));
  std::vector<ListedPicture> pictures;
  std::uint64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const std::size_t blank = line.find_last_of(" \t");
    const std::size_t end = line.find_last_not_of(" \t", blank);
    if (blank == std::string::npos || blank + 1 == line.size() || end == std::string::npos)
      throw ConfigError(Code::kData, list, ":", number, ": '", line,
                        "' is not \"picture annotations\", two paths behind ROOT");
    pictures.push_back({line.substr(0, end + 1), line.substr(blank + 1), 0, number});
  }
  if (pictures.empty()) throw ConfigError(Code::kData, list, " names no pictures");
  return pictures;
}

std::vector<ListedPicture> chosen_pictures(const std::string& list, const Job& job) {
  std::vector<ListedPicture> pictures;
  if (job.kind)
    pictures = read_pairs(list);
  else
    for (const ListedImage& image : or_throw(read_image_list(list)))
      pictures.push_back({image.path, "", image.label, image.line});
  Random random(static_cast<std::uint64_t>(FLAGS_seed), stream_of("convert_annoset"));
  if (FLAGS_shuffle) shuffle(pictures, random);
  LOG(INFO) << (FLAGS_shuffle ? str("Shuffled with seed ", FLAGS_seed, ". ") : "") << "A total of "
            << pictures.size() << " pictures.";
  return pictures;
}

ConvertedRecord convert(const Job& job, const ListedPicture& listed) {
  Result<Picture> picture = read_picture(job.root + listed.path, job.pictures);
  if (!picture.ok()) return {{}, {}, picture.error().message};
  AnnotatedDatum record;
  *record.mutable_datum() = std::move(picture.value().datum);
  if (!job.kind) {
    record.mutable_datum()->set_label(listed.label);
    return {record.SerializeAsString(), picture.value().size, {}};
  }
  record.mutable_datum()->set_label(-1);  // as SSD's tool leaves it
  const ImageSize& original = picture.value().original;
  const Status read = read_annotations(job.root + listed.annotations, *job.kind,
                                       {original.height, original.width}, job.labels, record);
  if (!read.ok()) return {{}, {}, read.error().message};
  return {record.SerializeAsString(), picture.value().size, {}};
}

Job job_of_flags(const std::string& root) {
  Job job;
  job.root = root;
  job.pictures = {.gray = FLAGS_gray,
                  .height = FLAGS_resize_height,
                  .width = FLAGS_resize_width,
                  .min_dim = FLAGS_min_dim,
                  .max_dim = FLAGS_max_dim,
                  .encoded = FLAGS_encoded,
                  .encode_type = FLAGS_encode_type};
  check_sides(job.pictures);
  check_threads(FLAGS_threads);
  if (FLAGS_anno_type != "detection" && FLAGS_anno_type != "classification")
    throw ConfigError(Code::kUsage, "--anno_type=", FLAGS_anno_type,
                      "; it is detection or classification");
  if (FLAGS_anno_type != "detection") return job;
  job.kind = annotation_file_named(FLAGS_label_type);
  if (!job.kind)
    throw ConfigError(Code::kUsage, "--label_type=", FLAGS_label_type, "; it is xml, json or txt");
  if (job.kind == AnnotationFile::kText) return job;
  if (FLAGS_label_map_file.empty())
    throw ConfigError(Code::kUsage, "--label_map_file is missing: ", FLAGS_label_type,
                      " files have names, which it gives labels");
  const LabelMap map = read_label_map(FLAGS_label_map_file);
  for (const LabelMapItem& item : map.item()) job.labels[item.name()] = item.label();
  return job;
}

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 3, 3, "convert_annoset [flags] ROOT/ LIST DB");
  const Job job = job_of_flags(words[0]);
  const std::vector<ListedPicture> pictures = chosen_pictures(words[1], job);
  check_root(words[0], pictures[0].path);
  std::vector<ListedRecord> records;
  for (const ListedPicture& one : pictures) records.push_back({one.path, one.line});
  return convert_list({.tool = "convert_annoset",
                       .backend = FLAGS_backend,
                       .list = words[1],
                       .root = words[0],
                       .path = words[2],
                       .pictures = "pictures",
                       .threads = FLAGS_threads,
                       .check_size = FLAGS_check_size},
                      records, [&](std::size_t i) { return convert(job, pictures[i]); });
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(
      argc, argv,
      "convert_annoset [flags] ROOT/ LIST DB\n\n"
      "Makes the database DB of the pictures and their boxes that LIST names, one \"picture "
      "annotations\" a line,\n"
      "each path put after ROOT/. An AnnotatedData layer reads it.\n"
      "Keys are the picture's place in the (shuffled) list, eight digits, and its path: "
      "00000042_JPEGImages/7.jpg.\n"
      "Pictures that cannot be used are left out, listed at the end, and make the exit code 4.",
      shoal::body);
}
