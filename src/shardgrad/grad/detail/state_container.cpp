// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/detail/state_container.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

namespace shardgrad::detail {

namespace {

constexpr std::string_view what_it_is = "shardgrad hook state ";
constexpr std::string_view first_line = "shardgrad hook state 1\n";
constexpr std::uint64_t byte_order = 0x0102030405060708u;

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void fail(const std::string& file, const std::string& problem) {
  throw InvalidArgument("hook state \"" + file + "\": " + problem);
}

/// Of bytes in the order in which they are added, whatever the pieces. Notices damage, does not resist an attacker. The
/// mixing is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
class Checksum {
 public:
  void add(const void* data, std::size_t count) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (; count > 0 && filled_ != 0; --count) add_byte(*bytes++);
    for (; count >= sizeof word_; count -= sizeof word_, bytes += sizeof word_) {
      std::memcpy(&word_, bytes, sizeof word_);
      mix();
    }
    for (; count > 0; --count) add_byte(*bytes++);
  }

  std::uint64_t value() const {
    Checksum copy = *this;
    copy.mix();
    return copy.state_;
  }

 private:
  void add_byte(unsigned char byte) {
    word_ |= std::uint64_t{byte} << (8 * filled_);
    if (++filled_ == sizeof word_) mix();
  }
  void mix() {
    std::uint64_t z = (state_ ^ word_) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    state_ = z ^ (z >> 31);
    word_ = 0;
    filled_ = 0;
  }

  std::uint64_t state_ = 0;
  std::uint64_t word_ = 0;
  std::size_t filled_ = 0;
};

class Writer {
 public:
  explicit Writer(std::FILE* stream) : stream_(stream) {}

  void write(const void* data, std::size_t count) {
    checksum_.add(data, count);
    good_ = good_ && (count == 0 || std::fwrite(data, 1, count, stream_) == count);
  }
  void write(std::uint64_t number) { write(&number, sizeof number); }
  /// False when something could not be written; errno says why.
  bool is_good() const { return good_; }
  std::uint64_t checksum() const { return checksum_.value(); }

 private:
  std::FILE* stream_;
  bool good_ = true;
  Checksum checksum_;
};

std::uint64_t size_of_file(const StateEntries& entries) {
  std::uint64_t bytes = first_line.size() + 3 * sizeof(std::uint64_t);
  for (const StateEntry& entry : entries.all())
    bytes += 4 * sizeof(std::uint64_t) + entry.name.size() + entry.bytes.size();
  return bytes;
}

class Reader {
 public:
  Reader(const std::string& file, std::FILE* stream, std::uint64_t left_bytes)
      : file_(file), stream_(stream), left_bytes_(left_bytes) {}

  /// Before memory is allocated for so many bytes: a damaged size must not ask for all there is.
  void require_left(std::uint64_t bytes) const {
    if (bytes > left_bytes_) fail(file_, "damaged: it ends within an entry");
  }
  void read(void* data, std::uint64_t bytes) {
    require_left(bytes);
    if (bytes > 0 && std::fread(data, 1, bytes, stream_) != bytes) fail(file_, "cannot be read to its end");
    left_bytes_ -= bytes;
    checksum_.add(data, bytes);
  }
  std::uint64_t read_number() {
    std::uint64_t number = 0;
    read(&number, sizeof number);
    return number;
  }
  std::uint64_t left_bytes() const { return left_bytes_; }
  std::uint64_t checksum() const { return checksum_.value(); }

