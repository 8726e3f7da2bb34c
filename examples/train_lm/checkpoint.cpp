// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// File layout: one line that says what it is, the size of the header (8 bytes), the header (JSON), the tensors as
// floats in the header's order, and the fingerprint of all that (8 bytes). Numbers are in the machine's byte order.
#include "checkpoint.hpp"

#include "fingerprint.hpp"
#include "usage_error.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

namespace train_lm {
namespace {

constexpr std::string_view first_line = "shardgrad train_lm checkpoint 1\n";

using Json = nlohmann::json;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

Json curve_to_json(const Curve& curve) {
  Json json = Json::array();
  for (const CurvePoint& point : curve)
    json.push_back({point.step, point.learning_rate, point.training_loss,
                    point.validation_loss ? Json(*point.validation_loss) : Json()});
  return json;
}

Curve curve_from_json(const Json& json) {
  Curve curve;
  for (const Json& point : json) {
    curve.push_back({point.at(0), point.at(1), point.at(2), std::nullopt});
    if (!point.at(3).is_null()) curve.back().validation_loss = point.at(3).get<double>();
  }
  return curve;
}

std::string header_of(const Checkpoint& checkpoint) {
  Json tensors = Json::array();
  for (const auto& [name, values] : checkpoint.tensors) tensors.push_back({{"name", name}, {"count", values.size()}});
  return Json{{"settings", checkpoint.settings},
              {"step", checkpoint.step},
              {"curve", curve_to_json(checkpoint.curve)},
              {"tensors", tensors}}
      .dump();
}

/// Writes bytes and keeps their fingerprint.
class Writer {
 public:
  explicit Writer(std::FILE* stream) : stream_(stream) {}
  bool write(const void* data, std::size_t size_bytes) {
    fingerprint_.add(data, size_bytes);
    // An empty tensor has no memory, and fwrite takes no null pointer.
    return size_bytes == 0 || std::fwrite(data, 1, size_bytes, stream_) == size_bytes;
  }
  std::uint64_t fingerprint() const { return fingerprint_.value(); }

 private:
  std::FILE* stream_;
  Fingerprint fingerprint_;
};

bool write_all(std::FILE* stream, const Checkpoint& checkpoint) {
  const std::string header = header_of(checkpoint);
  const std::uint64_t header_bytes = header.size();
  Writer writer(stream);
  bool good = writer.write(first_line.data(), first_line.size()) && writer.write(&header_bytes, sizeof header_bytes) &&
              writer.write(header.data(), header.size());
  for (const auto& [name, values] : checkpoint.tensors)
    good = good && writer.write(values.data(), values.size() * sizeof(float));
  const std::uint64_t fingerprint = writer.fingerprint();
  return good && std::fwrite(&fingerprint, sizeof fingerprint, 1, stream) == 1 && std::fflush(stream) == 0 &&
         fsync(fileno(stream)) == 0;
}

/// Reads bytes of a file whose size is known, and keeps their fingerprint. \throws UsageError past the end.
class Reader {
 public:
  Reader(std::FILE* stream, const std::string& file, std::uint64_t size_bytes)
      : stream_(stream), file_(file), left_bytes_(size_bytes) {}

  void read(void* data, std::uint64_t size_bytes) {
    require_left(size_bytes);
    if (size_bytes > 0 && std::fread(data, 1, size_bytes, stream_) != size_bytes)
      throw UsageError(fmt::format("cannot read checkpoint '{}'", file_));
    left_bytes_ -= size_bytes;
    fingerprint_.add(data, size_bytes);
  }
  /// To be asked before memory is allocated for so many bytes: a damaged size must not ask for all there is.
  void require_left(std::uint64_t size_bytes) const {
    if (size_bytes > left_bytes_) throw UsageError(fmt::format("checkpoint '{}' is cut short or damaged", file_));
  }
  std::uint64_t left_bytes() const { return left_bytes_; }
  std::uint64_t fingerprint() const { return fingerprint_.value(); }

 private:
  std::FILE* stream_;
  const std::string& file_;
  std::uint64_t left_bytes_;
  Fingerprint fingerprint_;
};

}  // namespace

void write_checkpoint(const std::string& file, const Checkpoint& checkpoint) {
  const std::string partial = file + ".partial";
  const auto fail = [&](int reason) {
    std::remove(partial.c_str());
    throw file_error("write checkpoint", file, reason);
  };
  File stream(std::fopen(partial.c_str(), "wb"), std::fclose);
  if (!stream || !write_all(stream.get(), checkpoint)) fail(errno);
  if (std::fclose(stream.release()) != 0 || std::rename(partial.c_str(), file.c_str()) != 0) fail(errno);
}

Checkpoint read_checkpoint(const std::string& file) {
  std::error_code problem;
  const std::uintmax_t size_bytes = std::filesystem::file_size(file, problem);
  File stream(problem ? nullptr : std::fopen(file.c_str(), "rb"), std::fclose);
  if (!stream) throw file_error("read checkpoint", file, problem ? problem.value() : errno);

  Reader reader(stream.get(), file, size_bytes);
  std::string start(first_line.size(), '\0');
  if (size_bytes >= start.size()) reader.read(start.data(), start.size());
  if (start != first_line) throw UsageError(fmt::format("'{}' is no checkpoint of train_lm", file));
  std::uint64_t header_bytes = 0;
  reader.read(&header_bytes, sizeof header_bytes);
  reader.require_left(header_bytes);
  std::string header(header_bytes, '\0');
  reader.read(header.data(), header_bytes);

  const auto damaged = [&] { throw UsageError(fmt::format("checkpoint '{}' is cut short or damaged", file)); };
  Checkpoint checkpoint;
  try {
    const Json json = Json::parse(header);
    json.at("settings").get_to(checkpoint.settings);
    checkpoint.step = json.at("step");
    checkpoint.curve = curve_from_json(json.at("curve"));
    for (const Json& tensor : json.at("tensors")) {
      const std::uint64_t count = tensor.at("count");
      if (count > reader.left_bytes() / sizeof(float)) damaged();
      auto& values = checkpoint.tensors[tensor.at("name")];
      values.resize(count);
      reader.read(values.data(), count * sizeof(float));
    }
  } catch (const Json::exception&) {
    damaged();
  }
  const std::uint64_t expected = reader.fingerprint();
  std::uint64_t fingerprint = 0;
  reader.read(&fingerprint, sizeof fingerprint);
  if (fingerprint != expected || reader.left_bytes() != 0) damaged();
  return checkpoint;
}

void require_same_settings(const std::string& file, const Checkpoint& checkpoint, const Settings& settings) {
  for (const auto& [name, value] : settings) {
    const auto saved = checkpoint.settings.find(name);
    if (saved == checkpoint.settings.end())
      throw UsageError(fmt::format("checkpoint '{}' says nothing of {}", file, name));
    if (saved->second != value)
      throw UsageError(fmt::format("checkpoint '{}' was made with {} {}, not {}", file, name, saved->second, value));
  }
}

}  // namespace train_lm
