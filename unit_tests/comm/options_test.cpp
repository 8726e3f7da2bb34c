// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The environment variables of communicators: read when one is made, refused with name, value and what is allowed.
#include <shardgrad/comm/communicator.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

namespace {

namespace sg = shardgrad;
using namespace std::chrono_literals;

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

void expect_refused(const char* name, const char* value, const std::string& allowed) {
  const Variable variable(name, value);
  try {
    (void)sg::Communicator::self();
    ADD_FAILURE() << name << "=" << value << " was taken";
  } catch (const sg::InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find("'" + std::string(value) + "'"), std::string::npos) << text;
    EXPECT_NE(text.find(allowed), std::string::npos) << text;
  }
}

TEST(Options, defaults) {
  const auto options = sg::Communicator::self().options();
  EXPECT_EQ(options.route, sg::Route::automatic);
  EXPECT_EQ(options.progress, sg::Progress::automatic);
  EXPECT_EQ(options.timeout, 600s);
  EXPECT_EQ(options.chunk_limit, 2147483647U);
  EXPECT_EQ(options.check_calls, true);
}

TEST(Options, come_from_the_environment) {
  const Variable route("SHARDGRAD_ROUTE", "mpi");
  const Variable progress("SHARDGRAD_PROGRESS", "thread");
  const Variable timeout("SHARDGRAD_TIMEOUT_S", "1.5");
  const Variable limit("SHARDGRAD_CHUNK_LIMIT", "1000");
  const Variable check("SHARDGRAD_CHECK_CALLS", "0");
  const auto comm = sg::Communicator::self();
  EXPECT_EQ(comm.options().route, sg::Route::mpi);
  EXPECT_EQ(comm.options().progress, sg::Progress::thread);
  EXPECT_TRUE(comm.has_progress_thread());
  EXPECT_EQ(comm.options().timeout, 1500ms);
  EXPECT_EQ(comm.options().chunk_limit, 1000U);
  EXPECT_EQ(comm.options().check_calls, false);
}

TEST(Options, of_the_caller_win) {
  const Variable limit("SHARDGRAD_CHUNK_LIMIT", "1000");
  const Variable progress("SHARDGRAD_PROGRESS", "nonsense, but not asked for");
  const auto comm = sg::Communicator::self({.progress = sg::Progress::inline_, .chunk_limit = 7});
  EXPECT_EQ(comm.options().chunk_limit, 7U);
}

TEST(Options, an_empty_variable_is_none) {
  const Variable limit("SHARDGRAD_CHUNK_LIMIT", "");
  EXPECT_EQ(sg::Communicator::self().options().chunk_limit, 2147483647U);
}

TEST(Options, nonsense_is_refused) {
  expect_refused("SHARDGRAD_ROUTE", "pigeon", "automatic, mpi");
  expect_refused("SHARDGRAD_PROGRESS", "Thread", "automatic, thread, inline");
  for (const char* value : {"0", "-1", "1e10", "5 s", "nan", "x"})
    expect_refused("SHARDGRAD_TIMEOUT_S", value, "seconds from 0.001 to 1e9");
  for (const char* value : {"0", "-1", "2147483648", "1.5", "1k"})
    expect_refused("SHARDGRAD_CHUNK_LIMIT", value, "1 to 2147483647");
  for (const char* value : {"yes", "2", "true"}) expect_refused("SHARDGRAD_CHECK_CALLS", value, "0, 1");
}

TEST(Options, nonsense_of_the_caller_is_refused) {
  EXPECT_THROW(sg::Communicator::self({.timeout = 0ms}), sg::InvalidArgument);
  EXPECT_THROW(sg::Communicator::self({.chunk_limit = 0}), sg::InvalidArgument);
  EXPECT_THROW(sg::Communicator::self({.chunk_limit = std::size_t{1} << 31}), sg::InvalidArgument);
}

// MPI is not initialised in this program.
TEST(Communicators, need_mpi_only_for_mpi) {
  try {
    (void)sg::Communicator::world();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const sg::NotInitialized& error) {
    EXPECT_NE(std::string(error.what()).find("MPI_Init_thread"), std::string::npos) << error.what();
  }
  EXPECT_EQ(sg::Communicator::self().size(), 1);
}

}  // namespace