 private:
  const std::string& file_;
  std::FILE* stream_;
  std::uint64_t left_bytes_;
  Checksum checksum_;
};

void read_entry(Reader& reader, const std::string& file, StateEntries& entries) {
  const std::uint64_t name_bytes = reader.read_number();
  reader.require_left(name_bytes);
  std::string name(name_bytes, '\0');
  reader.read(name.data(), name_bytes);
  const std::uint64_t rule = reader.read_number(), type = reader.read_number(), count = reader.read_number();
  if (rule > static_cast<std::uint64_t>(StateRule::sum) || type < static_cast<std::uint64_t>(DataType::uint8) ||
      type > static_cast<std::uint64_t>(DataType::float64))
    fail(file, "damaged: an entry of rule " + std::to_string(rule) + " and type " + std::to_string(type));
  if (entries.find(name) != nullptr) fail(file, "damaged: it holds \"" + name + "\" twice");
  const auto data_type = static_cast<DataType>(type);
  reader.require_left(count > reader.left_bytes() ? count : count * size_of(data_type));
  std::vector<std::byte> bytes(count * size_of(data_type));
  reader.read(bytes.data(), bytes.size());
  entries.add(std::move(name), static_cast<StateRule>(rule), data_type, bytes.data(), count);
}

void require_known_start(Reader& reader, const std::string& file, std::uint64_t file_bytes) {
  std::string line(first_line.size(), '\0');
  if (file_bytes >= line.size()) reader.read(line.data(), line.size());
  if (!line.starts_with(what_it_is)) fail(file, "is no hook state of shardgrad");
  if (line != first_line)
    fail(file, "has format \"" + line.substr(what_it_is.size(), line.size() - what_it_is.size() - 1) +
                   "\"; this library reads \"1\"");
}

/// So that the renaming itself survives a crash.
void flush_folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // some file systems cannot; the file itself is on the disk
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

std::uint64_t write_state_container(const std::string& file, const StateEntries& entries) {
  const std::string partial = file + ".partial";
  const auto give_up = [&](int reason) {
    std::remove(partial.c_str());
    fail(file, "cannot be written: " + std::generic_category().message(reason));
  };
  File stream(std::fopen(partial.c_str(), "wb"), std::fclose);
  if (!stream) give_up(errno);
  Writer writer(stream.get());
  writer.write(first_line.data(), first_line.size());
  writer.write(byte_order);
  writer.write(size_of_file(entries));
  for (const StateEntry& entry : entries.all()) {
    writer.write(entry.name.size());
    writer.write(entry.name.data(), entry.name.size());
    writer.write(static_cast<std::uint64_t>(entry.rule));
    writer.write(static_cast<std::uint64_t>(entry.type));
    writer.write(entry.count());
    writer.write(entry.bytes.data(), entry.bytes.size());
  }
  const std::uint64_t checksum = writer.checksum();
  writer.write(checksum);
  if (!writer.is_good() || std::fflush(stream.get()) != 0 || fsync(fileno(stream.get())) != 0) give_up(errno);
  if (std::fclose(stream.release()) != 0 || std::rename(partial.c_str(), file.c_str()) != 0) give_up(errno);
  flush_folder_of(file);
  return checksum;
}

StateContainer read_state_container(const std::string& file) {
  std::error_code problem;
  const std::uint64_t file_bytes = std::filesystem::file_size(file, problem);
  const File stream(problem ? nullptr : std::fopen(file.c_str(), "rb"), std::fclose);
  if (!stream) fail(file, "cannot be read: " + (problem ? problem.message() : std::generic_category().message(errno)));

  Reader reader(file, stream.get(), file_bytes);
  require_known_start(reader, file, file_bytes);
  if (reader.left_bytes() < 3 * sizeof(std::uint64_t))
    fail(file, "is cut short: " + std::to_string(file_bytes) + " bytes, less than a header");
  const std::uint64_t order = reader.read_number();
  if (order != byte_order)
    fail(file, "was written by a machine with another byte order, or is damaged: its mark is " + std::to_string(order) +
                   "; wanted is " + std::to_string(byte_order));
  const std::uint64_t wanted_bytes = reader.read_number();
  if (wanted_bytes != file_bytes)
    fail(file, "is cut short or damaged: " + std::to_string(file_bytes) + " bytes; its header says " +
                   std::to_string(wanted_bytes));
  StateContainer container;
  while (reader.left_bytes() > sizeof(std::uint64_t)) read_entry(reader, file, container.entries);
  container.checksum = reader.checksum();
  const std::uint64_t wanted = reader.read_number();
  if (wanted != container.checksum)
    fail(file, "is damaged: its bytes have checksum " + std::to_string(container.checksum) + "; wanted is " +
                   std::to_string(wanted));
  return container;
}

}  // namespace shardgrad::detail
