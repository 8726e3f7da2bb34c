// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recorder: hands arrays to the Python side of a comparison. Each rank has a binary file and an index of JSON lines.
#pragma once

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <fstream>
#include <shardgrad/core/data_type.hpp>
#include <string>

namespace peer {

/// Writes FOLDER/rank<R>.bin and FOLDER/rank<R>.jsonl; peer.py reads them.
class Recorder {
 public:
  Recorder(const std::string& folder, int rank)
      : data_(folder + "/rank" + std::to_string(rank) + ".bin", std::ios::binary),
        index_(folder + "/rank" + std::to_string(rank) + ".jsonl") {
    data_.exceptions(std::ios::failbit | std::ios::badbit);
    index_.exceptions(std::ios::failbit | std::ios::badbit);
  }

  /// What follows belongs to case `number`; `options` is a JSON object.
  void begin(std::size_t number, const std::string& options) {
    number_ = number;
    index_ << "{\"case\": " << number_ << ", \"options\": " << options << "}\n";
  }

  /// A contiguous view in host memory.
  template <class View>
  void add(const std::string& name, const View& view) {
    static_assert(Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename View::memory_space>::accessible);
    index_ << "{\"case\": " << number_ << ", \"name\": \"" << name << "\", \"type\": \""
           << shardgrad::name_of(shardgrad::data_type_of<typename View::non_const_value_type>) << "\", \"shape\": [";
    for (std::size_t k = 0; k < View::rank(); ++k) index_ << (k == 0 ? "" : ", ") << view.extent(k);
    index_ << "], \"offset\": " << data_.tellp() << "}\n";
    data_.write(reinterpret_cast<const char*>(view.data()),
                static_cast<std::streamsize>(view.size() * sizeof(typename View::value_type)));
  }

 private:
  std::ofstream data_;
  std::ofstream index_;
  std::size_t number_ = 0;
};

}  // namespace peer
