// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SharedFolder: a folder that all ranks of a test know, and that vanishes with it.
#pragma once

#include "support/rank_groups.hpp"

#include <shardgrad/comm/collectives.hpp>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>

namespace support {

/// Made and destroyed outside of on_ranks(), on all processes.
class SharedFolder {
 public:
  SharedFolder() {
    std::mutex mutex;
    on_ranks(std::ranges::max(group_sizes()), [&](const shardgrad::Communicator& comm) {
      std::string name = (std::filesystem::temp_directory_path() / "shardgrad_test_XXXXXX").string();
      if (comm.rank() == 0 && mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
      const Kokkos::View<std::uint8_t*, Kokkos::HostSpace> view(reinterpret_cast<std::uint8_t*>(name.data()),
                                                                name.size());
      shardgrad::broadcast(comm, view, 0).wait();
      const std::lock_guard lock(mutex);
      folder_ = name;
    });
  }
  ~SharedFolder() {
    on_ranks(std::ranges::max(group_sizes()), [&](const shardgrad::Communicator& comm) {
      std::error_code ignored;
      if (comm.rank() == 0) std::filesystem::remove_all(folder_, ignored);
    });
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const {
    std::ifstream stream(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  /// Names of all files.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      result.push_back(entry.path().filename().string());
    std::ranges::sort(result);
    return result;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace support
