// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs the tests of this folder on groups of ranks: threads of one process (groups_local.cpp), or the ranks of the MPI
// job (groups_mpi.cpp).
#pragma once

#include <gtest/gtest.h>

#include <shardgrad/comm/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace groups {

/// Runs `body` on every rank of a group, and again for other sizes: 1, 2, 3, 4, 7 and 16 threads, or the MPI job as it
/// is. Whatever a rank throws is a failure.
void run(const std::function<void(const shardgrad::Communicator&)>& body);

/// The ranks of `parent` that are in `comm`, in the order of their rank there. Collective over `comm`.
inline std::vector<int> members(const shardgrad::Communicator& comm, const shardgrad::Communicator& parent) {
  const std::int32_t own = parent.rank();
  std::vector<std::int32_t> all(static_cast<std::size_t>(comm.size()));
  comm.run("shardgrad::test::members", [&](shardgrad::Transport& transport) {
    transport.all_gather({&own, 1, shardgrad::DataType::int32}, {all.data(), all.size(), shardgrad::DataType::int32})
        ->wait();
  });
  return {all.begin(), all.end()};
}

/// EXPECTs that `call` throws an E whose text contains `part`, with the same text on every rank. Collective.
template <class E, class Call>
void expect_same_error(const shardgrad::Communicator& comm, Call call, const std::string& part) {
  std::string text = "nothing was thrown";
  try {
    call();
  } catch (const E& error) {
    text = error.what();
  } catch (const std::exception& error) {
    text = std::string("an error of another class: ") + error.what();
  }
  EXPECT_NE(text.find(part), std::string::npos)
      << "rank " << comm.rank() << ": \"" << text << "\" does not contain \"" << part << '"';
  EXPECT_NO_THROW(comm.require_equal("the text of the error", text));
}

}  // namespace groups
